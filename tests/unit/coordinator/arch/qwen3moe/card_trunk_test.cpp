// A trunk whose steps a card computes, here one that is none: the same bits as on the CPU, whole or layer by layer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/arch/model_under_test.h"
#include "tests/unit/kernels/card/fake_card.h"

namespace terrace {
namespace {

using test::ModelUnderTest;
using test::Sequence;
using ::testing::HasSubstr;

constexpr std::uint64_t kCardBytes = std::uint64_t{1} << 20;
constexpr std::uint32_t kContext = 96;
const std::vector<std::int32_t> kPrompt = {10, 20, 30, 40, 50, 60, 70, 80, 90, 11, 12, 13, 14, 15, 16, 17, 18, 19, 21,
                                           22, 23, 24, 25, 26, 27, 28, 29, 31, 32, 33, 34, 35, 36, 37, 38, 39, 41, 42};

class TrunkOnCard : public ::testing::TestWithParam<const char*> {
 protected:
  static arch::TrunkOptions options() {
    arch::TrunkOptions made;
    made.context = kContext;
    made.max_streams = 3;
    made.max_rows = 64;
    return made;
  }
  arch::TrunkOptions on_card(std::uint64_t n_blocks = 12) {
    arch::TrunkOptions made = options();
    made.card = &card_;
    made.on_card = kernels::CardTrunkLimits{made.kv, made.max_rows, made.max_streams, kContext, n_blocks};
    return made;
  }
  static std::filesystem::path path() { return test::tiny_model(GetParam()); }

