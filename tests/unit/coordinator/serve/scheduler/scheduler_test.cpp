// The scheduler from other threads: queue, cancel, stop, status.
#include "coordinator/serve/scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <random>
#include <thread>

#include "coordinator/sampler/grammar/grammar.h"
#include "tests/unit/coordinator/serve/scheduler/scheduler_fixture.h"

namespace terrace::serve {
namespace {

using namespace std::chrono_literals;
using test::Heard;
using test::long_request;
using test::request_for;
using test::SchedulerTest;
using test::ServedModel;
using test::some_tokens;
using test::with;

TEST_F(SchedulerTest, Request_GivesWhatItGivesAlone) {
  const auto scheduler = make(with(2));
  const Request request = request_for(some_tokens(20, 1), 10);
  const auto heard = ask(*scheduler, request);
  expect_alone(*heard, request);
  EXPECT_EQ(heard->reason(), EndReason::kLimit);
}

TEST_F(SchedulerTest, WhatCannotBe_IsRefusedBeforeTheQueue) {
  const auto scheduler = make(with(2));
  const auto code_of = [&](Request request) {
    const auto heard = std::make_shared<Heard>();
    const auto refused = scheduler->submit(std::move(request), heard);
    EXPECT_FALSE(heard->is_over());
    return refused.ok() ? std::string("ok") : std::string(terrace::name(refused.error().code()));
  };
  EXPECT_EQ(code_of(request_for({})), "InvalidArgument");
  EXPECT_EQ(code_of(request_for({-1})), "InvalidArgument");
  EXPECT_EQ(code_of(request_for({320})), "InvalidArgument");
  Request request = request_for({5});
  request.sampling.top_p = 2;
  EXPECT_EQ(code_of(request), "InvalidArgument");
  request = request_for({5});
  request.stops = {""};
  EXPECT_EQ(code_of(request), "InvalidArgument");
  request = request_for({5});
  request.slot = 2;
  EXPECT_EQ(code_of(request), "InvalidArgument");
  request = request_for({5});
  request.logit_bias = {{320, 1.0f}};
  EXPECT_EQ(code_of(request), "InvalidArgument");
  EXPECT_EQ(scheduler->status().counters.requests, 0u);
}

TEST_F(SchedulerTest, PromptBeyondTheContext_IsRefusedWithBothNumbers) {
  const auto scheduler = make(with(1));
  EXPECT_EQ(scheduler->context(), 256u);
  const auto refused = scheduler->submit(request_for(some_tokens(256, 1)), std::make_shared<Heard>());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kContextFull);
  EXPECT_THAT(refused.error().text(), testing::HasSubstr("256 tokens (n_prompt_tokens)"));
  const Request fits = request_for(some_tokens(255, 1), kUnlimited);
  const auto heard = ask(*scheduler, fits);
  expect_alone(*heard, fits);
  EXPECT_EQ(heard->reason(), EndReason::kContext);
}

TEST_F(SchedulerTest, FullQueue_IsBusyAndTakesMoreOnceThereIsRoom) {
  const auto scheduler = make(with(1, 1));
  const auto gate = std::make_shared<Gate>();
  ASSERT_TRUE(scheduler->submit(request_for(some_tokens(5, 1), 2), gate).ok());
  gate->wait_until_reached();
  const Request request = request_for(some_tokens(5, 2), 2);
  const auto waits = ask(*scheduler, request);
  const auto refused = scheduler->submit(request, std::make_shared<Heard>());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kBusy);
  const SchedulerStatus status = scheduler->status();  // while the scheduler's thread is held
  EXPECT_EQ(status.queued, 1u);
  EXPECT_EQ(status.counters.requests_refused, 1u);
  EXPECT_EQ(status.slots[0].state, SlotState::kPrompt);
  gate->open();
  expect_alone(*waits, request);
  expect_alone(*ask(*scheduler, request), request);
}

