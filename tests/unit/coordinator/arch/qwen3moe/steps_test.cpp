// What may stand in one step, and what it refuses: rows of several streams, prompts beside decoding, full contexts,
// wrong positions, lost legs.
#include <gtest/gtest.h>

#include <deque>
#include <numeric>

#include "common/threads/pool.h"
#include "tests/unit/coordinator/arch/model_under_test.h"

namespace terrace {
namespace steps_test {

using arch::StepRow;
using test::Greedy;
using test::ModelUnderTest;
using test::Sequence;
using test::value_of;

using Tokens = std::vector<std::int32_t>;

arch::TrunkOptions tiny_options() {
  arch::TrunkOptions options;
  options.context = 64;
  options.max_streams = 3;
  options.max_rows = 64;
  return options;
}

class Step : public testing::Test {
 protected:
  Serial serial_;
  ModelUnderTest model_{test::tiny_model("tiny-mix"), tiny_options(), serial_};
  arch::Trunk& trunk_ = model_.trunk();
};

const Tokens kFirst = {10, 20, 30, 40, 50, 60, 70};
const Tokens kSecond = {99, 7, 99, 13, 5};

Greedy alone(arch::Trunk& trunk, const Tokens& prompt) {
  Sequence sequence(trunk);
  return test::greedy(sequence, prompt, 3, 12);
}

std::vector<StepRow> joined(std::vector<StepRow> a, const std::vector<StepRow>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_F(Step, TwoStreamsInSharedSteps_EqualEachAlone) {
  const Greedy first_alone = alone(trunk_, kFirst), second_alone = alone(trunk_, kSecond);
  Sequence first(trunk_), second(trunk_);
  Greedy got[2];
  // The first stream's prompt, then its decoding beside the other's prompt, then both decode.
  std::vector<float> logits = first.feed(kFirst, 64);
  got[0] = {{test::argmax(logits)}, {test::xxh3(logits)}};
  auto rows = joined(second.rows(kSecond), first.rows(got[0].tokens));
  rows[kSecond.size() - 1].want_logits = rows.back().want_logits = true;
  const std::size_t vocabulary = model_.info().vocabulary;
  while (true) {
    const auto result = value_of(trunk_.step(rows));
    ASSERT_TRUE(result.failed.empty());
    ASSERT_EQ(result.logits.size(), 2 * vocabulary);
    for (std::size_t i = 0; i < 2; ++i) {
      const auto row = result.logits.subspan((1 - i) * vocabulary, vocabulary);
      got[i].tokens.push_back(test::argmax(row));
      got[i].hashes.push_back(test::xxh3(row));
    }
    if (got[1].tokens.size() == 11) break;
    rows =
        joined(second.rows(std::span(got[1].tokens).last(1), true), first.rows(std::span(got[0].tokens).last(1), true));
  }
  EXPECT_EQ(got[0], first_alone);
  EXPECT_TRUE(std::ranges::equal(got[1].hashes, std::span(second_alone.hashes).first(11)));
}

// Whoever writes first: the fork, or the stream that it was forked from; within a block and at its end.
TEST_F(Step, ForkedStream_GoesOnAsIfItHadComputedItsPositions) {
  Tokens prompt(40);
  std::iota(prompt.begin(), prompt.end(), 3);
  const Greedy first_alone = alone(trunk_, prompt);
  for (const std::uint32_t shared : {1u, 31u, 32u, 33u, 39u}) {
    Tokens other(prompt.begin(), prompt.begin() + shared);
    other.insert(other.end(), kSecond.begin(), kSecond.end());
    const Greedy second_alone = alone(trunk_, other);
    for (const bool fork_goes_first : {true, false}) {
      Sequence first(trunk_);
      first.feed(std::span(prompt).first(39), 64);
      Sequence second(trunk_, value_of(trunk_.fork_stream(first.id(), shared)));
      EXPECT_EQ(trunk_.length(second.id()), shared);
      const auto first_goes_on = [&] {
        EXPECT_EQ(test::greedy(first, std::span(prompt).last(1), 64, 12), first_alone) << shared << " shared";
      };
      if (!fork_goes_first) first_goes_on();
      EXPECT_EQ(test::greedy(second, kSecond, 2, 12), second_alone) << shared << " shared";
      if (fork_goes_first) first_goes_on();
    }
  }
}

TEST_F(Step, LogitsOfEveryRow_EqualThoseOfTheRowAsked) {
  std::vector<float> all, one_by_one;
  {
    Sequence sequence(trunk_);
    all = sequence.feed(kFirst, 64, true);
  }
  Sequence sequence(trunk_);
  one_by_one = sequence.feed(kFirst, 1, true);
  EXPECT_EQ(all, one_by_one);
}

TEST_F(Step, PriorityIsDecode_OnlyWhileEachStreamHasOneRow) {
  Sequence first(trunk_), second(trunk_);
  first.feed(kFirst, 64);
  EXPECT_EQ(model_.tap().last_priority(), legs::Priority::kPrompt);
  const Tokens token = {1};
  ASSERT_TRUE(trunk_.step(joined(first.rows(token), second.rows(token))).ok());
  EXPECT_EQ(model_.tap().last_priority(), legs::Priority::kDecode);
  ASSERT_TRUE(trunk_.step(joined(first.rows(token), second.rows(kSecond))).ok());
  EXPECT_EQ(model_.tap().last_priority(), legs::Priority::kPrompt);
}

TEST_F(Step, WithoutRows_GivesNothing) {
  const auto result = trunk_.step({});
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->logits.empty());
}

TEST_F(Step, FullContext_IsAnErrorThatNamesPositionAndContext) {
  Sequence sequence(trunk_);
  sequence.feed(Tokens(60, 7), 64);
  const auto refused = trunk_.step(sequence.rows(Tokens(5, 7)));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kContextFull);
  EXPECT_NE(refused.error().text().find("position 64"), std::string::npos) << refused.error().text();
  EXPECT_NE(refused.error().text().find("64 positions"), std::string::npos) << refused.error().text();
  EXPECT_EQ(trunk_.length(sequence.id()), 60u);
  sequence.feed(Tokens(4, 7), 64);
  EXPECT_EQ(trunk_.length(sequence.id()), 64u);
}

TEST_F(Step, WrongRows_AreRefusedAndChangeNothing) {
  Sequence sequence(trunk_);
  sequence.feed(kFirst, 64);
  const auto id = sequence.id();
  const auto vocabulary = static_cast<std::int32_t>(model_.info().vocabulary);
  const std::vector<std::vector<StepRow>> wrong = {
      {{id, 6, 1, false}},                       // stored already
      {{id, 8, 1, false}},                       // a gap
      {{id, 7, 1, false}, {id, 7, 1, false}},    // twice
      {{id, 7, -1, false}},                      // no token
      {{id, 7, vocabulary, false}},              // no token
      {{id, 7, 1, false}, {2, 0, 1, false}},     // not open
      {{id, 7, 1, false}, {9999, 0, 1, false}},  // no such stream
  };
  for (const auto& rows : wrong) {
    const auto result = trunk_.step(rows);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(trunk_.length(id), kFirst.size());
  }
  EXPECT_EQ(trunk_.step(sequence.rows(Tokens(65, 1))).error().code(), ErrorCode::kInvalidArgument);  // too many
}

TEST_F(Step, LostLegAtAnyLayer_LeavesStreamsAsTheyWere) {
  const Greedy undisturbed = alone(trunk_, kFirst);
  for (std::uint32_t nth = 1; nth <= model_.info().n_layers; ++nth) {
    Sequence sequence(trunk_);
    sequence.feed(std::span(kFirst).first(2), 64);
    model_.tap().fail_submit(nth);
    const auto lost = trunk_.step(sequence.rows(std::span(kFirst).subspan(2)));
    ASSERT_FALSE(lost.ok());
    EXPECT_EQ(lost.error().code(), ErrorCode::kPeerGone);
    EXPECT_EQ(trunk_.length(sequence.id()), 2u);
    EXPECT_EQ(test::greedy(sequence, std::span(kFirst).subspan(2), 64, 12), undisturbed) << "layer " << nth - 1;
  }
}

TEST_F(Step, FullCache_IsAnErrorThatChangesNothing) {
  arch::TrunkOptions options = tiny_options();
  options.cache_bytes = 2 * kernels::kKvBlockPositions * model_.info().kv_bytes_per_position;
  ModelUnderTest small(test::tiny_model("tiny-mix"), options, serial_);
  Sequence first(small.trunk()), second(small.trunk());
  first.feed(Tokens(20, 7), 64);
  second.feed(Tokens(32, 7), 64);
  const auto full = small.trunk().step(joined(first.rows(Tokens(1, 7)), second.rows(Tokens(1, 7))));
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_EQ(small.trunk().length(first.id()), 20u);
  EXPECT_EQ(small.trunk().length(second.id()), 32u);
  EXPECT_TRUE(small.trunk().step(first.rows(Tokens(1, 7))).ok());
}

TEST_F(Step, StreamsBeyondTheMost_AreBusy) {
  Sequence a(trunk_), b(trunk_), c(trunk_);
  EXPECT_EQ(trunk_.open_stream().error().code(), ErrorCode::kBusy);
}

// ---- halves (docs/adr/0025) -----------------------------------------------------------------------------------------

arch::TrunkOptions halved_options(arch::Overlap overlap = arch::Overlap::kOn) {
  arch::TrunkOptions options = tiny_options();
  options.overlap = overlap;
  return options;
}

class Halves : public Step {
 protected:
  // Of a step of these rows over experts that others compute, a layer at a time; the model has two.
  std::string journal(const arch::TrunkOptions& options, std::size_t streams, std::size_t rows_each) {
    ModelUnderTest model(test::tiny_model("tiny-mix"), options, serial_);
    model.tap().compute_elsewhere();
    std::deque<Sequence> sequences;
    std::vector<StepRow> rows;
    for (std::size_t i = 0; i < streams; ++i)
      rows = joined(rows, sequences.emplace_back(model.trunk()).rows(Tokens(rows_each, 7)));
    value_of(model.trunk().step(rows));
    return model.tap().take_journal();
  }
  const std::string whole_ = "s0 c0 s1 c1 ", halves_ = "s0 s0 c0 s1 c0 s1 c1 c1 ";
};

// The order of events: while one half's experts of a layer are under way, the other half's trunk is computed.
TEST_F(Halves, SecondHalfIsUnderWay_BeforeTheFirstIsCollected) {
  ASSERT_EQ(model_.info().n_layers, 2u);
  EXPECT_EQ(journal(halved_options(), 1, 2), halves_);
  EXPECT_EQ(journal(halved_options(), 3, 1), halves_);
  EXPECT_EQ(journal(halved_options(), 1, 1), whole_) << "of one row there is no half";
  EXPECT_EQ(journal(halved_options(arch::Overlap::kOff), 1, 64), whole_);
}

TEST_F(Halves, OfAPromptAsManyPartsAsAPlanSays_AllUnderWayBeforeTheFirstIsCollected) {
  arch::TrunkOptions options = halved_options();
  options.prompt_parts = 3;
  EXPECT_EQ(journal(options, 1, 5), "s0 s0 s0 c0 s1 c0 s1 c0 s1 c1 c1 c1 ");
  EXPECT_EQ(journal(options, 1, 2), halves_) << "no part without a row";
  EXPECT_EQ(journal(options, 3, 1), halves_) << "decoding has two";
  options.overlap = arch::Overlap::kAuto;
  const auto parts = [&](std::size_t n_rows) { return arch::step_parts(options, false, n_rows, true); };
  EXPECT_EQ(parts(2 * arch::kLeastPromptPart), 2u);
  EXPECT_EQ(parts(3 * arch::kLeastFurtherPart - 1), 2u);
  EXPECT_EQ(parts(3 * arch::kLeastFurtherPart), 3u);
  EXPECT_EQ(parts(65'536), 3u);
  EXPECT_EQ(arch::step_parts(options, false, 512, false), 1u);
}

TEST_F(Halves, ByTheRule_PromptsFromTwiceTheLeastPartAndDecodingWhereAPlanSaysSo) {
  arch::TrunkOptions options = halved_options(arch::Overlap::kAuto);
  EXPECT_EQ(journal(options, 1, 2 * arch::kLeastPromptPart), halves_);
  EXPECT_EQ(journal(options, 1, 2 * arch::kLeastPromptPart - 1), whole_);
  EXPECT_EQ(journal(options, 3, 1), whole_);
  options.decode_in_halves = true;
  EXPECT_EQ(journal(options, 3, 1), halves_);
  EXPECT_EQ(journal(options, 1, 1), whole_);
  // Nobody computes elsewhere: there is nothing to hide.
  ModelUnderTest alone(test::tiny_model("tiny-mix"), options, serial_);
  Sequence sequence(alone.trunk());
  sequence.feed(Tokens(64, 7), 64);
  EXPECT_EQ(alone.tap().take_journal(), whole_);
}

TEST_F(Halves, AnyPromptBatch_EqualsTokenByToken) {
  Tokens prompt(50);
  std::iota(prompt.begin(), prompt.end(), 100);
  for (const auto& [name, parts] : {std::pair("tiny-mix", 2u), {"tiny-q8_0", 2u}, {"tiny-mix", 4u}}) {
    test::Backwards backwards;
    arch::TrunkOptions options = halved_options();
    options.prompt_parts = parts;
    ModelUnderTest whole(test::tiny_model(name), tiny_options(), serial_),
        halved(test::tiny_model(name), options, backwards);
    Sequence one_by_one(whole.trunk());
    const std::vector<float> expected = one_by_one.feed(prompt, 1, true);
    for (const std::size_t batch : {2, 3, 17, 50}) {
      Sequence sequence(halved.trunk());
      EXPECT_EQ(sequence.feed(prompt, batch, true), expected) << name << ", batches of " << batch << " in " << parts;
    }
  }
}

TEST_F(Halves, StreamsThatShareSteps_EqualEachAlone) {
  const Greedy first_alone = alone(trunk_, kFirst), second_alone = alone(trunk_, kSecond);
  ModelUnderTest halved(test::tiny_model("tiny-mix"), halved_options(), serial_);
  arch::Trunk& trunk = halved.trunk();
  Sequence first(trunk), second(trunk);
  Greedy got[2];
  std::vector<float> logits = first.feed(kFirst, 64);
  got[0] = {{test::argmax(logits)}, {test::xxh3(logits)}};
  auto rows = joined(second.rows(kSecond), first.rows(got[0].tokens));  // a prompt's end and a decoding row in one half
  rows[kSecond.size() - 1].want_logits = rows.back().want_logits = true;
  const std::size_t vocabulary = halved.info().vocabulary;
  for (int step = 0; step < 11; ++step) {
    const auto result = value_of(trunk.step(rows));
    for (std::size_t i = 0; i < 2; ++i) {
      const auto own = result.logits.subspan((1 - i) * vocabulary, vocabulary);
      got[i].tokens.push_back(test::argmax(own));
      got[i].hashes.push_back(test::xxh3(own));
    }
    rows = joined(second.rows(std::span(got[1].tokens).last(1)), first.rows(std::span(got[0].tokens).last(1)));
    rows[0].want_logits = rows[1].want_logits = true;
  }
  EXPECT_EQ(got[0], first_alone);
  EXPECT_EQ(got[1].tokens, Tokens(second_alone.tokens.begin(), second_alone.tokens.begin() + 11));
  EXPECT_EQ(got[1].hashes, (std::vector<std::string>(second_alone.hashes.begin(), second_alone.hashes.begin() + 11)));
}

TEST_F(Halves, LostLegAtAnySubmit_EndsTheOtherHalfAndLeavesStreamsAsTheyWere) {
  const Greedy undisturbed = alone(trunk_, kFirst);
  ModelUnderTest halved(test::tiny_model("tiny-mix"), halved_options(), serial_);
  arch::Trunk& trunk = halved.trunk();
  for (std::uint32_t nth = 1; nth <= 2 * halved.info().n_layers; ++nth) {
    Sequence sequence(trunk);
    sequence.feed(std::span(kFirst).first(2), 64);
    halved.tap().fail_submit(nth);
    halved.tap().take_journal();
    EXPECT_EQ(trunk.step(sequence.rows(std::span(kFirst).subspan(2))).error().code(), ErrorCode::kPeerGone);
    EXPECT_TRUE(halved.tap().take_journal().ends_with("x "));
    EXPECT_EQ(trunk.length(sequence.id()), 2u);
    EXPECT_EQ(test::greedy(sequence, std::span(kFirst).subspan(2), 64, 12), undisturbed) << "submit " << nth;
  }
}

// Bytes of what is under way move while the trunk computes, and only then.
TEST_F(Halves, WhileTheTrunkComputes_LegsAreLookedAt) {
  arch::TrunkOptions options;
  options.context = 256;
  ModelUnderTest whole(test::demo_model(), options, serial_);
  options.overlap = arch::Overlap::kOn;
  ModelUnderTest halved(test::demo_model(), options, serial_);
  for (ModelUnderTest* model : {&halved, &whole}) {
    Sequence sequence(model->trunk());
    sequence.feed(Tokens(128, 7), 128);
  }
  EXPECT_GT(halved.tap().progressed, 6u) << "of 6 layers, each of some milliseconds";
  EXPECT_EQ(whole.tap().progressed, 0u);
}

// Two splits of 256 positions and a part: batches and threads cut them differently.
TEST(LongPrompt, AnyBatchAndAnyThreads_EqualBits) {
  Tokens prompt(600);
  std::iota(prompt.begin(), prompt.end(), 100);
  arch::TrunkOptions options;
  Greedy expected;
  for (const std::size_t threads : {1, 2, 4}) {
    const auto pool = value_of(Pool::create({.n_workers = threads}));
    ModelUnderTest model(test::demo_model(), options, *pool);
    for (const std::size_t batch : {512, 64, 37}) {
      Sequence sequence(model.trunk());
      const Greedy got = test::greedy(sequence, prompt, batch, 2);
      if (expected.tokens.empty()) expected = got;
      EXPECT_EQ(got, expected) << threads << " threads, batch " << batch;
    }
  }
}

// With more workers than KV heads a row's attention is cut into items by its splits, in decoding and in short prompts.
TEST(LongPrompt, RowsCutByTheirSplits_EqualOneWorker) {
  Tokens prompt(600);
  std::iota(prompt.begin(), prompt.end(), 100);
  Serial serial;
  test::Backwards many(32);
  ModelUnderTest one(test::demo_model(), {}, serial), cut(test::demo_model(), {}, many);
  struct Case {
    std::size_t n_tokens, batch;
  };
  for (const Case& c : {Case{255, 512}, {256, 512}, {257, 512}, {511, 512}, {512, 512}, {600, 512}, {600, 7}}) {
    Sequence expected(one.trunk()), got(cut.trunk());
    const std::span<const std::int32_t> tokens = std::span(prompt).first(c.n_tokens);
    EXPECT_EQ(test::greedy(got, tokens, c.batch, 3), test::greedy(expected, tokens, 512, 3))
        << c.n_tokens << " tokens in batches of " << c.batch;
  }
}

}  // namespace steps_test
}  // namespace terrace
