#include "common/arena/slab_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

namespace terrace::arena {
namespace {

using ::testing::HasSubstr;

constexpr SlabSizes kSizes{1000, 1000, 3000};  // 1024 + 1024 + 3000: two pages

SlabId id_of(int n) {
  SlabId id{};
  id[0] = static_cast<std::byte>(n);
  return id;
}

constexpr auto kGoOn = [] { return true; };

// The slab, null when nobody has it.
Result<SlabRef> find(Reservation& reservation, const SlabId& id, const SlabSizes& sizes) {
  auto found = reservation.find_all(std::array{Reservation::Key{id, sizes}});
  if (!found.ok()) return found.error();
  return found->slabs.front();
}

std::shared_ptr<Reservation> reserve(SlabStore& store, std::uint64_t slabs) {
  auto reservation = store.reserve({slabs, 0, 0}, kGoOn);
  EXPECT_TRUE(reservation.ok()) << (reservation.ok() ? "" : reservation.error().text());
  return reservation.ok() ? *reservation : nullptr;
}

SlabRef put(Reservation& reservation, int n, std::byte fill) {
  auto slab = reservation.allocate(id_of(n), kSizes);
  EXPECT_TRUE(slab.ok());
  const std::vector<std::byte> bytes(kSizes.file_bytes(), fill);
  EXPECT_TRUE((*slab)->write(0, bytes).ok());
  return publish(std::move(*slab));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they lock nothing
// 40 KiB: below the limit of locked memory of any machine that has one.
TEST(SlabStoreMemory, OfAReservation_IsLockedUntilItEnds) {
  SlabStore store({1 << 20, {}});
  const std::uint64_t before = locked_bytes();
  auto reservation = reserve(store, 40 << 10);
  EXPECT_EQ(locked_bytes(), before + (40 << 10));
  reservation.reset();
  store.reclaim();
  EXPECT_EQ(locked_bytes(), before);
}
#endif

TEST(SlabStore, StoredBytes_PartsAtCacheLinesWholeInPages) {
  EXPECT_EQ(kSizes.file_bytes(), 5000u);
  EXPECT_EQ(kSizes.stored_bytes(), 2 * kPageBytes);
  EXPECT_EQ((SlabSizes{4096, 4096, 4096}).stored_bytes(), 3 * kPageBytes);
}

TEST(SlabStore, OverBudget_RefusedWithEveryTermAndNothingTaken) {
  SlabStore store({100 << 10, {}});
  const auto first = store.reserve({.slabs = 40 << 10, .staging = 8 << 10, .scratch = 4 << 10}, kGoOn);
  ASSERT_TRUE(first.ok());
  const auto second = store.reserve({.slabs = 40 << 10, .staging = 8 << 10, .scratch = 4 << 10}, kGoOn);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_THAT(second.error().text(), HasSubstr("needs 52K (slabs 40K, staging 8K, scratch 4K)"));
  EXPECT_THAT(second.error().text(), HasSubstr("48K free of a budget of 100K"));
  EXPECT_EQ(store.usage().reserved, std::uint64_t{52} << 10);
}

TEST(SlabStore, MachineHasLessThanBudget_Refused) {
  SlabStore store({1 << 20, [] { return Result<std::uint64_t>(std::uint64_t{10} << 10); }});
  const auto reservation = store.reserve({40 << 10, 0, 0}, kGoOn);
  ASSERT_FALSE(reservation.ok());
  EXPECT_EQ(reservation.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_THAT(reservation.error().text(), HasSubstr("the machine has 10K left"));
  EXPECT_EQ(store.usage().reserved, 0u);
}

TEST(SlabStore, AbsurdSums_RefusedWithoutOverflow) {
  SlabStore store({1 << 20, {}});
  for (const std::uint64_t slabs : {~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    const auto reservation = store.reserve({.slabs = slabs, .staging = std::uint64_t{1} << 63, .scratch = 5}, kGoOn);
    ASSERT_FALSE(reservation.ok());
    EXPECT_EQ(reservation.error().code(), ErrorCode::kOutOfMemory);
  }
}

TEST(SlabStore, ReleasedReservation_BudgetIsFreeAgain) {
  SlabStore store({64 << 10, {}});
  for (int i = 0; i < 4; ++i) {
    auto reservation = reserve(store, 64 << 10);
    ASSERT_TRUE(reservation);
    EXPECT_EQ(store.usage().reserved, std::uint64_t{64} << 10);
  }
  EXPECT_EQ(store.usage().reserved, 0u);
}

TEST(SlabStore, WrittenInPieces_ReadBackByPart) {
  SlabStore store({64 << 10, {}});
  auto reservation = reserve(store, 64 << 10);
  auto slab = reservation->allocate(id_of(1), kSizes);
  ASSERT_TRUE(slab.ok());
  std::vector<std::byte> bytes(kSizes.file_bytes());
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  for (std::size_t at = 0; at < bytes.size(); at += 333)
    ASSERT_TRUE((*slab)->write(at, std::span(bytes).subspan(at, std::min<std::size_t>(333, bytes.size() - at))).ok());
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.begin() + 1000, (*slab)->gate()));
  EXPECT_TRUE(std::equal(bytes.begin() + 1000, bytes.begin() + 2000, (*slab)->up()));
  EXPECT_TRUE(std::equal(bytes.begin() + 2000, bytes.end(), (*slab)->down()));
  for (const std::byte* part : {(*slab)->gate(), (*slab)->up(), (*slab)->down()})
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(part) % kPartAlignment, 0u);
}

TEST(SlabStore, EqualIds_AreOneSlabInMemoryAndCountInBothReservations) {
  SlabStore store({64 << 10, {}});
  auto a = reserve(store, 4 * kPageBytes), b = reserve(store, 4 * kPageBytes);
  const SlabRef in_a = put(*a, 1, std::byte{1});
  auto in_b = find(*b, id_of(1), kSizes);
  ASSERT_TRUE(in_b.ok());
  ASSERT_TRUE(*in_b);
  EXPECT_EQ(in_a->gate(), (*in_b)->gate());
  EXPECT_EQ(store.usage().used, 2 * kPageBytes);
  EXPECT_EQ(a->free_slab_bytes(), 2 * kPageBytes);
  EXPECT_EQ(b->free_slab_bytes(), 2 * kPageBytes);
}

TEST(SlabStore, OwnerGone_SharerKeepsTheSlab) {
  SlabStore store({64 << 10, {}});
  auto b = reserve(store, 4 * kPageBytes);
  SlabRef in_b;
  {
    auto a = reserve(store, 4 * kPageBytes);
    const SlabRef in_a = put(*a, 1, std::byte{42});
    in_b = *find(*b, id_of(1), kSizes);
  }
  store.reclaim();
  EXPECT_EQ(store.usage().reserved, 4 * kPageBytes);
  EXPECT_EQ(in_b->down()[2999], std::byte{42});
  in_b.reset();
  EXPECT_EQ(store.usage().used, 0u);
  EXPECT_FALSE(*find(*b, id_of(1), kSizes)) << "a freed slab must not be found";
}

TEST(SlabStore, ReservationReleased_MemoryStaysUntilLastSlabGoes) {
  SlabStore store({64 << 10, {}});
  auto a = reserve(store, 4 * kPageBytes);
  SlabRef pinned = put(*a, 1, std::byte{9});  // as an executing batch does
  a.reset();
  EXPECT_EQ(store.usage().reserved, 4 * kPageBytes);
  EXPECT_EQ(pinned->gate()[0], std::byte{9});
  pinned.reset();
  EXPECT_EQ(store.usage().reserved, 0u);
}

TEST(SlabStore, MoreThanReserved_RefusedWithBoth) {
  SlabStore store({64 << 10, {}});
  auto a = reserve(store, 3 * kPageBytes);
  const SlabRef first = put(*a, 1, std::byte{1});
  const auto second = a->allocate(id_of(2), kSizes);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_THAT(second.error().text(), HasSubstr("8192 bytes does not fit into the 4096"));
}

TEST(SlabStore, HeldTwice_ChargedOnce) {
  SlabStore store({64 << 10, {}});
  auto a = reserve(store, 2 * kPageBytes);
  const SlabRef first = put(*a, 1, std::byte{1});
  const auto again = find(*a, id_of(1), kSizes);  // a second epoch, though nothing is left of the reservation
  ASSERT_TRUE(again.ok()) << again.error().text();
}

TEST(SlabStore, FindAll_CountsWhatIsNewHere_AndHoldsNothingWhenItDoesNotFit) {
  SlabStore store({256 << 10, {}});
  auto a = reserve(store, 8 * kPageBytes), b = reserve(store, 6 * kPageBytes);
  const SlabRef first = put(*a, 1, std::byte{1}), second = put(*a, 2, std::byte{2});
  const std::array ids{id_of(1), id_of(1), id_of(2), id_of(3)};
  const std::array keys{Reservation::Key{ids[0], kSizes}, Reservation::Key{ids[1], kSizes},
                        Reservation::Key{ids[2], kSizes}, Reservation::Key{ids[3], kSizes}};
  EXPECT_EQ(a->find_all(keys)->n_new, 1u);
  const auto in_b = b->find_all(keys);  // equal ones are one slab; the missing one needs room as well
  ASSERT_TRUE(in_b.ok()) << in_b.error().text();
  EXPECT_EQ(in_b->n_new, 3u);
  EXPECT_EQ(in_b->slabs[0]->gate(), in_b->slabs[1]->gate());
  EXPECT_FALSE(in_b->slabs[3]);
  EXPECT_EQ(b->free_slab_bytes(), 2 * kPageBytes);

  auto c = reserve(store, 5 * kPageBytes);
  const auto refused = c->find_all(keys);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_THAT(refused.error().text(), HasSubstr("3 new slabs of 24576 bytes, 20480 are left"));
  EXPECT_EQ(c->free_slab_bytes(), 5 * kPageBytes);
}

// No two free pages are neighbours, and the slab has two.
TEST(SlabStore, FreePagesScattered_StillMakeASlab) {
  SlabStore store({64 << 10, {}});
  auto a = reserve(store, 8 * kPageBytes);
  constexpr SlabSizes kPage{1, 1, 1};
  std::vector<SlabRef> pages;
  for (int n = 0; n < 8; ++n) pages.push_back(publish(*a->allocate(id_of(n), kPage)));
  for (int n = 0; n < 8; n += 2) pages[static_cast<std::size_t>(n)].reset();
  const SlabRef slab = put(*a, 9, std::byte{9});
  EXPECT_EQ(slab->down()[kSizes.down - 1], std::byte{9});
  EXPECT_EQ(store.usage().used, 6 * kPageBytes);
  EXPECT_EQ(a->free_slab_bytes(), 2 * kPageBytes);
}

TEST(SlabStore, PromisedToOthersAndNotTouched_IsNotThere) {
  SlabStore store({1 << 20, [] { return Result<std::uint64_t>(std::uint64_t{100} << 10); }});
  const auto first = store.reserve({.slabs = 8 << 10, .staging = 60 << 10, .scratch = 0}, kGoOn);
  ASSERT_TRUE(first.ok());
  const auto second = store.reserve({.slabs = 48 << 10, .staging = 0, .scratch = 0}, kGoOn);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().text(), HasSubstr("the machine has 40K left"));
}

TEST(SlabStore, NobodyWaits_GivenUpAndNothingTaken) {
  SlabStore store({1 << 20, {}});
  const auto given_up = store.reserve({.slabs = 8 << 10, .staging = 0, .scratch = 0}, [] { return false; });
  ASSERT_FALSE(given_up.ok());
  EXPECT_EQ(given_up.error().code(), ErrorCode::kPeerGone);
  EXPECT_EQ(store.usage().reserved, 0u);
}

// The first is stuck while it asks the machine; the second gives up in the queue.
TEST(SlabStore, NobodyWaitsInTheQueue_GivenUp) {
  SlabStore* inner = nullptr;
  std::optional<Error> queued;
  SlabStore store({1 << 20, [&] {
                     if (!queued) queued = inner->reserve({4096, 0, 0}, [] { return false; }).error();
                     return Result<std::uint64_t>(std::uint64_t{1} << 30);
                   }});
  inner = &store;
  EXPECT_TRUE(store.reserve({4096, 0, 0}, kGoOn).ok());
  ASSERT_TRUE(queued);
  EXPECT_THAT(queued->text(), HasSubstr("while others reserved"));
}

TEST(SlabStore, PublishedTwice_BothGetTheFirst) {
  SlabStore store({64 << 10, {}});
  auto a = reserve(store, 4 * kPageBytes), b = reserve(store, 4 * kPageBytes);
  const SlabRef first = put(*a, 1, std::byte{1});
  const SlabRef second = put(*b, 1, std::byte{1});
  EXPECT_EQ(first->gate(), second->gate());
  EXPECT_EQ(b->free_slab_bytes(), 2 * kPageBytes);
}

TEST(SlabStore, OneIdUnderOtherSizes_IsNotFoundAndNotShared) {
  SlabStore store({128 << 10, {}});
  auto a = reserve(store, 8 * kPageBytes), b = reserve(store, 8 * kPageBytes);
  const SlabRef small = put(*a, 1, std::byte{1});
  SlabSizes larger = kSizes, other_types = kSizes;
  larger.gate = 10'000;
  other_types.form[2] = 8;
  for (const SlabSizes& sizes : {larger, other_types}) {
    for (Reservation* reservation : {a.get(), b.get()}) {
      const auto found = find(*reservation, id_of(1), sizes);
      ASSERT_TRUE(found.ok());
      EXPECT_FALSE(*found);
    }
    auto fresh = b->allocate(id_of(1), sizes);
    ASSERT_TRUE(fresh.ok());
    const SlabRef published = publish(std::move(*fresh));
    EXPECT_EQ(published->sizes(), sizes);
    EXPECT_EQ((*find(*b, id_of(1), kSizes))->gate(), small->gate()) << "the first is still found";
  }
}

TEST(SlabStore, UnpublishedSlabDropped_LeavesNothing) {
  SlabStore store({64 << 10, {}});
  auto a = reserve(store, 4 * kPageBytes);
  { const auto slab = a->allocate(id_of(1), kSizes); }
  EXPECT_EQ(store.usage().used, 0u);
  EXPECT_EQ(a->free_slab_bytes(), 4 * kPageBytes);
  EXPECT_FALSE(*find(*a, id_of(1), kSizes));
}

TEST(SlabStore, ManyThreads_ShareAndFree) {
  SlabStore store({1 << 20, {}});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&store] {
      for (int round = 0; round < 50; ++round) {
        auto mine = store.reserve({8 * kPageBytes, 0, 0}, kGoOn);
        ASSERT_TRUE(mine.ok());
        for (int n = 0; n < 4; ++n) {
          auto found = find(**mine, id_of(n), kSizes);
          ASSERT_TRUE(found.ok());
          const SlabRef slab = *found ? *found : put(**mine, n, static_cast<std::byte>(n));
          ASSERT_EQ(slab->gate()[0], static_cast<std::byte>(n));
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store.usage().reserved, 0u);
  EXPECT_EQ(store.usage().used, 0u);
}

// ---- a reservation that grows and shrinks

TEST(SlabStore, ReservationMadeLarger_TakesMoreSlabsOfTheBudget) {
  SlabStore store({10 * kPageBytes, {}});
  const auto reservation = store.reserve({2 * kPageBytes, kPageBytes, kPageBytes}, kGoOn);
  ASSERT_TRUE(reservation.ok());
  const SlabRef first = put(**reservation, 1, std::byte{1});
  EXPECT_FALSE((*reservation)->allocate(id_of(2), kSizes).ok());
  const auto larger = (*reservation)->resize(3 * kPageBytes + 1, kGoOn);
  ASSERT_TRUE(larger.ok()) << larger.error().text();
  EXPECT_EQ(*larger, 4 * kPageBytes);
  EXPECT_EQ(store.usage().reserved, 6 * kPageBytes);
  EXPECT_EQ((*reservation)->total_bytes(), 6 * kPageBytes);
  const SlabRef second = put(**reservation, 2, std::byte{2});
  EXPECT_EQ(*first->gate(), std::byte{1}) << "what was there stays where it is";
}

TEST(SlabStore, ReservationMadeLargerThanTheBudget_RefusedAndNothingChanged) {
  SlabStore store({8 * kPageBytes, {}});
  const auto reservation = reserve(store, 4 * kPageBytes);
  const auto other = reserve(store, 2 * kPageBytes);
  const auto refused = reservation->resize(7 * kPageBytes, kGoOn);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_EQ(store.usage().reserved, 6 * kPageBytes);
  EXPECT_EQ(reservation->slab_bytes(), 4 * kPageBytes);
  EXPECT_FALSE(reservation->resize(~std::uint64_t{0}, kGoOn).ok());
  EXPECT_FALSE(reservation->resize(5 * kPageBytes, [] { return false; }).ok()) << "nobody waits for it";
  EXPECT_EQ(store.usage().reserved, 6 * kPageBytes);
}

TEST(SlabStore, ReservationMadeSmaller_GivesBackWhatNoSlabLiesIn) {
  SlabStore store({8 * kPageBytes, {}});
  const auto reservation = reserve(store, 8 * kPageBytes);
  SlabRef first = put(*reservation, 1, std::byte{1});
  const SlabRef second = put(*reservation, 2, std::byte{2});
  EXPECT_EQ(*reservation->resize(2 * kPageBytes, kGoOn), 4 * kPageBytes) << "two slabs stay";
  first.reset();
  EXPECT_EQ(*reservation->resize(2 * kPageBytes, kGoOn), 2 * kPageBytes);
  EXPECT_EQ(store.usage().reserved, 2 * kPageBytes);
  store.reclaim();
  EXPECT_EQ(*second->gate(), std::byte{2});
  EXPECT_NE(reserve(store, 6 * kPageBytes), nullptr) << "for somebody else";
}

}  // namespace
}  // namespace terrace::arena