  Serial serial_;
  test::FakeCard card_{kCardBytes};
};

TEST_P(TrunkOnCard, WholeStepsAndLayers_TokensAndLogitsOfTheCpu) {
  ModelUnderTest here(path(), options(), serial_);
  Sequence expected_sequence(here.trunk());
  const test::Greedy expected = test::greedy(expected_sequence, kPrompt, 64, 12);
  for (const bool whole : {true, false}) {
    ModelUnderTest there(path(), on_card(), serial_);
    if (whole) there.tap().on_card = there.all_slabs();
    for (const std::size_t chunk : {64, 7, 1}) {
      Sequence sequence(there.trunk());
      const test::Greedy got = test::greedy(sequence, kPrompt, chunk, 12);
      EXPECT_EQ(got.tokens, expected.tokens) << (whole ? "whole" : "by layers") << ", chunks of " << chunk;
      EXPECT_EQ(got.hashes, expected.hashes) << (whole ? "whole" : "by layers") << ", chunks of " << chunk;
    }
    EXPECT_EQ(card_.trunk->whole_steps > 0, whole);
    EXPECT_EQ(there.tap().rows_on_card > 0, whole);
  }
}

// The card goes through the step by itself and takes the other legs' sums as they come; steps of more rows than it
// starts go by layers.
TEST_P(TrunkOnCard, BesideOtherLegs_TokensAndLogitsOfTheCpu) {
  ModelUnderTest here(path(), options(), serial_);
  Sequence expected_sequence(here.trunk());
  const test::Greedy expected = test::greedy(expected_sequence, kPrompt, 64, 12);
  for (const std::size_t keep : {0, 1, 2, 3}) {  // of three experts, that many are the card's
    ModelUnderTest there(path(), on_card(), serial_);
    if (keep > 0) there.tap().part = there.all_slabs();
    for (std::size_t i = 0; i < there.tap().part.size(); ++i)
      if (i % 3 >= keep) there.tap().part[i] = {};
    for (const std::size_t chunk : {64, 7, 1}) {
      Sequence sequence(there.trunk());
      const test::Greedy got = test::greedy(sequence, kPrompt, chunk, 12);
      EXPECT_EQ(got.tokens, expected.tokens) << keep << " of three, chunks of " << chunk;
      EXPECT_EQ(got.hashes, expected.hashes) << keep << " of three, chunks of " << chunk;
    }
    EXPECT_GT(card_.trunk->started_steps, 0u);
    EXPECT_EQ(card_.trunk->given_up, 0u);
  }
}

// A leg on the card launches kernels there: the card must not be in a step that waits for them.
TEST_P(TrunkOnCard, WhereTheCardIsALegToo_StepsGoByLayers) {
  ModelUnderTest here(path(), options(), serial_), there(path(), on_card(), serial_);
  there.tap().card_is_a_leg = true;
  Sequence expected(here.trunk()), sequence(there.trunk());
  EXPECT_EQ(test::greedy(sequence, kPrompt, 7, 12).hashes, test::greedy(expected, kPrompt, 7, 12).hashes);
  EXPECT_EQ(card_.trunk->started_steps, 0u);
  there.tap().card_is_a_leg = false;  // the next epoch
  Sequence(there.trunk()).feed(kPrompt, 7);
  EXPECT_GT(card_.trunk->started_steps, 0u);
}

// Whatever layer's legs fail: the step ends with their error, the card's wait is ended, and the next step is right.
TEST_P(TrunkOnCard, ALegThatFailsBesideTheCard_EndsTheStepAndTheCardsWait) {
  ModelUnderTest model(path(), on_card(), serial_);
  model.tap().part = model.all_slabs();
  model.tap().part[0] = {};
  arch::Trunk& trunk = model.trunk();
  const arch::StreamId stream = trunk.open_stream().value();
  const arch::StepRow row{stream, 0, 1, true};
  ModelUnderTest here(path(), options(), serial_);
  const arch::StepRow same{here.trunk().open_stream().value(), 0, 1, true};
  const std::string expected = test::xxh3(test::value_of(here.trunk().step(std::span(&same, 1))).logits);
  for (std::uint32_t layer = 0; layer < model.info().n_layers; ++layer) {
    model.tap().fail_submit(layer + 1);
    const auto stepped = trunk.step(std::span(&row, 1));
    ASSERT_FALSE(stepped.ok()) << "layer " << layer;
    EXPECT_EQ(stepped.error().code(), ErrorCode::kPeerGone);
    EXPECT_EQ(card_.trunk->given_up, layer + 1);
    EXPECT_EQ(trunk.length(stream), 0u);
    EXPECT_TRUE(model.tap().abandon().ok());
  }
  EXPECT_EQ(test::xxh3(test::value_of(trunk.step(std::span(&row, 1))).logits), expected);
}

TEST_P(TrunkOnCard, Traces_EqualTheCpus) {
  const auto traces = [&](arch::Trunk& trunk) {
    std::vector<std::tuple<std::vector<std::uint16_t>, std::string, std::vector<std::int64_t>>> all;
    trunk.set_trace([&](const arch::LayerTrace& t) {
      all.emplace_back(std::vector(t.experts.begin(), t.experts.end()), test::xxh3(t.x) + test::xxh3(t.weights),
                       std::vector(t.sums.begin(), t.sums.end()));
    });
    Sequence(trunk).feed(kPrompt, 64);
    trunk.set_trace(nullptr);
    return all;
  };
  ModelUnderTest here(path(), options(), serial_), there(path(), on_card(), serial_);
  there.tap().on_card = there.all_slabs();
  EXPECT_EQ(traces(there.trunk()), traces(here.trunk()));
  EXPECT_EQ(card_.trunk->whole_steps, 0u) << "layers come back to be traced";
}

TEST_P(TrunkOnCard, LargestLogits_AreToldForEachRowThatWantsLogits) {
  ModelUnderTest model(path(), on_card(), serial_);
  model.tap().on_card = model.all_slabs();
  arch::Trunk& trunk = model.trunk();
  const arch::StreamId stream = trunk.open_stream().value();
  std::vector<arch::StepRow> rows;
  for (std::uint32_t i = 0; i < 5; ++i) rows.push_back({stream, i, static_cast<std::int32_t>(7 + i), i % 2 == 0});
  const arch::StepResult result = test::value_of(trunk.step(rows));
  ASSERT_EQ(result.largest.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto logits = result.logits.subspan(i * model.info().vocabulary, model.info().vocabulary);
    EXPECT_EQ(result.largest[i], std::ranges::max_element(logits) - logits.begin());
  }
}

// A forked stream goes on in a copy of the block that both wrote last.
TEST_P(TrunkOnCard, ForkedStreams_GoOnByThemselves) {
  const auto forked = [&](arch::Trunk& trunk) {
    Sequence first(trunk);
    first.feed(kPrompt, 64);
    std::vector<std::string> hashes;
    const arch::StreamId second = trunk.fork_stream(first.id(), 37).value();
    for (std::uint32_t i = 0; i < 3; ++i) {
      const arch::StepRow rows[] = {{first.id(), 38 + i, static_cast<std::int32_t>(5 + i), true},
                                    {second, 37 + i, static_cast<std::int32_t>(90 + i), true}};
      const auto logits = test::value_of(trunk.step(rows)).logits;
      hashes.push_back(test::xxh3(logits));
    }
    trunk.close_stream(second);
    return hashes;
  };
  ModelUnderTest here(path(), options(), serial_), there(path(), on_card(), serial_);
  there.tap().on_card = there.all_slabs();
  EXPECT_EQ(forked(there.trunk()), forked(here.trunk()));
  EXPECT_GT(card_.trunk->copied_blocks, 0u);
}

TEST_P(TrunkOnCard, BlocksThatRunOut_LeaveTheStreamAsItWas) {
  ModelUnderTest model(path(), on_card(2), serial_);
  arch::Trunk& trunk = model.trunk();
  const arch::StreamId stream = trunk.open_stream().value();
  std::vector<arch::StepRow> rows;
  for (std::uint32_t i = 0; i < 64; ++i) rows.push_back({stream, i, 3, false});
  ASSERT_TRUE(trunk.step(rows).ok());
  const arch::StepRow next{stream, 64, 3, true};
  const auto full = trunk.step(std::span(&next, 1));
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_EQ(trunk.length(stream), 64u);
  trunk.close_stream(stream);
  const arch::StepRow again{trunk.open_stream().value(), 0, 3, true};
  EXPECT_TRUE(trunk.step(std::span(&again, 1)).ok()) << "closed streams give their blocks back";
}

TEST_P(TrunkOnCard, ACardThatFails_EndsTheStepWithItsReason) {
  ModelUnderTest model(path(), on_card(), serial_);
  card_.trunk->broken = true;
  const arch::StreamId stream = model.trunk().open_stream().value();
  const arch::StepRow row{stream, 0, 1, true};
  const auto stepped = model.trunk().step(std::span(&row, 1));
  ASSERT_FALSE(stepped.ok());
  EXPECT_THAT(stepped.error().text(), HasSubstr("fell off the bus"));
  EXPECT_EQ(model.trunk().length(stream), 0u);
}

INSTANTIATE_TEST_SUITE_P(Models, TrunkOnCard, ::testing::Values("tiny-q8_0", "tiny-mix"),
                         [](const auto& test) { return test.param[5] == 'q' ? "Q8_0" : "Mix"; });

// Of a router that is not finite for one expert: the row that met it fails, by name; what shares its step does not.
TEST(TrunkOnCardFailures, ARowThatFails_EndsItsStreamAndNamesTheLayer) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<std::byte> bytes(sizeof nan);
  std::memcpy(bytes.data(), &nan, sizeof nan);
  const auto bad = test::copy_with(test::tiny_model("tiny-mix"), "blk.1.ffn_gate_inp.weight", 40, bytes);
  Serial serial;
  const auto text = [&](const arch::TrunkOptions& options, bool whole) {
    ModelUnderTest model(bad, options, serial);
    if (whole) model.tap().on_card = model.all_slabs();
    const arch::StepRow row{model.trunk().open_stream().value(), 0, 1, true};
    const auto stepped = test::value_of(model.trunk().step(std::span(&row, 1)));
    return stepped.failed.empty() ? std::string("no failure") : stepped.failed[0].error.text();
  };
  arch::TrunkOptions options;
  options.context = kContext;
  const std::string expected = text(options, false);
  EXPECT_THAT(expected, HasSubstr("router logits of layer 1"));
  test::FakeCard card(kCardBytes);
  options.card = &card;
  options.on_card = kernels::CardTrunkLimits{options.kv, options.max_rows, options.max_streams, kContext, 4};
  EXPECT_EQ(text(options, false), expected);
  EXPECT_EQ(text(options, true), expected);
}

}  // namespace
}  // namespace terrace
