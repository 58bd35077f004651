// A node that computes wrong is found while requests run: what had a part of it is computed again or is said to be
// uncertain, and nothing else changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/unit/coordinator/serve/scheduler/batched_requests.h"

namespace terrace::serve {
namespace {

using test::BatchedRequests;
using test::request_for;
using test::ServedModel;
using test::some_tokens;

Request whole(std::int32_t seed, std::uint64_t max_tokens, std::size_t prompt = 10) {
  Request request = request_for(some_tokens(prompt, seed), max_tokens);
  request.streamed = false;
  return request;
}

class RollBack : public testing::Test {
 protected:
  SchedulerOptions options(std::uint32_t slots) {
    SchedulerOptions options;
    options.slots = slots;
    options.chunk_rows = 8;
    options.resting_bytes = 1000 * ServedModel::kBlockBytes;
    options.on_roll_back = [this](const Error& why, std::size_t n_ended) {
      told_.push_back(why.text());
      n_ended_ = n_ended;
    };
    return options;
  }
  // Wrong from step `first` on, found in step `found`; the last clean audit was in step `clean`.
  void go_wrong(std::uint64_t clean, std::uint64_t first, std::uint64_t found) {
    model_.model().tap().go_wrong(clean, first, found);
  }
  test::Answer alone(const Request& request) { return test::tiny_alone().run(request).first; }
  // Tokens of `request` that the wrong steps change: those of a run with nobody to find them.
  test::Answer undetected(std::uint64_t first, const Request& request) {
    ServedModel wrong(ServedModel::trunk(4), serial_);
    wrong.model().tap().go_wrong(0, first, 1'000'000);
    BatchedRequests batched(wrong, options(1));
    const auto index = batched.submit(request);
    EXPECT_TRUE(batched.run_to_the_end());
    return batched.heard(index).answer();
  }

