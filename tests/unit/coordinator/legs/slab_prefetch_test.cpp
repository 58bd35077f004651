#include "coordinator/legs/slab_prefetch.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>

#include "coordinator/legs/file_slabs.h"
#include "tests/unit/common/temp_dir.h"
#include "tests/unit/coordinator/legs/expert_file.h"

namespace terrace::legs {
namespace slab_prefetch_test {

constexpr std::uint32_t kLayers = 2;
constexpr std::uint16_t kExperts = 2;
constexpr std::uint64_t kSide = 256;
constexpr std::uint64_t kSlabBytes = 3 * kSide * kSide * sizeof(float);
constexpr std::uint64_t kAmple = std::uint64_t{1} << 40;
constexpr std::chrono::seconds kPatience{60};  // only a hang reaches it
const std::vector<std::string> kNames = {"host", "box1:9000"};

// The upper half of each layer is the node's, or the host's.
OwnerTable table(bool node_is_lost, std::uint64_t epoch) {
  std::vector<std::uint16_t> owners(std::size_t{kLayers} * kExperts, 0);
  for (std::size_t i = 0; i < owners.size(); ++i) owners[i] = !node_is_lost && i % kExperts >= kExperts / 2 ? 1 : 0;
  return {epoch, kNames, kLayers, kExperts, std::move(owners)};
}

// With two nodes: who owns each layer's first and second expert.
OwnerTable owners(std::uint16_t first, std::uint16_t second) {
  return {1, {"host", "box1:9000", "box2:9000"}, kLayers, kExperts, {first, second, first, second}};
}

const OwnerTable kPlanned = table(false, 1), kLost = table(true, 2);

class Prefetch : public testing::Test {
 protected:
  void SetUp() override {
    write_model(dir_ / "model.gguf", false, TensorType::kF32);
    auto opened = gguf::File::open(dir_ / "model.gguf");
    ASSERT_TRUE(opened.ok()) << opened.error().text();
    file_.emplace(std::move(*opened));
    experts_ = *manifest::find_experts(*file_);
    slabs_.emplace(*file_, experts_);
    for (const manifest::LayerExperts& layer : experts_.layers) {
      kernels::ExpertKernels kernels;
      kernels.shape = expert_shape(layer.shape);
      kernels_.push_back(kernels);
    }
  }
  std::unique_ptr<SlabPrefetch> make(std::uint64_t room) {
    return SlabPrefetch::start(slabs_->lookup(), kernels_, kExperts, room).value();
  }
  // Page faults of this thread while it reads a slab; not those of what a sanitizer knows of it.
  [[gnu::no_sanitize("address,thread,undefined")]] long faults(std::uint32_t layer, std::uint16_t expert) {
    const auto count = [] {
      rusage usage{};
      ::getrusage(RUSAGE_THREAD, &usage);
      return usage.ru_minflt + usage.ru_majflt;
    };
    const kernels::SlabView slab = slabs_->view(layer, expert);
    const long before = count();
    for (const std::byte* part : {slab.gate, slab.up, slab.down})
      for (std::uint64_t at = 0; at < kSlabBytes / 3; at += 4096)
        (void)*const_cast<const volatile std::byte*>(part + at);
    return count() - before;
  }
  static bool until(const SlabPrefetch& prefetch, std::uint64_t bytes) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (prefetch.bytes_read() < bytes && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return prefetch.bytes_read() >= bytes;
  }

