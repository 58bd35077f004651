// How fast a whole step on a card is, in the shape of Qwen3-30B-A3B with random weights, beside what its bytes take at
// the rate of a copy on the same card. No model file, no tokenizer, no server: the step alone. Nothing is judged here.
//
// usage: terrace_gpu_trunk_bench [CARD [ROWS [DEPTH]]]      with ROWS that size alone, for a profiler
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/card/card_trunk.h"
#include "kernels/card/expert_card.h"
#include "kernels/cuda/device/card.h"
#include "kernels/cuda/experts/open.h"
#include "tests/gpu/bench_card.h"
#include "tests/gpu/link_rate.h"
#include "tests/gpu/random_trunk.h"

namespace terrace::kernels {
namespace {

using test::fill_step;
using test::make_model;
using test::place_slabs;
using test::RandomWeights;

constexpr test::TrunkShape kShape{.n_layers = 48,
                                  .d_model = 2048,
                                  .n_experts = 128,
                                  .top_k = 8,
                                  .ff = 768,
                                  .vocabulary = 151936,
                                  .n_heads = 32,
                                  .n_kv_heads = 4,
                                  .head_dim = 128};
constexpr std::uint32_t kContext = 8192;
constexpr std::uint32_t kMostRows = 4096;
constexpr std::uint64_t kBudget = std::uint64_t{26} << 30;

std::uint64_t bytes_of_a_token(const CardTrunkModel& model) {
  std::uint64_t bytes = model.head.bytes();
  for (const CardTrunkLayer& layer : model.layers)
    bytes += layer.q.bytes() + layer.k.bytes() + layer.v.bytes() + layer.output.bytes() + layer.router.bytes() +
             kShape.top_k * layer.experts.slab_bytes();
  return bytes;
}

class Bench {
 public:
  Bench(ExpertCard& card, CardTrunkModel model, double copy_rate)
      : card_(card), model_(std::move(model)), copy_rate_(copy_rate) {}

  // One size alone where `rows` is not 0.
  Status run(std::uint32_t rows_alone, std::uint32_t depth_alone) {
    const CardTrunkLimits limits{KvType::kF16, kMostRows, 16, kContext, kContext / kKvBlockPositions};
    TERRACE_ASSIGN_OR_RETURN(const std::uint64_t bytes, card_.trunk_bytes(model_, limits));
    TERRACE_ASSIGN_OR_RETURN(trunk_, card_.make_trunk(model_, limits, card_.slab_memory().first(bytes), {}));
    RandomWeights weights;
    TERRACE_ASSIGN_OR_RETURN(slabs_, place_slabs(card_, model_, weights, card_.slab_memory().subspan(bytes)));
    if (rows_alone != 0) return time("rows", rows_alone, depth_alone, 1, 3);
    const double limit = copy_rate_ / static_cast<double>(bytes_of_a_token(model_));
    fmt::print("a token reads {:.2f} GB of weights: at most {:.0f} tok/s\n",
               static_cast<double>(bytes_of_a_token(model_)) * 1e-9, limit);
    for (const std::uint32_t depth : {512u, 4096u, 8190u}) TERRACE_RETURN_IF_ERROR(time("1 row", 1, depth, 1, 40));
    TERRACE_RETURN_IF_ERROR(time("8 rows of a stream", 8, 512, 8, 20));
    beside_legs_ = true;
    TERRACE_RETURN_IF_ERROR(time("1 row, no experts", 1, 512, 1, 40));
    beside_legs_ = false;
    for (const std::uint32_t depth : {0u, 512u, 3584u}) TERRACE_RETURN_IF_ERROR(time("512 rows", 512, depth, 1, 4));
    for (const std::uint32_t rows : {16u, 32u, 64u, 128u, 1024u, 2048u, 4096u})
      TERRACE_RETURN_IF_ERROR(time(fmt::format("{} rows", rows).c_str(), rows, 0, 1, 3));
    return {};
  }

