// What a step is made of, what is reused, and who ends when something fails.
#include "coordinator/serve/scheduler/batcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "tests/unit/coordinator/serve/scheduler/batched_requests.h"

namespace terrace::serve {
namespace {

using test::BatchedRequests;
using test::request_for;
using test::ServedModel;
using test::some_tokens;

constexpr std::uint64_t kManyBlocks = 1000 * ServedModel::kBlockBytes;

SchedulerOptions with(std::uint32_t slots, std::uint32_t chunk_rows = 8, std::uint64_t resting = kManyBlocks) {
  SchedulerOptions options;
  options.slots = slots;
  options.chunk_rows = chunk_rows;
  options.resting_bytes = resting;
  return options;
}

class BatcherTest : public testing::Test {
 protected:
  Serial serial_;
  ServedModel model_{ServedModel::trunk(8), serial_};

  test::Answer alone(const Request& request) { return test::tiny_alone().run(request).first; }
  // Steps until the request has made so many tokens.
  static void step_until(BatchedRequests& batched, std::size_t index, std::size_t n_tokens) {
    while (batched.heard(index).answer().tokens.size() < n_tokens) batched.step();
  }
};

// ---- steps ----------------------------------------------------------------------------------------------------------

TEST_F(BatcherTest, PromptBesideADecodingStream_TakesAChunkAStepAndTheStreamGoesOn) {
  BatchedRequests batched(model_, with(2));
  const auto first = batched.submit(request_for(some_tokens(5, 1), 40));
  step_until(batched, first, 1);
  const auto second = batched.submit(request_for(some_tokens(50, 2), 4));
  std::vector<std::uint64_t> rows;
  while (batched.heard(second).answer().tokens.empty()) {
    const auto before = batched.status().counters.rows;
    batched.step();
    rows.push_back(batched.status().counters.rows - before);
  }
  EXPECT_THAT(rows, testing::ElementsAre(9, 9, 9, 9, 9, 9, 3));  // 50 = 6 chunks of 8 and 2
  EXPECT_EQ(batched.heard(first).answer().tokens.size(), 1 + rows.size());
  EXPECT_EQ(batched.status().mixed_step_seconds.count(), rows.size());
}

TEST_F(BatcherTest, PromptWithNoStreamBesideIt_TakesAllRowsOfAStep) {
  BatchedRequests batched(model_, with(2));
  batched.submit(request_for(some_tokens(100, 1), 4));
  batched.step();
  EXPECT_EQ(batched.status().counters.rows, 64u);
  batched.step();
  EXPECT_EQ(batched.status().counters.rows, 100u);
}

TEST_F(BatcherTest, ShortPromptBehindALongOne_IsAnsweredFirst) {
  BatchedRequests batched(model_, with(3));
  step_until(batched, batched.submit(request_for(some_tokens(5, 1), 60)), 1);
  const auto slow = batched.submit(request_for(some_tokens(90, 2), 1));
  batched.step();
  const auto quick = batched.submit(request_for(some_tokens(6, 3), 1));
  batched.step();
  EXPECT_TRUE(batched.heard(quick).is_over());
  EXPECT_FALSE(batched.heard(slow).is_over());
  ASSERT_TRUE(batched.run_to_the_end());
  EXPECT_EQ(batched.heard(slow).answer(), alone(request_for(some_tokens(90, 2), 1)));
}

TEST_F(BatcherTest, PromptProgress_RisesToTheWholePromptAndStopsThere) {
  BatchedRequests batched(model_, with(2));
  step_until(batched, batched.submit(request_for(some_tokens(5, 1), 60)), 1);
  Request request = request_for(some_tokens(20, 2), 3);
  request.progress = true;
  const auto index = batched.submit(request);
  step_until(batched, index, 3);
  std::vector<std::uint32_t> processed;
  for (const PromptProgress& progress : batched.heard(index).progress()) {
    EXPECT_EQ(progress.total, 20u);
    processed.push_back(progress.processed);
  }
  EXPECT_THAT(processed, testing::ElementsAre(0, 8, 16, 20));
}

// ---- reuse ----------------------------------------------------------------------------------------------------------

TEST_F(BatcherTest, PromptThatGoesOnWithAnEndedOne_ComputesOnlyItsNewTokens) {
  BatchedRequests batched(model_, with(2));
  const Request first = request_for(some_tokens(40, 1), 6);
  batched.submit(first);
  ASSERT_TRUE(batched.run_to_the_end());
  Request second = first;  // a chat's next turn: the answer, then more
  const auto made = batched.heard(0).answer().tokens;
  second.prompt.insert(second.prompt.end(), made.begin(), made.end());
  second.prompt.push_back(77);
  const auto index = batched.submit(second);
  ASSERT_TRUE(batched.run_to_the_end());
  EXPECT_EQ(batched.heard(index).answer(), alone(second));
  EXPECT_EQ(batched.heard(index).timings().cache_n, 45u);  // the last token made was never computed
  EXPECT_EQ(batched.heard(index).timings().prompt_n, 2u);
  EXPECT_EQ(batched.status().resting_sequences, 1u);  // the first one is part of the second
}

TEST_F(BatcherTest, EqualPrompt_ComputesItsLastTokenAgain) {
  BatchedRequests batched(model_, with(1));
  const Request request = request_for(some_tokens(33, 1), 3);
  for (int i = 0; i < 2; ++i) batched.submit(request);
  ASSERT_TRUE(batched.run_to_the_end());
  EXPECT_EQ(batched.heard(1).timings().cache_n, 32u);
  EXPECT_EQ(batched.heard(1).answer(), batched.heard(0).answer());
}

TEST_F(BatcherTest, ChoicesOfOnePrompt_ComputeItOnce) {
  BatchedRequests batched(model_, with(4));
  Request request = request_for(some_tokens(90, 1), 6);
  request.sampling.temperature = 1.0f;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    request.sampling.seed = seed;
    batched.submit(request);
  }
  ASSERT_TRUE(batched.run_to_the_end());
  EXPECT_EQ(batched.status().counters.prompt_tokens, 90u + 3);  // each choice its last token
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    request.sampling.seed = seed;
    EXPECT_EQ(batched.heard(seed).answer(), alone(request)) << "seed " << seed;
  }
}

