// A trunk whose steps a card computes, here one that is none: the same bits as on the CPU, whole or layer by layer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/arch/model_under_test.h"
#include "tests/unit/kernels/card/fake_card.h"

namespace terrace {
namespace card_trunk_test {

using test::ModelUnderTest;
using test::Sequence;
using ::testing::HasSubstr;

constexpr std::uint64_t kCardBytes = std::uint64_t{1} << 20;
constexpr std::uint32_t kContext = 96;
constexpr std::uint32_t kMostParts = 4;
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
    made.on_card = kernels::CardTrunkLimits{made.kv, made.max_rows, made.max_streams, kContext, n_blocks, kMostParts};
    return made;
  }
  // Steps of more rows than the card starts go in parts, however few their rows are.
  arch::TrunkOptions in_parts() {
    arch::TrunkOptions made = on_card();
    made.overlap = arch::Overlap::kOn;
    return made;
  }
  // Of each three experts in a row the card's are the first `keep`.
  static void give_card(ModelUnderTest& model, std::size_t keep) {
    if (keep > 0) model.tap().part = model.all_slabs();
    for (std::size_t i = 0; i < model.tap().part.size(); ++i)
      if (i % 3 >= keep) model.tap().part[i] = {};
  }
  // What a step of the whole prompt calls: "q0 " for a layer that is queued on the card, else as Tap's journal.
  std::string journal_of_prompt(ModelUnderTest& model) {
    card_.trunk->queued = [&](std::uint32_t, std::uint32_t layer) { model.tap().note('q', std::to_string(layer)); };
    model.tap().take_journal();
    Sequence(model.trunk()).feed(kPrompt, 64);
    return model.tap().take_journal();
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
    give_card(there, keep);
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

// A card that takes its kernels' run time ill (CardTrunk::starts()): nothing on it waits for legs, by the same bits.
TEST_P(TrunkOnCard, WhereTheCardStartsNoStep_StepsBesideLegsGoByLayers) {
  ModelUnderTest here(path(), options(), serial_), there(path(), on_card(), serial_);
  card_.trunk->most_started_rows = 0;
  give_card(there, 1);
  Sequence expected(here.trunk()), sequence(there.trunk());
  EXPECT_EQ(test::greedy(sequence, kPrompt, 7, 12), test::greedy(expected, kPrompt, 7, 12));
  EXPECT_EQ(card_.trunk->started_steps, 0u);
}

// Where threads block, somebody may need the CPU on which the step's thread looks for the card's rows.
TEST_P(TrunkOnCard, RowsOfAStartedStep_AreLookedForByThePolicy) {
  for (const Waiting waiting : {Waiting::kBlock, Waiting::kSpinThenPark}) {
    arch::TrunkOptions made = on_card();
    made.waiting = waiting;
    ModelUnderTest model(path(), made, serial_);
    Sequence(model.trunk()).feed(kPrompt, 7);
    EXPECT_GT(card_.trunk->started_steps, 0u);
    EXPECT_EQ(card_.trunk->gave_way > 0, waiting == Waiting::kBlock) << name(waiting);
  }
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

// What is queued on the card runs at some time between the call and the moment when its rows are asked for: the
// earliest and the latest give the same.
TEST_P(TrunkOnCard, PromptsInParts_TokensAndLogitsOfTheCpu) {
  ModelUnderTest here(path(), options(), serial_);
  Sequence expected_sequence(here.trunk());
  const test::Greedy expected = test::greedy(expected_sequence, kPrompt, 64, 4);
  for (const std::size_t keep : {0, 1})
    for (const bool nodes : {false, true})
      for (const bool late : {false, true}) {
        ModelUnderTest there(path(), in_parts(), serial_);
        give_card(there, keep);
        if (nodes) there.tap().compute_elsewhere();
        card_.trunk->as_late_as_possible = late;
        for (const std::size_t chunk : {64, 18}) {
          Sequence sequence(there.trunk());
          EXPECT_EQ(test::greedy(sequence, kPrompt, chunk, 4), expected)
              << keep << " of three, chunks of " << chunk << (nodes ? ", nodes" : "") << (late ? ", late" : "");
        }
        EXPECT_EQ(card_.trunk->given_up, 0u);
      }
}

// Every row's logits, from whichever part.
TEST_P(TrunkOnCard, LogitsOfAllRowsOfAPromptInParts_EqualTheCpus) {
  ModelUnderTest here(path(), options(), serial_), there(path(), in_parts(), serial_);
  there.tap().compute_elsewhere();
  Sequence expected(here.trunk()), sequence(there.trunk());
  EXPECT_EQ(test::xxh3(sequence.feed(kPrompt, 64, true)), test::xxh3(expected.feed(kPrompt, 64, true)));
}

// The second part's layer is queued on the card before the first one's legs are collected, and so on in turn; beside
// nodes there is always one more part with them.
TEST_P(TrunkOnCard, PromptsInParts_TheCardIsAtOnePartWhileLegsAreAtOthers) {
  ModelUnderTest model(path(), in_parts(), serial_);
  ASSERT_EQ(model.info().n_layers, 2u);
  EXPECT_EQ(journal_of_prompt(model), "q0 q0 s0 c0 q1 s0 c0 q1 s1 c1 s1 c1 ");
  model.tap().compute_elsewhere();
  EXPECT_EQ(journal_of_prompt(model), "q0 q0 q0 s0 s0 c0 q1 s0 c0 q1 s1 c0 q1 s1 c1 s1 c1 c1 ");
  EXPECT_GT(model.tap().progressed, 0u) << "bytes move while the card is waited for";
  ModelUnderTest whole(path(), on_card(), serial_);
  EXPECT_EQ(journal_of_prompt(whole), "q0 s0 c0 q1 s1 c1 ") << "too few rows for the rule";
}

// A thread with nothing to do but to wait for the card sleeps, unless its policy lets it look for a moment; while legs
// are at other parts it looks and their bytes move.
TEST_P(TrunkOnCard, RowsOfALayer_AreWaitedForAsleepWhereNothingElseIsOpen) {
  ModelUnderTest here(path(), options(), serial_);
  const std::string expected = test::xxh3(Sequence(here.trunk()).feed(kPrompt, 64));
  for (const Waiting waiting : {Waiting::kBlock, Waiting::kSpinThenPark}) {
    arch::TrunkOptions whole = on_card();
    whole.waiting = waiting;
    ModelUnderTest model(path(), whole, serial_);
    EXPECT_EQ(test::xxh3(Sequence(model.trunk()).feed(kPrompt, 64)), expected);
    EXPECT_TRUE(waiting == Waiting::kSpinThenPark || card_.trunk->waited == model.info().n_layers);
    EXPECT_EQ(model.tap().progressed, 0u);
  }
  ModelUnderTest model(path(), in_parts(), serial_);
  model.tap().compute_elsewhere();
  EXPECT_EQ(test::xxh3(Sequence(model.trunk()).feed(kPrompt, 64)), expected);
  EXPECT_EQ(card_.trunk->waited, 1u) << "the first part's first layer: nobody has anything yet";
}

// A card whose rows take long: a look does not bring them.
TEST_P(TrunkOnCard, RowsThatComeLate_AreWaitedForAsleepUnderEitherPolicy) {
  arch::TrunkOptions whole = on_card();
  whole.waiting = Waiting::kSpinThenPark;
  ModelUnderTest model(path(), whole, serial_);
  card_.trunk->comes_to_who_waits = true;
  Sequence(model.trunk()).feed(kPrompt, 64);
  EXPECT_EQ(card_.trunk->waited, model.info().n_layers);
}

// In whatever turn a leg fails: nothing of either part is left with card or legs, and the next step is right.
TEST_P(TrunkOnCard, ALegThatFailsInOnePart_LeavesBothClean) {
  ModelUnderTest here(path(), options(), serial_);
  const std::string expected = test::xxh3(Sequence(here.trunk()).feed(kPrompt, 64));
  ModelUnderTest model(path(), in_parts(), serial_);
  give_card(model, 1);
  card_.trunk->as_late_as_possible = true;
  const std::size_t n_turns = 2 * model.info().n_layers;
  for (std::uint32_t turn = 0; turn < n_turns; ++turn) {
    Sequence sequence(model.trunk());
    model.tap().fail_submit(turn + 1);
    const auto stepped = model.trunk().step(sequence.rows(kPrompt));
    ASSERT_FALSE(stepped.ok()) << "turn " << turn;
    EXPECT_EQ(stepped.error().code(), ErrorCode::kPeerGone);
    EXPECT_EQ(card_.trunk->given_up, turn + 1);
    EXPECT_THAT(model.tap().take_journal(), testing::EndsWith("x ")) << "turn " << turn;
    EXPECT_EQ(model.trunk().length(sequence.id()), 0u);
    EXPECT_EQ(test::xxh3(sequence.feed(kPrompt, 64)), expected) << "after turn " << turn;
  }
}

// A card that fails with batches under way: they are ended too.
TEST_P(TrunkOnCard, ACardThatFailsBetweenParts_EndsWhatLegsHave) {
  ModelUnderTest model(path(), in_parts(), serial_);
  model.tap().compute_elsewhere();
  std::uint32_t layers_queued = 0;
  card_.trunk->queued = [&](std::uint32_t, std::uint32_t) { card_.trunk->broken = ++layers_queued == 4; };
  card_.trunk->as_late_as_possible = true;
  Sequence sequence(model.trunk());
  const auto stepped = model.trunk().step(sequence.rows(kPrompt));
  ASSERT_FALSE(stepped.ok());
  EXPECT_THAT(stepped.error().text(), HasSubstr("fell off the bus"));
  EXPECT_THAT(model.tap().take_journal(), testing::EndsWith("x "));
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

// A router that is not finite for one expert of layer 1.
std::filesystem::path model_of_bad_router() {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<std::byte> bytes(sizeof nan);
  std::memcpy(bytes.data(), &nan, sizeof nan);
  return test::copy_with(test::tiny_model("tiny-mix"), "blk.1.ffn_gate_inp.weight", 40, bytes);
}

// Of a router that is not finite for one expert: the row that met it fails, by name; what shares its step does not.
TEST(TrunkOnCardFailures, ARowThatFails_EndsItsStreamAndNamesTheLayer) {
  const std::filesystem::path bad = model_of_bad_router();
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

// The rows of both streams fail, each by its own position, whichever part it is in.
TEST(TrunkOnCardFailures, RowsThatFailInParts_AreToldAsByTheCpu) {
  const std::filesystem::path bad = model_of_bad_router();
  Serial serial;
  const auto texts = [&](const arch::TrunkOptions& options) {
    ModelUnderTest model(bad, options, serial);
    Sequence first(model.trunk()), second(model.trunk());
    std::vector<arch::StepRow> rows = first.rows(kPrompt);
    for (const arch::StepRow& row : second.rows(std::span(kPrompt).first(9))) rows.push_back(row);
    std::vector<std::string> all;
    for (const arch::FailedRow& failed : test::value_of(model.trunk().step(rows)).failed)
      all.push_back(std::to_string(failed.row) + ": " + failed.error.text());
    return all;
  };
  arch::TrunkOptions options;
  options.context = kContext;
  options.max_streams = 2;
  const std::vector<std::string> expected = texts(options);
  EXPECT_EQ(expected.size(), kPrompt.size() + 9);
  test::FakeCard card(kCardBytes);
  options.card = &card;
  options.on_card = kernels::CardTrunkLimits{options.kv, options.max_rows, 2, kContext, 8, kMostParts};
  options.overlap = arch::Overlap::kOn;
  EXPECT_EQ(texts(options), expected);
}

// docs/adr/0026, prompts: 128 experts of which a row chooses 8 meet 8 rows each in a part of 128.
TEST(PartsOnCard, TheRule) {
  const auto parts = [](const arch::TrunkOptions& options, std::size_t n_rows, bool nodes) {
    return arch::parts_on_card(options, {.n_rows = n_rows, .n_experts = 128, .top_k = 8, .nodes = nodes});
  };
  arch::TrunkOptions options;
  EXPECT_EQ(parts(options, 255, false), 1u) << "experts would be read twice for 7 rows each";
  EXPECT_EQ(parts(options, 256, false), 2u);
  EXPECT_EQ(parts(options, 4096, false), 2u) << "a third hides nothing where no node waits";
  EXPECT_EQ(parts(options, 255, true), 1u);
  EXPECT_EQ(parts(options, 256, true), 2u);
  EXPECT_EQ(parts(options, 512, true), 3u);
  options.prompt_parts = 4;
  EXPECT_EQ(parts(options, 512, true), 4u) << "a plan may say more";
  EXPECT_EQ(parts(options, 512, false), 2u);
  options.overlap = arch::Overlap::kOff;
  EXPECT_EQ(parts(options, 4096, true), 1u);
  options.overlap = arch::Overlap::kOn;
  EXPECT_EQ(parts(options, 17, false), 2u);
  EXPECT_EQ(parts(options, 1, false), 1u);
}

}  // namespace card_trunk_test
}  // namespace terrace
