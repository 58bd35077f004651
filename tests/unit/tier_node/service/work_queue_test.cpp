#include "tier_node/service/work_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <thread>

#include "tests/unit/tier_node/support/node_parts.h"

namespace terrace::node {
namespace work_queue_test {

class WorkQueueTest : public ::testing::Test {
 protected:
  Work& work(const SessionRef& session, std::uint64_t sequence, wire::Priority priority, std::uint64_t peer = 1) {
    Work& made = works_.emplace_back();
    made.session = session;
    made.peer = peer;
    made.batch.sequence = sequence;
    made.batch.info.priority = priority;
    return made;
  }
  void push(const SessionRef& session, std::uint64_t sequence, wire::Priority priority, std::uint64_t peer = 1) {
    queue_.push(work(session, sequence, priority, peer));
  }
  std::vector<std::uint64_t> pop_all(int n) {
    std::vector<std::uint64_t> order;
    for (int i = 0; i < n; ++i) order.push_back(queue_.pop()->batch.sequence);
    return order;
  }

  test::TinyModel model_;
  test::NodeParts node_{model_};
  SessionRef a_ = node_.open(), b_ = node_.open();
  std::deque<Work> works_;
  WorkQueue queue_;
};

constexpr auto kDecode = wire::Priority::kDecode;
constexpr auto kPrompt = wire::Priority::kPrompt;

TEST_F(WorkQueueTest, TwoSessions_TakeTurns) {
  for (const std::uint64_t i : {1, 2, 3}) push(a_, i, kPrompt);
  for (const std::uint64_t i : {11, 12}) push(b_, i, kPrompt);
  EXPECT_EQ(pop_all(5), (std::vector<std::uint64_t>{1, 11, 2, 12, 3}));
}

TEST_F(WorkQueueTest, Decode_BeforePromptOfAnySession) {
  push(a_, 1, kPrompt);
  push(b_, 2, kPrompt);
  push(b_, 3, kDecode);
  push(a_, 4, kDecode);
  EXPECT_EQ(pop_all(4), (std::vector<std::uint64_t>{3, 4, 1, 2}));
}

TEST_F(WorkQueueTest, TryPopDecode_LeavesPrompts) {
  push(a_, 1, kPrompt);
  EXPECT_EQ(queue_.try_pop_decode(), nullptr);
  push(a_, 2, kDecode);
  EXPECT_EQ(queue_.try_pop_decode()->batch.sequence, 2u);
  EXPECT_EQ(pop_all(1), (std::vector<std::uint64_t>{1}));
}

TEST_F(WorkQueueTest, Remove_FirstMiddleLastAndByPeer) {
  for (const std::uint64_t i : {1, 2, 3, 4, 5}) push(a_, i, kPrompt, i % 2);
  EXPECT_EQ(queue_.remove(1, 4), nullptr) << "another connection's";
  for (const std::uint64_t i : {1, 3, 5}) EXPECT_EQ(queue_.remove(1, i)->batch.sequence, i);
  EXPECT_EQ(queue_.remove(1, 1), nullptr);
  push(a_, 6, kPrompt, 0);
  EXPECT_EQ(queue_.remove(0, 0)->batch.sequence, 2u);
  EXPECT_EQ(pop_all(2), (std::vector<std::uint64_t>{4, 6}));
}

TEST_F(WorkQueueTest, Claim_TakesASmallDecodeBatchWhileTheOtherThreadIsIdle) {
  EXPECT_EQ(queue_.claim(8), nullptr) << "nothing waits";
  push(a_, 1, kPrompt);
  EXPECT_EQ(queue_.claim(8), nullptr) << "prompts are the compute thread's";
  Work& large = work(a_, 2, kDecode);
  large.batch.info.n_pairs = 9;
  queue_.push(large);
  EXPECT_EQ(queue_.claim(8), nullptr) << "too large";
  EXPECT_EQ(queue_.claim(9), &large);
  queue_.unclaim();
  EXPECT_EQ(queue_.pop()->batch.sequence, 1u);
  push(a_, 3, kDecode);
  EXPECT_EQ(queue_.claim(8), nullptr) << "the compute thread has the prompt";
  EXPECT_EQ(queue_.pop()->batch.sequence, 3u);
}

TEST_F(WorkQueueTest, WhileOneIsClaimed_TheComputeThreadGetsNone) {
  push(a_, 1, kDecode);
  push(a_, 2, kDecode);
  ASSERT_NE(queue_.claim(8), nullptr);
  std::atomic<bool> unclaimed = false;
  std::thread computing([&] {
    EXPECT_EQ(queue_.pop()->batch.sequence, 2u);
    EXPECT_TRUE(unclaimed) << "two computed at once";
  });
  for (int i = 0; i < 100; ++i) std::this_thread::yield();
  unclaimed = true;
  queue_.unclaim();
  queue_.wake();
  computing.join();
}

TEST_F(WorkQueueTest, Stop_EndsTheWait) {
  std::thread stopper([this] { queue_.stop(); });
  EXPECT_EQ(queue_.pop(), nullptr);
  stopper.join();
}

}  // namespace work_queue_test
}  // namespace terrace::node
