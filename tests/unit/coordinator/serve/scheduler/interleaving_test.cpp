// P4: whatever runs beside a request, however its prompt is cut, whatever it takes over from others, and however often
// it gives its memory back, its logits are those it has alone, to the bit.
#include <gtest/gtest.h>

#include <iostream>
#include <random>

#include "tests/unit/coordinator/serve/scheduler/batched_requests.h"

namespace terrace {
namespace {

using serve::Request;
using test::Answer;

// A schedule, all of it from the seed.
class Schedule {
 public:
  explicit Schedule(std::uint64_t seed) : random_(seed) {}

  std::uint32_t between(std::uint32_t least, std::uint32_t most) {
    return least + static_cast<std::uint32_t>(random_() % (most - least + 1));
  }
  bool one_in(std::uint32_t n) { return between(1, n) == 1; }

  serve::SchedulerOptions options() {
    serve::SchedulerOptions options;
    options.slots = between(1, 8);
    options.chunk_rows = between(1, 24);
    const std::uint64_t block = test::ServedModel::kBlockBytes;
    options.resting_bytes = one_in(4) ? 0 : between(1, 20) * block;
    return options;
  }
  // Half of them with a cache that the requests cannot all have room in.
  arch::TrunkOptions trunk(const serve::SchedulerOptions& options) {
    const std::uint32_t streams = options.slots + serve::kSpareStreams + between(0, 6);
    return test::ServedModel::trunk(streams, options.slots + between(1, 40), one_in(2) ? between(9, 11) : 0);
  }
  // Of few families, so that prompts begin alike, end in each other, or are equal.
  Request request() {
    std::vector<std::int32_t> prompt = test::some_tokens(between(1, 90), static_cast<std::int32_t>(between(1, 3)));
    const auto tail = test::some_tokens(between(0, 30), static_cast<std::int32_t>(between(4, 9)));
    prompt.insert(prompt.end(), tail.begin(), tail.end());
    Request request = test::request_for(prompt, one_in(12) ? 0 : between(1, one_in(4) ? 120 : 20));
    if (!one_in(3)) request.sampling.temperature = 0.9f;
    request.sampling.seed = between(0, 3);
    if (one_in(5)) request.sampling.repeat_penalty = 1.3f;
    if (one_in(5)) request.stops = {"e", "ab"};
    request.reuse_prefix = !one_in(6);
    return request;
  }

 private:
  std::mt19937_64 random_;
};

struct Totals {
  std::uint64_t cached = 0, preemptions = 0, evictions = 0, cancelled = 0;
};

void run(std::uint64_t seed, Totals& totals) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Schedule schedule(seed);
  const serve::SchedulerOptions options = schedule.options();
  test::Backwards parallel;
  test::ServedModel model(schedule.trunk(options), parallel);
  std::vector<Request> requests;
  {
    test::BatchedRequests batched(model, options);
    const std::uint32_t n_requests = schedule.between(2, 14);
    while (requests.size() < n_requests || batched.busy()) {
      if (requests.size() < n_requests && schedule.one_in(3)) {
        requests.push_back(schedule.request());
        batched.submit(requests.back());
        // Several choices of one prompt.
        if (requests.size() < n_requests && schedule.one_in(3)) {
          requests.push_back(requests.back());
          requests.back().sampling.seed = 77;
          batched.submit(requests.back());
        }
      }
      if (!requests.empty() && schedule.one_in(40)) {
        const std::size_t index = schedule.between(0, static_cast<std::uint32_t>(requests.size() - 1));
        if (!batched.heard(index).is_over()) batched.cancel(index);
      }
      batched.step();
    }
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const test::Heard& heard = batched.heard(i);
      ASSERT_FALSE(heard.error().has_value()) << heard.error()->text();
      ASSERT_TRUE(heard.reason().has_value());
      EXPECT_FALSE(heard.over_twice());
      const auto [alone, reason] = test::tiny_alone().run(requests[i]);
      if (heard.reason() == serve::EndReason::kCancelled) {
        EXPECT_TRUE(heard.answer().begins(alone)) << "request " << i << ", cancelled";
      } else {
        EXPECT_EQ(heard.answer(), alone) << "request " << i;
        EXPECT_EQ(heard.reason(), reason) << "request " << i;
      }
    }
    const serve::SchedulerStatus status = batched.status();
    EXPECT_EQ(status.cache_bytes, status.cache_bytes_resting) << "a stream is left that nobody runs";
    EXPECT_LE(status.cache_bytes_resting, options.resting_bytes);
    totals.cached += status.counters.prompt_tokens_cached;
    totals.preemptions += status.counters.preemptions;
    totals.evictions += status.counters.evictions;
    totals.cancelled += status.counters.requests_cancelled;
  }
  EXPECT_EQ(model.trunk().cache().bytes_in_use(), 0u);
}

TEST(Interleaving, AnySchedule_EachRequestHasTheBitsItHasAlone) {
  Totals totals;
  for (std::uint64_t seed = 1; seed <= 120 && !testing::Test::HasFailure(); ++seed) run(seed, totals);
  std::cout << "taken over: " << totals.cached << " tokens; computed again: " << totals.preemptions
            << "; evicted: " << totals.evictions << "; cancelled: " << totals.cancelled << "\n";
  // The schedules do what they are made for.
  EXPECT_GT(totals.cached, 1000u);
  EXPECT_GT(totals.preemptions, 20u);
  EXPECT_GT(totals.evictions, 100u);
  EXPECT_GT(totals.cancelled, 20u);
}

}  // namespace
}  // namespace terrace