TEST_F(SchedulerTest, Cancel_EndsARequestThatRunsAndOneThatWaits) {
  const auto scheduler = make(with(1));
  const auto runs = ask(*scheduler, long_request(1));
  const RequestId running = last_;
  const auto waits = ask(*scheduler, long_request(2));
  EXPECT_TRUE(scheduler->cancel(last_));
  ASSERT_TRUE(waits->wait_for_end());
  EXPECT_EQ(waits->reason(), EndReason::kCancelled);
  EXPECT_FALSE(waits->slot());
  scheduler->cancel(running);
  ASSERT_TRUE(runs->wait_for_end());
  const Request next = request_for(some_tokens(9, 3), 3);
  expect_alone(*ask(*scheduler, next), next);
  EXPECT_FALSE(scheduler->cancel(running));
  EXPECT_FALSE(scheduler->cancel(12345));
}

TEST_F(SchedulerTest, ListenerMayCancelItself) {
  class Leaves final : public Listener {
   public:
    void on_piece(const Piece&, const Timings& so_far) override {
      if (so_far.predicted_n == 3) scheduler->cancel(id.get_future().get());
    }
    void on_end(const End& end) override { ended.set_value(end.reason); }
    void on_error(const Error&, const Timings&) override {}
    Scheduler* scheduler = nullptr;
    std::promise<RequestId> id;
    std::promise<EndReason> ended;
  };
  const auto scheduler = make(with(1));
  const auto leaves = std::make_shared<Leaves>();
  leaves->scheduler = scheduler.get();
  leaves->id.set_value(test::value_of(scheduler->submit(long_request(1), leaves)));
  EXPECT_EQ(leaves->ended.get_future().get(), EndReason::kCancelled);
}

TEST_F(SchedulerTest, Stop_LetsRunningRequestsEndAndRefusesNewOnes) {
  const auto scheduler = make(with(1));
  const Request request = request_for(some_tokens(9, 3), 30);
  const auto runs = ask(*scheduler, request);
  ASSERT_TRUE(runs->wait_for_tokens(1));
  const auto waits = ask(*scheduler, request);
  scheduler->stop(1min);
  EXPECT_TRUE(runs->is_over());
  expect_alone(*runs, request);
  if (waits->reason() != EndReason::kLimit) {  // it had the slot already where the other one was quick
    EXPECT_EQ(waits->reason(), EndReason::kStopping);
  }
  EXPECT_EQ(scheduler->submit(request, std::make_shared<Heard>()).error().code(), ErrorCode::kRefused);
  EXPECT_TRUE(scheduler->status().stopping);
}

TEST_F(SchedulerTest, StopAtOnce_EndsRunningRequestsWithWhatTheyHave) {
  auto scheduler = make(with(2));
  const auto gate = std::make_shared<Gate>();
  ASSERT_TRUE(scheduler->submit(long_request(1), gate).ok());
  gate->wait_until_reached();
  const auto second = ask(*scheduler, long_request(2));
  std::thread stops([&] { scheduler->stop(0ms); });
  while (!scheduler->status().stopping) std::this_thread::yield();
  gate->open();
  stops.join();
  ASSERT_TRUE(second->is_over());
  EXPECT_EQ(second->reason(), EndReason::kStopping);
  EXPECT_TRUE(second->answer().begins(test::tiny_alone().run(long_request(2)).first));
}

TEST_F(SchedulerTest, StepThatFails_IsToldByStatusUntilOneWorks) {
  const auto scheduler = make(with(1));
  model_.model().tap().fail_submit(1);
  const Request request = request_for(some_tokens(9, 3), 3);
  const auto failed = ask(*scheduler, request);
  ASSERT_TRUE(failed->wait_for_end());
  ASSERT_TRUE(failed->error());
  while (!scheduler->status().step_error) std::this_thread::yield();
  expect_alone(*ask(*scheduler, request), request);
  while (scheduler->status().step_error) std::this_thread::yield();
  EXPECT_EQ(scheduler->status().counters.steps_failed, 1u);
}