TEST_F(BatcherTest, LeaderOfAPromptIsCancelled_FollowersComputeItThemselves) {
  BatchedRequests batched(model_, with(3));
  step_until(batched, batched.submit(request_for(some_tokens(5, 2), 60)), 1);
  const Request request = request_for(some_tokens(60, 1), 4);
  const auto leader = batched.submit(request), follower = batched.submit(request);
  batched.step();
  EXPECT_EQ(batched.status().slots[2].state, SlotState::kWaiting);
  batched.cancel(leader);
  ASSERT_TRUE(batched.run_to_the_end());
  EXPECT_EQ(batched.heard(follower).answer(), alone(request));
  EXPECT_EQ(batched.heard(follower).timings().cache_n, 8u);  // what the leader had
}

TEST_F(BatcherTest, WithoutReuse_EverythingIsComputed) {
  BatchedRequests batched(model_, with(1));
  Request request = request_for(some_tokens(33, 1), 3);
  batched.submit(request);
  request.reuse_prefix = false;
  batched.submit(request);
  ASSERT_TRUE(batched.run_to_the_end());
  EXPECT_EQ(batched.heard(1).timings().cache_n, 0u);
  EXPECT_EQ(batched.heard(1).answer(), batched.heard(0).answer());
}

TEST_F(BatcherTest, SequencesBeyondTheirBytes_LeaveLeastRecentlyUsedFirst) {
  BatchedRequests batched(model_, with(1, 8, 5 * ServedModel::kBlockBytes));
  const auto ask = [&](std::int32_t seed) {
    const auto index = batched.submit(request_for(some_tokens(60, seed), 2));  // 61 positions: 2 blocks
    EXPECT_TRUE(batched.run_to_the_end());
    return batched.heard(index).timings().cache_n;
  };
  EXPECT_EQ(ask(1), 0u);
  EXPECT_EQ(ask(2), 0u);
  EXPECT_EQ(ask(1), 59u);
  EXPECT_EQ(ask(3), 0u);  // 2 has to go
  EXPECT_EQ(ask(1), 59u);
  EXPECT_EQ(ask(2), 0u);
  EXPECT_LE(batched.status().cache_bytes_resting, 5 * ServedModel::kBlockBytes);
}