 private:
  Status step(std::uint32_t n_rows, std::uint32_t depth, std::uint32_t n_wanted) {
    const CardStepInput in = trunk_->begin({n_rows, 1, n_wanted, depth + n_rows});
    fill_step(model_, {n_rows, 1, n_wanted, depth + n_rows}, random_, in);
    TERRACE_ASSIGN_OR_RETURN(const CardStepResult result, beside_legs_ ? give_nothing() : trunk_->run(slabs_));
    failures_ += result.failures.size();
    return {};
  }

  // The card's part where all experts are elsewhere, with legs that take no time: trunk, handing over and taking back.
  Result<CardStepResult> give_nothing() {
    TERRACE_RETURN_IF_ERROR(trunk_->start({}));
    std::ranges::fill(trunk_->sums(), 0);
    for (std::uint32_t layer = 0; layer < kShape.n_layers; ++layer) {
      TERRACE_RETURN_IF_ERROR(trunk_->routed(layer));
      trunk_->give_sums(layer);
    }
    return trunk_->finish();
  }

  Status time(const char* what, std::uint32_t n_rows, std::uint32_t depth, std::uint32_t n_wanted, int repeats) {
    if (random_.empty()) {
      std::mt19937 rng(7);
      std::normal_distribution<float> bell;
      random_.resize(std::size_t{kMostRows} * kShape.d_model);
      for (float& value : random_) value = bell(rng);
    }
    std::vector<double> times;
    failures_ = 0;
    for (int i = -2; i < repeats; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      TERRACE_RETURN_IF_ERROR(step(n_rows, depth, n_wanted));
      const std::chrono::duration<double, std::micro> us = std::chrono::steady_clock::now() - begin;
      if (i >= 0) times.push_back(us.count());
    }
    std::sort(times.begin(), times.end());
    const double median = times[times.size() / 2];
    fmt::print("{:20} depth {:5}: {:9.1f} us, {:8.1f} rows/s ({} failed)\n", what, depth, median, n_rows * 1e6 / median,
               failures_);
    return {};
  }

  ExpertCard& card_;
  const CardTrunkModel model_;
  const double copy_rate_;
  std::unique_ptr<CardTrunk> trunk_;
  std::vector<SlabView> slabs_;
  std::vector<float> random_;
  std::size_t failures_ = 0;
  bool beside_legs_ = false;
};

Result<double> measure_copy(int index) {
  TERRACE_ASSIGN_OR_RETURN(test::BenchCard card,
                           test::BenchCard::open(index, 2 * test::BenchCard::kWeightBytes + (std::uint64_t{1} << 20)));
  return card.copy_rate();
}

Status run(const std::vector<std::uint32_t>& arguments) {
  const auto argument = [&](std::size_t i) { return i < arguments.size() ? arguments[i] : 0; };
  const auto index = static_cast<int>(argument(0));
  TERRACE_ASSIGN_OR_RETURN(const double copy_rate, measure_copy(index));
  TERRACE_ASSIGN_OR_RETURN(const double link_rate, test::measure_link(index));
  fmt::print("a copy moves {:.0f} GB/s, one from pinned memory to the card {:.1f}\n", copy_rate * 1e-9,
             link_rate * 1e-9);
  TERRACE_ASSIGN_OR_RETURN(const auto card, cuda::open_expert_card(argument(0), kBudget));
  RandomWeights weights;
  return Bench(*card, make_model(kShape, weights), copy_rate).run(argument(1), argument(2));
}

}  // namespace
}  // namespace terrace::kernels

int main(int argc, char** argv) {
  std::vector<std::uint32_t> arguments(static_cast<std::size_t>(argc - 1));
  for (int i = 1; i < argc; ++i)
    if (i > 3 || std::from_chars(argv[i], argv[i] + std::strlen(argv[i]), arguments[i - 1]).ec != std::errc{}) {
      fmt::print(stderr, "usage: terrace_gpu_trunk_bench [CARD [ROWS [DEPTH]]]\n");
      return 2;
    }
  const terrace::Status status = terrace::kernels::run(arguments);
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", status.error().text());
  return 1;
}
