#include <gmock/gmock.h>

#include <cstring>

#include "common/base/units.h"
#include "kernels/cuda/device/card.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "tests/gpu/card_test.h"

namespace terrace::kernels::cuda {
namespace {

using testing::HasSubstr;

class CardDevice : public test::CardTest {};

TEST_F(CardDevice, ABudgetLargerThanTheCard_IsRefusedWithTheNumbers) {
  const std::uint64_t budget = std::uint64_t{1} << 50;
  const auto opened = Card::open(0, budget);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_THAT(opened.error().text(), HasSubstr(format_size(budget)));
  EXPECT_THAT(opened.error().text(), HasSubstr(card().info().name));
}

TEST_F(CardDevice, ACardThatIsNotThere_IsNamed) {
  const auto opened = Card::open(99, 1 << 20);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(opened.error().text(), HasSubstr("card 99"));
}

TEST_F(CardDevice, TakingMoreThanIsLeft_NamesWhatAndChangesNothing) {
  const std::uint64_t used = card().used_bytes();
  const auto taken = card().take(card().budget_bytes() + 1, "the KV cache");
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_THAT(taken.error().text(), HasSubstr("the KV cache"));
  EXPECT_EQ(card().used_bytes(), used);
}

TEST_F(CardDevice, ALaunchThatCannotBe_NamesTheSizes) {
  const Status status = rms_norm(stream(), {nullptr, 0, nullptr, nullptr, 0, 1, kMaxNormValues + 1, 0});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(status.error().text(), HasSubstr(std::to_string(kMaxNormValues + 1)));
}

TEST_F(CardDevice, PinnedMemory_TravelsThereAndBack) {
  auto out = card().make_pinned(1 << 16), back = card().make_pinned(1 << 16);
  ASSERT_OK(out);
  ASSERT_OK(back);
  for (std::size_t i = 0; i < out->size(); ++i) out->data()[i] = static_cast<std::byte>(i * 7);
  std::byte* on_card = room<std::byte>(out->size());
  ASSERT_OK(stream().copy_to_card(on_card, out->data(), out->size()));
  ASSERT_OK(stream().copy_to_host(back->data(), on_card, back->size()));
  ASSERT_OK(stream().synchronize());
  EXPECT_EQ(std::memcmp(out->data(), back->data(), out->size()), 0);
}

TEST_F(CardDevice, AnEvent_OrdersTwoStreams) {
  auto other = card().make_stream();
  auto event = card().make_event();
  ASSERT_OK(other);
  ASSERT_OK(event);
  constexpr std::size_t kValues = std::size_t{1} << 24;
  std::vector<float> ones(kValues, 1.0f);
  float* x = upload(ones);
  float* y = upload(ones);
  for (int i = 0; i < 20; ++i) ASSERT_OK(add(stream(), x, y, kValues));
  ASSERT_OK(stream().record(*event));
  ASSERT_OK(other->wait(*event));
  float last = 0;
  ASSERT_OK(other->copy_to_host(&last, x + kValues - 1, sizeof last));
  ASSERT_OK(other->synchronize());
  EXPECT_EQ(last, 21.0f);
}

TEST_F(CardDevice, AGraphsReplay_EqualsEagerCalls) {
  const std::vector<float> ones(1000, 1.0f);
  float* x = upload(ones);
  float* y = upload(ones);
  auto graph = Graph::capture(stream(), [&]() -> Status {
    TERRACE_RETURN_IF_ERROR(add(stream(), x, y, 1000));
    return add(stream(), x, y, 1000);
  });
  ASSERT_OK(graph);
  for (int i = 0; i < 3; ++i) ASSERT_OK(graph->launch(stream()));
  EXPECT_EQ(download(x, 1000), std::vector<float>(1000, 7.0f));
}

TEST_F(CardDevice, ACaptureThatFails_LeavesTheStreamUsable) {
  const auto graph = Graph::capture(stream(), [&]() -> Status { return Error(ErrorCode::kBusy, "not now"); });
  ASSERT_FALSE(graph.ok());
  EXPECT_EQ(graph.error().text(), "not now");
  const std::vector<float> ones(10, 1.0f);
  EXPECT_EQ(download(upload(ones), 10), ones);
}

// The driver refuses the call, and then to end the capture: neither error is the next launch's.
TEST_F(CardDevice, ACallThatNoCaptureTakes_IsRefusedAndTheNextLaunchIsNot) {
  const std::vector<float> ones(1000, 1.0f);
  float* x = upload(ones);
  float* y = upload(ones);
  ASSERT_OK(stream().synchronize());
  const auto graph = Graph::capture(stream(), [&] { return stream().synchronize(); });
  ASSERT_FALSE(graph.ok());
  EXPECT_THAT(graph.error().text(), HasSubstr("waiting for a stream"));
  ASSERT_OK(add(stream(), x, y, 1000));
  EXPECT_EQ(download(x, 1000), std::vector<float>(1000, 2.0f));
}

// Not a card test: what EXPECT_EQUAL_FLOATS says of results that are not there.
TEST(EqualFloats, NoResults_SaysBothLengths) {
  const std::vector<float> none, expected(3, 1.0f);
  const auto equal = test::equal_floats(none, expected);
  EXPECT_FALSE(equal);
  EXPECT_STREQ(equal.message(), "0 values, reference 3");
  EXPECT_FALSE(test::equal_floats(std::vector<float>(3, 2.0f), expected));
  EXPECT_TRUE(test::equal_floats(expected, expected));
}

// Nor this: what a machine without one says.
TEST(CardList, WithoutACard_SaysWhy) {
  const auto cards = list_cards();
  if (cards.ok()) {
    EXPECT_FALSE(cards->empty());
    EXPECT_FALSE(cards->front().name.empty());
  } else {
    EXPECT_EQ(cards.error().code(), ErrorCode::kUnsupported);
    EXPECT_THAT(cards.error().text(), testing::AnyOf(HasSubstr("driver"), HasSubstr("no usable card")));
  }
}

}  // namespace
}  // namespace terrace::kernels::cuda
