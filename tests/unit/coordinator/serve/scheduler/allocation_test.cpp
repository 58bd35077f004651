// Once warm, the scheduler's thread allocates nothing for a token but a cache block every 32 positions: this program
// counts every operator new.
#include <gtest/gtest.h>

#include <future>

#include "tests/unit/coordinator/serve/scheduler/served_model.h"
#include "tests/unit/count_allocations.h"

namespace terrace::serve {
namespace {

// Counts on the scheduler's thread from one of its tokens to another.
class Counts final : public Listener {
 public:
  Counts(arch::Trunk& trunk, std::uint64_t first, std::uint64_t last) : trunk_(trunk), first_(first), last_(last) {}

  void on_piece(const Piece&, const Timings& so_far) override {
    if (so_far.predicted_n == first_) from_ = now();
    if (so_far.predicted_n == last_) to_ = now();
  }
  void on_end(const End&) override { over_.set_value(); }
  void on_error(const Error& error, const Timings&) override {
    ADD_FAILURE() << error.text();
    over_.set_value();
  }
  void wait() { over_.get_future().get(); }
  std::size_t allocations() const { return to_.allocations - from_.allocations; }
  std::uint64_t blocks() const { return (to_.bytes - from_.bytes) / test::ServedModel::kBlockBytes; }

 private:
  struct Moment {
    std::size_t allocations = 0;
    std::uint64_t bytes = 0;
  };
  Moment now() const { return {test::allocations_of_this_thread(), trunk_.cache().bytes_in_use()}; }

  arch::Trunk& trunk_;
  std::uint64_t first_, last_;
  Moment from_, to_;
  std::promise<void> over_;
};

TEST(SchedulerAllocations, OfATokenOfAnyOfFourStreams_AreCacheBlocksAlone) {
  Serial serial;
  test::ServedModel model(test::ServedModel::trunk(8), serial);
  SchedulerOptions options;
  options.slots = 4;
  const auto scheduler = test::value_of(Scheduler::make(model.parts(), options));
  std::vector<std::shared_ptr<Counts>> counts;
  for (std::int32_t i = 0; i < 4; ++i) {
    // All four decode from the last one's 20th token to the first one's 150th.
    counts.push_back(std::make_shared<Counts>(model.trunk(), i == 3 ? 20 : 1, i == 3 ? 140 : 2));
    Request request = test::request_for(test::some_tokens(10, i), 200);
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 1.0f;
    request.sampling.repeat_penalty = i < 2 ? 1.0f : 1.2f;
    request.ignore_eos = true;
    request.n_probs = i == 1 ? 5 : 0;
    request.stops = {"a stop string that is not made"};
    ASSERT_TRUE(scheduler->submit(request, counts.back()).ok());
  }
  for (const auto& count : counts) count->wait();
  EXPECT_GE(counts[3]->blocks(), 12u);  // the count counts
  EXPECT_EQ(counts[3]->allocations(), counts[3]->blocks());
}

}  // namespace
}  // namespace terrace::serve