TEST_F(BatcherTest, FreeSlotWhoseSequenceThePromptGoesOnWith_IsTaken) {
  BatchedRequests batched(model_, with(3));
  for (std::int32_t seed = 1; seed <= 3; ++seed) batched.submit(request_for(some_tokens(40, seed), 2));
  ASSERT_TRUE(batched.run_to_the_end());
  for (const std::int32_t seed : {2, 3, 1}) {
    const auto index = batched.submit(request_for(some_tokens(50, seed), 2));
    ASSERT_TRUE(batched.run_to_the_end());
    EXPECT_EQ(batched.heard(index).slot(), batched.heard(static_cast<std::size_t>(seed) - 1).slot());
  }
}

TEST_F(BatcherTest, SlotThatIsAskedFor_IsWaitedForWhileOthersAreFree) {
  BatchedRequests batched(model_, with(2));
  step_until(batched, batched.submit(request_for(some_tokens(5, 1), 10)), 1);
  Request request = request_for(some_tokens(5, 2), 1);
  request.slot = batched.status().slots[0].state == SlotState::kIdle ? 1 : 0;
  const auto index = batched.submit(request);
  batched.step();
  EXPECT_FALSE(batched.heard(index).is_over());
  ASSERT_TRUE(batched.run_to_the_end());
  EXPECT_EQ(batched.heard(index).slot(), request.slot);
}

// ---- memory ---------------------------------------------------------------------------------------------------------

TEST_F(BatcherTest, CacheTooSmallForAll_TheYoungestComputesAgainAndNobodyFails) {
  ServedModel small(ServedModel::trunk(8, 64, 9), serial_);  // of 256 positions: 8 blocks
  BatchedRequests batched(small, with(3, 8));
  std::vector<Request> requests;
  for (std::int32_t seed = 1; seed <= 3; ++seed) {
    requests.push_back(request_for(some_tokens(60, seed), 100));  // 5 blocks each in the end
    batched.submit(requests.back());
  }
  ASSERT_TRUE(batched.run_to_the_end());
  EXPECT_GE(batched.status().counters.preemptions, 1u);
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_FALSE(batched.heard(i).error()) << batched.heard(i).error()->text();
    EXPECT_EQ(batched.heard(i).answer(), alone(requests[i])) << i;
    EXPECT_EQ(batched.heard(i).timings().prompt_n, 60u);  // what was computed again is not counted twice
  }
}

TEST_F(BatcherTest, OneStreamOfAFullContext_HasRoomInTheLeastCache) {
  ServedModel small(ServedModel::trunk(4, 64, 9), serial_);
  BatchedRequests batched(small, with(2, 8));
  const Request request = request_for(some_tokens(250, 1), kUnlimited);
  batched.submit(request_for(some_tokens(200, 1), 3));  // rests when the other begins as it does
  ASSERT_TRUE(batched.run_to_the_end());
  batched.submit(request);
  ASSERT_TRUE(batched.run_to_the_end());
  EXPECT_EQ(batched.heard(1).answer(), alone(request));
  EXPECT_EQ(batched.heard(1).reason(), EndReason::kContext);
}

// ---- slots' sequences -----------------------------------------------------------------------------------------------

TEST_F(BatcherTest, SlotThatRuns_IsNeitherErasedNorReplaced) {
  BatchedRequests batched(model_, with(1));
  const Request request = request_for(some_tokens(20, 1), 6);
  batched.submit(request);
  step_until(batched, 0, 2);
  EXPECT_EQ(batched.batcher().erase(0).error().code(), ErrorCode::kBusy);
  const auto stream = batched.batcher().make_room_for(3);
  ASSERT_TRUE(stream.ok());
  EXPECT_EQ(batched.batcher().adopt(0, {.stream = *stream, .tokens = {5, 6, 7}, .slot = 0}).error().code(),
            ErrorCode::kBusy);
  ASSERT_TRUE(batched.run_to_the_end());
  EXPECT_EQ(batched.heard(0).answer(), alone(request));
  EXPECT_EQ(*batched.batcher().erase(0), 25u);
  EXPECT_EQ(batched.status().cache_bytes, 0u);
}