TEST_F(SchedulerTest, Grammar_HoldsBesideAFreeStream) {
  const auto scheduler = make(with(2));
  const auto grammar = sampler::Grammar::from_gbnf("root ::= [0-9]{3} \"-\" [a-c]{2}");
  ASSERT_TRUE(grammar.ok()) << grammar.error().text();
  Request bound = request_for(some_tokens(20, 1), 50);
  bound.grammar = *grammar;
  bound.sampling.temperature = 1.0f;
  const Request free = request_for(some_tokens(20, 2), 20);
  const auto heard_bound = ask(*scheduler, bound), heard_free = ask(*scheduler, free);
  expect_alone(*heard_free, free);
  ASSERT_TRUE(heard_bound->wait_for_end());
  EXPECT_THAT(heard_bound->answer().text, testing::MatchesRegex("[0-9][0-9][0-9]-[abc][abc]"));
  EXPECT_EQ(heard_bound->reason(), EndReason::kEos);
}

TEST_F(SchedulerTest, TooFewStreamsRowsOrBlocks_AreRefusedByName) {
  const auto refused = [&](const arch::TrunkOptions& trunk) {
    ServedModel model(trunk, serial_);
    const auto scheduler = Scheduler::make(model.parts(), with(4));
    return scheduler.ok() ? std::string() : scheduler.error().text();
  };
  EXPECT_THAT(refused(ServedModel::trunk(5)), testing::HasSubstr("6 streams"));
  EXPECT_THAT(refused(ServedModel::trunk(8, 4)), testing::HasSubstr("--batch"));
  EXPECT_THAT(refused(ServedModel::trunk(8, 64, 8)), testing::HasSubstr("--ctx-size"));
  EXPECT_EQ(refused(ServedModel::trunk(6, 5, 9)), "");
}

// ---- many clients ---------------------------------------------------------------------------------------------------

TEST_F(SchedulerTest, ManyClientsWithRandomCancels_NoStuckSlotAndNoWrongToken) {
  constexpr int kClients = 6, kRequests = 12;
  const auto scheduler = make(with(3, 100));
  std::mutex alone;  // its engine has one owner at a time
  const auto client = [&](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int i = 0; i < kRequests; ++i) {
      Request request =
          request_for(some_tokens(1 + random() % 60, static_cast<std::int32_t>(random() % 3)), 1 + random() % 12);
      request.sampling.temperature = 1.0f;
      request.sampling.seed = random() % 4;
      request.client = std::to_string(seed);
      const auto heard = std::make_shared<Heard>();
      const auto id = scheduler->submit(request, heard);
      ASSERT_TRUE(id.ok()) << id.error().text();
      if (random() % 3 == 0) {
        heard->wait_for_tokens(random() % 3);
        scheduler->cancel(*id);
      }
      ASSERT_TRUE(heard->wait_for_end()) << "seed " << seed;
      ASSERT_FALSE(heard->error());
      const std::lock_guard lock(alone);
      const test::Answer whole = test::tiny_alone().run(request).first;
      if (heard->reason() == EndReason::kCancelled) {
        EXPECT_TRUE(heard->answer().begins(whole)) << "seed " << seed << ", request " << i;
      } else {
        EXPECT_EQ(heard->answer(), whole) << "seed " << seed << ", request " << i;
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kClients; ++i) threads.emplace_back(client, static_cast<std::uint64_t>(i) + 1);
    threads.emplace_back([&](const std::stop_token& stopped) {
      while (!stopped.stop_requested()) {
        const SchedulerStatus status = scheduler->status();
        EXPECT_EQ(status.slots.size(), 3u);
        EXPECT_LE(status.cache_bytes_resting, status.cache_bytes);
        std::this_thread::sleep_for(1ms);
      }
    });
    for (int i = 0; i < kClients; ++i) threads[static_cast<std::size_t>(i)].join();
  }
  scheduler->stop(1min);
  const SchedulerStatus status = scheduler->status();
  EXPECT_EQ(status.counters.requests, std::uint64_t{kClients} * kRequests);
  EXPECT_EQ(status.counters.requests_ended + status.counters.requests_cancelled, status.counters.requests);
  EXPECT_EQ(status.queued, 0u);
  for (const SlotStatus& slot : status.slots) EXPECT_EQ(slot.state, SlotState::kIdle);
}

}  // namespace
}  // namespace terrace::serve