  Serial serial_;
  ServedModel model_{ServedModel::trunk(8), serial_};
  std::vector<std::string> told_;
  std::size_t n_ended_ = 0;
};

TEST_F(RollBack, TheWrongStepsOfTheseTests_ChangeTokens) {
  EXPECT_NE(undetected(7, whole(1, 30)), alone(whole(1, 30)));
}

TEST_F(RollBack, ReplyThatIsNotStreamed_GoesOnWithTheTokensItHasAlone) {
  go_wrong(5, 7, 20);
  for (const bool hashes : {false, true}) {
    SCOPED_TRACE(hashes);
    ServedModel model(ServedModel::trunk(8), serial_);
    model.model().tap().go_wrong(5, 7, 20);
    BatchedRequests batched(model, options(2));
    Request request = whole(1, 30);
    request.hash_logits = hashes;
    const auto index = batched.submit(request);
    ASSERT_TRUE(batched.run_to_the_end());
    ASSERT_FALSE(batched.heard(index).error()) << batched.heard(index).error()->text();
    const test::Answer expected = alone(whole(1, 30));
    EXPECT_EQ(batched.heard(index).answer().tokens, expected.tokens);
    EXPECT_EQ(batched.heard(index).answer().text, expected.text);
    if (hashes) {
      EXPECT_EQ(batched.heard(index).answer().hashes, expected.hashes);
    }
    EXPECT_EQ(batched.heard(index).timings().predicted_n, 30u);
    EXPECT_EQ(batched.status().counters.roll_backs, 1u);
  }
  EXPECT_THAT(told_, testing::Each(testing::HasSubstr("box1:9000")));
}

TEST_F(RollBack, StreamedReply_EndsWithAnErrorThatNamesTheFirstUncertainPosition) {
  go_wrong(5, 7, 20);
  BatchedRequests batched(model_, options(2));
  const auto streamed = batched.submit(request_for(some_tokens(10, 1), 30));
  const auto other = batched.submit(whole(2, 30));
  ASSERT_TRUE(batched.run_to_the_end());
  ASSERT_TRUE(batched.heard(streamed).error());
  EXPECT_EQ(batched.heard(streamed).error()->code(), ErrorCode::kUncertain);
  // Two prompts of 10 in one step of prompt rows each; then a token a step. Step 5 made the first uncertain one.
  const std::string& text = batched.heard(streamed).error()->text();
  const auto certain = alone(request_for(some_tokens(10, 1), 30));
  std::size_t position = 0, token = 0;
  ASSERT_EQ(
      std::sscanf(text.c_str(), "box1:9000: computes wrong; the reply is not certain from position %zu (its token %zu)",
                  &position, &token),
      2)
      << text;
  EXPECT_EQ(position, 10 + token - 1);
  ASSERT_GT(token, 1u);
  const auto& told = batched.heard(streamed).answer();
  ASSERT_GE(told.tokens.size(), token - 1);
  for (std::size_t i = 0; i + 1 < token; ++i) EXPECT_EQ(told.tokens[i], certain.tokens[i]) << i;
  EXPECT_EQ(batched.heard(other).answer(), alone(whole(2, 30)));
}

TEST_F(RollBack, StreamedReplyOfWhichNothingWasTold_GoesOn) {
  go_wrong(1, 1, 3);
  BatchedRequests batched(model_, options(1));
  const Request request = request_for(some_tokens(190, 1), 6);  // three steps of prompt rows
  const auto index = batched.submit(request);
  ASSERT_TRUE(batched.run_to_the_end());
  ASSERT_FALSE(batched.heard(index).error()) << batched.heard(index).error()->text();
  EXPECT_EQ(batched.heard(index).answer(), alone(request));
  EXPECT_EQ(batched.status().counters.roll_backs, 1u);
}

TEST_F(RollBack, KeptPrefixThatTheNodeHadAPartIn_IsNotReused) {
  go_wrong(5, 7, 24);
  BatchedRequests batched(model_, options(1));
  batched.submit(whole(1, 20));  // steps 1 to 20; its tokens end uncertain, and nobody can take them back
  ASSERT_TRUE(batched.run_to_the_end());
  const auto wrong = batched.heard(0).answer().tokens;
  Request next = whole(1, 6);
  next.prompt.insert(next.prompt.end(), wrong.begin(), wrong.end() - 1);
  next.prompt.push_back(77);
  batched.submit(next);  // found in its fourth step
  ASSERT_TRUE(batched.run_to_the_end());
  EXPECT_EQ(batched.heard(1).answer(), alone(next));
  EXPECT_EQ(n_ended_, 1u) << "the reply that had ended is told of";
  batched.submit(next);
  ASSERT_TRUE(batched.run_to_the_end());
  EXPECT_EQ(batched.heard(2).answer(), alone(next));
}

TEST_F(RollBack, CertainPartOfAKeptPrefix_StaysForReuse) {
  go_wrong(22, 22, 24);
  BatchedRequests batched(model_, options(2));
  const Request first = whole(1, 20);
  batched.submit(first);  // steps 1 to 20: certain
  ASSERT_TRUE(batched.run_to_the_end());
  batched.submit(whole(2, 10));  // found in step 24
  ASSERT_TRUE(batched.run_to_the_end());
  const auto again = batched.submit(first);
  ASSERT_TRUE(batched.run_to_the_end());
  EXPECT_EQ(batched.heard(again).answer(), alone(first));
  EXPECT_EQ(batched.heard(again).timings().cache_n, 9u);
}

// Every step at which a node can go wrong and be found, among requests that come, wait and end.
TEST_F(RollBack, AnySchedule_EveryReplyIsThatOfARunWithoutTheNode) {
  std::map<std::size_t, test::Answer> expected;
  int n_found = 0;
  for (std::uint64_t clean = 1; clean < 24; clean += 3)
    for (std::uint64_t found = clean; found < clean + 20; found += 6) {
      SCOPED_TRACE(testing::Message() << "clean " << clean << ", found " << found);
      ServedModel model(ServedModel::trunk(5), serial_);
      model.model().tap().go_wrong(clean, clean, found);
      BatchedRequests batched(model, options(3));
      std::vector<Request> requests;
      for (std::int32_t i = 0; i < 6; ++i)
        requests.push_back(
            whole(1 + i / 3, 4 + static_cast<std::uint64_t>(3 * i), 12 + static_cast<std::size_t>(9 * i)));
      for (const Request& request : requests) batched.submit(request);
      // What ends before a node is found can be wrong: nobody can take it back.
      std::vector<bool> ended_before(requests.size());
      while (batched.busy()) {
        if (batched.status().counters.roll_backs == 0)
          for (std::size_t i = 0; i < requests.size(); ++i) ended_before[i] = batched.heard(i).is_over();
        batched.step();
      }
      if (batched.status().counters.roll_backs == 0) continue;  // all had ended by then
      ++n_found;
      for (std::size_t i = 0; i < requests.size(); ++i) {
        if (ended_before[i]) continue;
        if (!expected.contains(i)) expected[i] = alone(requests[i]);
        ASSERT_FALSE(batched.heard(i).error()) << batched.heard(i).error()->text();
        EXPECT_EQ(batched.heard(i).answer(), expected[i]) << "request " << i;
      }
    }
  EXPECT_GT(n_found, 20);
}

}  // namespace
}  // namespace terrace::serve