TEST_F(BatcherTest, SnapshotOfARunningSlot_StaysAsItWasWhileTheSlotGoesOn) {
  BatchedRequests batched(model_, with(1));
  const Request request = request_for(some_tokens(20, 1), 30);
  batched.submit(request);
  step_until(batched, 0, 5);
  const Sequence snapshot = test::value_of(batched.batcher().snapshot(0));
  EXPECT_EQ(snapshot.tokens.size(), 24u);
  const auto bytes = model_.trunk().cache().stored(snapshot.stream, 0);
  const std::vector<std::byte> before(bytes.begin(), bytes.end());
  ASSERT_TRUE(batched.run_to_the_end());
  EXPECT_EQ(batched.heard(0).answer(), alone(request));
  EXPECT_TRUE(std::ranges::equal(before, bytes));
  batched.batcher().close(snapshot.stream);
}

// ---- ends and errors ------------------------------------------------------------------------------------------------

TEST_F(BatcherTest, CancelInAPrompt_FreesTheSlotAtOnceAndKeepsWhatWasComputed) {
  BatchedRequests batched(model_, with(1));
  Request request = request_for(some_tokens(100, 1), 2);
  batched.submit(request);
  batched.step();
  batched.cancel(0);
  EXPECT_EQ(batched.heard(0).reason(), EndReason::kCancelled);
  EXPECT_EQ(batched.heard(0).timings().prompt_n, 64u);
  EXPECT_FALSE(batched.busy());
  const auto again = batched.submit(request);
  ASSERT_TRUE(batched.run_to_the_end());
  EXPECT_EQ(batched.heard(again).timings().cache_n, 64u);
  EXPECT_EQ(batched.heard(again).answer(), alone(request));
}

TEST_F(BatcherTest, StepThatFails_EndsItsStreamsIsToldAndTheNextOneWorks) {
  std::vector<std::string> told;
  SchedulerOptions options = with(2);
  options.on_step_failed = [&](const Error& why, std::size_t n) {
    told.push_back(why.text() + ": " + std::to_string(n));
  };
  BatchedRequests batched(model_, options);
  for (std::int32_t seed = 1; seed <= 2; ++seed) batched.submit(request_for(some_tokens(5, seed), 40));
  step_until(batched, 1, 2);
  EXPECT_TRUE(told.empty());
  model_.model().tap().fail_submit(2);
  batched.step();
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(batched.heard(i).error());
    EXPECT_EQ(batched.heard(i).error()->code(), ErrorCode::kPeerGone);
    EXPECT_TRUE(batched.heard(i).answer().begins(alone(request_for(some_tokens(5, static_cast<int>(i) + 1), 40))));
  }
  EXPECT_FALSE(batched.busy());
  EXPECT_EQ(batched.status().step_error->code(), ErrorCode::kPeerGone);
  EXPECT_EQ(told, std::vector{batched.status().step_error->text() + ": 2"});  // once, not for each stream
  const Request request = request_for(some_tokens(5, 1), 40);
  const auto next = batched.submit(request);
  ASSERT_TRUE(batched.run_to_the_end());
  EXPECT_EQ(batched.heard(next).answer(), alone(request));
  EXPECT_GE(batched.heard(next).timings().cache_n, 4u);  // what was stored before the step is right
  EXPECT_FALSE(batched.status().step_error);
}

// The embedding of one token is not a number: only who says it fails.
TEST_F(BatcherTest, RowThatIsNotFinite_EndsItsStreamAlone) {
  constexpr std::int32_t kBad = 200;
  const std::uint16_t nan = 0x7e00;
  const auto path = test::copy_with(test::tiny_model("tiny-mix"), "token_embd.weight", std::uint64_t{kBad} * 256 * 2,
                                    std::as_bytes(std::span(&nan, 1)));
  test::ModelUnderTest model(path, ServedModel::trunk(8), serial_);
  const kernels::Ops ops = test::value_of(kernels::select_ops(kernels::detect_cpu_features(), std::nullopt));
  const SchedulerParts parts{model.trunk(), test::tiny_alone().tokenizer(), ops, serial_, {}};
  BatchedRequests batched(parts, with(2));
  const Request good = request_for(some_tokens(30, 1), 10);
  Request bad = request_for(some_tokens(30, 2), 10);
  bad.prompt[20] = kBad;
  batched.submit(good);
  batched.submit(bad);
  ASSERT_TRUE(batched.run_to_the_end());
  ASSERT_TRUE(batched.heard(1).error());
  EXPECT_EQ(batched.heard(1).error()->code(), ErrorCode::kNotFinite);
  EXPECT_FALSE(batched.heard(0).error());
  EXPECT_EQ(batched.heard(0).reason(), EndReason::kLimit);
  EXPECT_FALSE(batched.status().step_error);
}

