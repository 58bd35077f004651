#include "coordinator/serve/scheduler/fair_queue.h"

#include <gtest/gtest.h>

#include "tests/unit/coordinator/serve/scheduler/served_model.h"

namespace terrace::serve {
namespace {

constexpr auto always = [](const Job&) { return true; };

std::unique_ptr<Job> job(RequestId id, std::string client, std::optional<std::uint32_t> slot = {}) {
  Request request;
  request.client = std::move(client);
  request.slot = slot;
  return std::make_unique<Job>(Job{id,
                                   std::move(request),
                                   nullptr,
                                   test::value_of(text::TextOutput::make(test::tiny_alone().tokenizer(), {}, {})),
                                   {},
                                   Clock::now()});
}

std::vector<RequestId> drain(FairQueue& queue) {
  std::vector<RequestId> ids;
  while (auto next = queue.pop(always)) ids.push_back(next->id);
  return ids;
}

using Ids = std::vector<RequestId>;

TEST(FairQueue, OneClient_IsFirstInFirstOut) {
  FairQueue queue;
  for (RequestId id = 1; id <= 4; ++id) queue.push(job(id, ""));
  EXPECT_EQ(queue.size(), 4u);
  EXPECT_EQ(drain(queue), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(queue.size(), 0u);
}

TEST(FairQueue, ClientsTakeTurns) {
  FairQueue queue;
  for (RequestId id = 1; id <= 4; ++id) queue.push(job(id, "many"));
  queue.push(job(5, "one"));
  queue.push(job(6, "two"));
  queue.push(job(7, "two"));
  EXPECT_EQ(drain(queue), (Ids{1, 5, 6, 2, 7, 3, 4}));
}

TEST(FairQueue, ClientThatComesBack_WaitsForTheOthersTurn) {
  FairQueue queue;
  queue.push(job(1, "a"));
  queue.push(job(2, "b"));
  EXPECT_EQ(queue.pop(always)->id, 1u);
  queue.push(job(3, "a"));
  EXPECT_EQ(drain(queue), (Ids{2, 3}));
}

TEST(FairQueue, JobThatCannotStart_IsPassedByAndKeepsItsPlace) {
  FairQueue queue;
  queue.push(job(1, "", 0));
  queue.push(job(2, ""));
  queue.push(job(3, "", 0));
  const auto slot_0_is_taken = [](const Job& j) { return !j.request.slot; };
  EXPECT_EQ(queue.pop(slot_0_is_taken)->id, 2u);
  EXPECT_EQ(queue.pop(slot_0_is_taken), nullptr);
  EXPECT_EQ(drain(queue), (Ids{1, 3}));
}

TEST(FairQueue, RemovedJob_IsGoneAndOthersStay) {
  FairQueue queue;
  for (RequestId id = 1; id <= 3; ++id) queue.push(job(id, id == 2 ? "b" : "a"));
  EXPECT_EQ(queue.remove(2)->id, 2u);
  EXPECT_EQ(queue.remove(2), nullptr);
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_EQ(queue.remove_all().size(), 2u);
  EXPECT_EQ(queue.size(), 0u);
}

}  // namespace
}  // namespace terrace::serve