  static constexpr std::uint64_t kLostBytes = kLayers * kExperts / 2 * kSlabBytes;
  terrace::test::TempDir dir_;
  std::optional<gguf::File> file_;
  manifest::ModelExperts experts_;
  std::optional<FileSlabs> slabs_;
  std::vector<kernels::ExpertKernels> kernels_;
};

TEST_F(Prefetch, LostExperts_AreMappedBeforeTheyAreUsed) {
  const auto prefetch = make(kAmple);
  EXPECT_GT(faults(0, kExperts - 1), 0) << "or what follows shows nothing";
  prefetch->want(kPlanned, kLost, kLost);
  ASSERT_TRUE(until(*prefetch, kLostBytes));
  for (std::uint32_t layer = 0; layer < kLayers; ++layer)
    for (std::uint16_t expert = kExperts / 2; expert < kExperts; ++expert)
      EXPECT_EQ(faults(layer, expert), 0) << layer << ", " << expert;
  EXPECT_EQ(prefetch->bytes_read(), kLostBytes) << "and no other experts";
}

TEST_F(Prefetch, NodeBack_NothingIsWanted) {
  const auto prefetch = make(kAmple);
  prefetch->want(kPlanned, kPlanned, kPlanned);
  prefetch->want(kPlanned, kLost, kLost);  // read behind it, so that nothing of the first is under way
  ASSERT_TRUE(until(*prefetch, kLostBytes));
  EXPECT_EQ(prefetch->bytes_read(), kLostBytes);
}

TEST_F(Prefetch, MoreThanTheRoom_IsNotRead) {
  const auto prefetch = make(kLostBytes - 1);
  prefetch->want(kPlanned, kLost, kLost);
  const auto other = make(kLostBytes);
  other->want(kPlanned, kLost, kLost);
  ASSERT_TRUE(until(*other, kLostBytes));
  EXPECT_EQ(prefetch->bytes_read(), 0u);
}

TEST_F(Prefetch, Suspect_IsReadBeforeItIsLost_AndNotAgainThen) {
  const auto prefetch = make(kAmple);
  EXPECT_FALSE(prefetch->in_memory(0, kExperts - 1));
  prefetch->want(kPlanned, kPlanned, kLost);
  ASSERT_TRUE(until(*prefetch, kLostBytes));
  prefetch->want(kPlanned, kLost, kLost);
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_TRUE(prefetch->in_memory(layer, kExperts - 1)) << layer;
    EXPECT_FALSE(prefetch->in_memory(layer, 0)) << layer << ": the host's own";
  }
  EXPECT_EQ(prefetch->bytes_read(), kLostBytes);
  EXPECT_EQ(prefetch->bytes_dropped(), 0u);
}

TEST_F(Prefetch, SuspectThatAnswers_IsDropped_AndReadAgainNextTime) {
  const auto prefetch = make(kAmple);
  prefetch->want(kPlanned, kPlanned, kLost);
  ASSERT_TRUE(until(*prefetch, kLostBytes));
  prefetch->want(kPlanned, kPlanned, kPlanned);
  EXPECT_EQ(prefetch->bytes_dropped(), kLostBytes);
  EXPECT_FALSE(prefetch->in_memory(0, kExperts - 1));
  prefetch->want(kPlanned, kPlanned, kLost);
  EXPECT_TRUE(until(*prefetch, 2 * kLostBytes));
}

TEST_F(Prefetch, SuspectBeyondTheRoom_TakesItFromNoLostOne) {
  // One of two nodes is lost, the other suspect.
  const auto prefetch = make(kLayers * kSlabBytes);
  prefetch->want(owners(1, 2), owners(0, 2), owners(0, 0));
  ASSERT_TRUE(until(*prefetch, kLayers * kSlabBytes));
  EXPECT_TRUE(prefetch->in_memory(0, 0));
  EXPECT_FALSE(prefetch->in_memory(0, 1));
}

// There is room for one of two suspects.
TEST_F(Prefetch, SecondSuspect_TakesNothingFromTheFirst) {
  for (const std::array<std::uint16_t, 2>& first : {std::array<std::uint16_t, 2>{0, 2}, {1, 0}}) {
    const auto prefetch = make(kLayers * kSlabBytes);
    prefetch->want(owners(1, 2), owners(1, 2), owners(first[0], first[1]));
    ASSERT_TRUE(until(*prefetch, kLayers * kSlabBytes));
    prefetch->want(owners(1, 2), owners(1, 2), owners(0, 0));
    EXPECT_EQ(prefetch->in_memory(0, 0), first[0] == 0);
    EXPECT_EQ(prefetch->in_memory(0, 1), first[1] == 0);
    EXPECT_EQ(prefetch->bytes_dropped(), 0u);
  }
}

TEST_F(Prefetch, TwoSuspectsAtOnce_WhatThereIsRoomFor) {
  const auto prefetch = make(kLayers * kSlabBytes);
  prefetch->want(owners(1, 2), owners(1, 2), owners(0, 0));
  ASSERT_TRUE(until(*prefetch, kLayers * kSlabBytes));
  EXPECT_TRUE(prefetch->in_memory(0, 0));
  EXPECT_FALSE(prefetch->in_memory(0, 1));
}

TEST_F(Prefetch, EndsWhileItReads) { make(kAmple)->want(kPlanned, kLost, kLost); }

}  // namespace slab_prefetch_test
}  // namespace terrace::legs