TEST_F(BatcherTest, NothingToMake_EndsWithTheLimitAfterThePrompt) {
  BatchedRequests batched(model_, with(1));
  batched.submit(request_for(some_tokens(20, 1), 0));
  ASSERT_TRUE(batched.run_to_the_end());
  EXPECT_EQ(batched.heard(0).reason(), EndReason::kLimit);
  EXPECT_TRUE(batched.heard(0).answer().tokens.empty());
  EXPECT_EQ(batched.heard(0).timings().prompt_n, 20u);
}

TEST_F(BatcherTest, StopString_IsNamedAndNotShown) {
  const Request plain = request_for(some_tokens(20, 1), 60);
  const std::string text = alone(plain).text;
  Request request = plain;
  request.stops = {"never there", text.substr(text.size() / 2, 1)};
  if ((request.stops[1][0] & 0x80) != 0) request.stops[1] = "e";
  BatchedRequests batched(model_, with(1));
  batched.submit(request);
  ASSERT_TRUE(batched.run_to_the_end());
  const auto [expected, reason] = test::tiny_alone().run(request);
  EXPECT_EQ(batched.heard(0).answer(), expected);
  EXPECT_EQ(batched.heard(0).reason(), reason);
  if (batched.heard(0).reason() == EndReason::kStop) {
    EXPECT_EQ(batched.heard(0).stopping_word(), request.stops[1]);
  }
}

TEST_F(BatcherTest, Logprobs_AreOfTheModelsLogitsWhateverChoseTheToken) {
  Request request = request_for(some_tokens(20, 1), 5);
  request.n_probs = 3;
  const std::int32_t banned = alone(request).tokens[0];
  request.logit_bias = {{banned, sampler::LogitBias::kBan}};
  BatchedRequests batched(model_, with(1));
  batched.submit(request);
  ASSERT_TRUE(batched.run_to_the_end());
  const auto& heard = batched.heard(0);
  ASSERT_EQ(heard.logprobs().size(), 5u);
  EXPECT_NE(heard.answer().tokens[0], banned);
  EXPECT_EQ(heard.logprobs()[0].top.front().token, banned);
  EXPECT_EQ(heard.logprobs()[0].chosen.token, heard.answer().tokens[0]);
  EXPECT_EQ(heard.logprobs()[0].top.size(), 3u);
  EXPECT_LT(heard.logprobs()[0].chosen.logprob, heard.logprobs()[0].top.front().logprob);
}

TEST_F(BatcherTest, IgnoreEos_NeverMakesAnEndToken) {
  const text::Tokenizer& tokenizer = test::tiny_alone().tokenizer();
  ASSERT_FALSE(tokenizer.stop_ids().empty());
  // Its bias makes an end token certain, but for the ban.
  Request request = request_for(some_tokens(20, 1), 30);
  request.logit_bias = {{tokenizer.stop_ids()[0], 100.0f}};
  BatchedRequests batched(model_, with(1));
  batched.submit(request);
  request.ignore_eos = true;
  batched.submit(request);
  ASSERT_TRUE(batched.run_to_the_end());
  EXPECT_EQ(batched.heard(0).reason(), EndReason::kEos);
  EXPECT_EQ(batched.heard(0).answer().tokens.size(), 1u);
  EXPECT_EQ(batched.heard(1).reason(), EndReason::kLimit);
  EXPECT_EQ(batched.heard(1).answer().tokens.size(), 30u);
}

}  // namespace
}  // namespace terrace::serve
