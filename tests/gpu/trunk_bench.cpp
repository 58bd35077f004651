// How fast a whole step on a card is, in the shape of Qwen3-30B-A3B with random weights, beside what its bytes take at
// the rate of a copy on the same card. No model file, no tokenizer, no server: the step alone. Nothing is judged here.
//
// usage: terrace_gpu_trunk_bench [CARD [ROWS [DEPTH]]]      with ROWS that size alone, for a profiler
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "kernels/card/card_trunk.h"
#include "kernels/card/expert_card.h"
#include "kernels/cuda/device/card.h"
#include "kernels/cuda/experts/open.h"

namespace terrace::kernels {
namespace {

constexpr std::uint32_t kLayers = 48, kModel = 2048, kExperts = 128, kTopK = 8, kWidth = 768, kVocabulary = 151936;
constexpr std::uint32_t kHeads = 32, kKvHeads = 4, kHeadDim = 128, kContext = 8192;
constexpr std::uint32_t kMostRows = 4096;
constexpr std::uint64_t kBudget = std::uint64_t{26} << 30;

// Random weights of some size: scales are small, so that values stay finite.
class RandomWeights {
 public:
  HostMatrix matrix(TensorType type, std::uint32_t rows, std::uint32_t cols) {
    std::vector<std::byte>& bytes = made_[std::to_string(static_cast<int>(type)) + "/" + std::to_string(rows * cols)];
    if (bytes.empty()) fill(bytes, type, rows, cols);
    return {type, bytes.data(), rows, cols};
  }
  const float* norm(std::uint32_t n) {
    ones_.resize(kModel, 1.0f);
    return n <= kModel ? ones_.data() : nullptr;
  }

 private:
  void fill(std::vector<std::byte>& bytes, TensorType type, std::uint32_t rows, std::uint32_t cols) {
    bytes.resize(rows * row_bytes(type, cols));
    if (type == TensorType::kF32) {
      std::normal_distribution<float> bell(0.0f, 0.02f);
      for (std::size_t i = 0; i < bytes.size(); i += sizeof(float)) {
        const float value = bell(rng_);
        std::memcpy(bytes.data() + i, &value, sizeof value);
      }
      return;
    }
    for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
      const std::uint64_t word = rng_();
      std::memcpy(bytes.data() + i, &word, sizeof word);
    }
    const std::size_t block = info(type).block_bytes;
    const std::uint16_t small = 0x0400;  // f16, 6e-5
    for (std::size_t i = 0; i < bytes.size(); i += block) {
      std::memcpy(bytes.data() + i + (type == TensorType::kQ6_K ? 208 : 0), &small, sizeof small);
      if (type == TensorType::kQ4_K) std::memcpy(bytes.data() + i + 2, &small, sizeof small);
    }
  }

  std::mt19937_64 rng_{20281};
  std::map<std::string, std::vector<std::byte>> made_;
  std::vector<float> ones_;
};

// Q4_K_M: half of the layers have V and down in Q6_K.
TensorType better_type(std::uint32_t layer) { return layer % 2 == 0 ? TensorType::kQ6_K : TensorType::kQ4_K; }

CardTrunkModel make_model(RandomWeights& weights) {
  CardTrunkModel model;
  model.d_model = kModel;
  model.vocabulary = kVocabulary;
  model.n_heads = kHeads;
  model.n_kv_heads = kKvHeads;
  model.key_dim = model.value_dim = model.n_rot = kHeadDim;
  model.score_scale = 0.088388f;
  model.attention_norm_eps = model.norm_eps = 1e-6f;
  model.n_experts = kExperts;
  model.top_k = kTopK;
  for (std::uint32_t i = 0; i < kLayers; ++i) {
    CardTrunkLayer layer;
    layer.attention_norm = layer.expert_norm = weights.norm(kModel);
    layer.q_norm = layer.k_norm = weights.norm(kHeadDim);
    layer.q = weights.matrix(TensorType::kQ4_K, kHeads * kHeadDim, kModel);
    layer.k = weights.matrix(TensorType::kQ4_K, kKvHeads * kHeadDim, kModel);
    layer.v = weights.matrix(better_type(i), kKvHeads * kHeadDim, kModel);
    layer.output = weights.matrix(TensorType::kQ4_K, kModel, kHeads * kHeadDim);
    layer.router = weights.matrix(TensorType::kF32, kExperts, kModel);
    layer.experts = {TensorType::kQ4_K, TensorType::kQ4_K, better_type(i), kModel, kWidth};
    model.layers.push_back(layer);
  }
  model.output_norm = weights.norm(kModel);
  model.head = weights.matrix(TensorType::kQ6_K, kVocabulary, kModel);
  return model;
}

std::uint64_t bytes_of_a_token(const CardTrunkModel& model) {
  std::uint64_t bytes = model.head.bytes();
  for (const CardTrunkLayer& layer : model.layers)
    bytes += layer.q.bytes() + layer.k.bytes() + layer.v.bytes() + layer.output.bytes() + layer.router.bytes() +
             kTopK * layer.experts.slab_bytes();
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
    TERRACE_ASSIGN_OR_RETURN(trunk_, card_.make_trunk(model_, limits, card_.slab_memory().first(bytes)));
    TERRACE_RETURN_IF_ERROR(place_slabs(card_.slab_memory().subspan(bytes)));
    if (rows_alone != 0) return time("rows", rows_alone, depth_alone, 1, 3);
    const double limit = copy_rate_ / static_cast<double>(bytes_of_a_token(model_));
    fmt::print("a token reads {:.2f} GB of weights: at most {:.0f} tok/s\n",
               static_cast<double>(bytes_of_a_token(model_)) * 1e-9, limit);
    for (const std::uint32_t depth : {512u, 4096u, 8190u}) TERRACE_RETURN_IF_ERROR(time("1 row", 1, depth, 1, 40));
    TERRACE_RETURN_IF_ERROR(time("8 rows of a stream", 8, 512, 8, 20));
    for (const std::uint32_t depth : {0u, 512u, 3584u}) TERRACE_RETURN_IF_ERROR(time("512 rows", 512, depth, 1, 4));
    for (const std::uint32_t rows : {16u, 32u, 64u, 128u, 1024u, 2048u, 4096u})
      TERRACE_RETURN_IF_ERROR(time(fmt::format("{} rows", rows).c_str(), rows, 0, 1, 3));
    return {};
  }

 private:
  // Every slab in memory of its own, all with the same bytes.
  Status place_slabs(std::span<std::byte> memory) {
    TERRACE_ASSIGN_OR_RETURN(const auto writer, card_.make_writer());
    RandomWeights weights;
    const auto place = [&](TensorType type, std::uint32_t rows, std::uint32_t cols) -> Result<const std::byte*> {
      const HostMatrix matrix = weights.matrix(type, rows, cols);
      const std::size_t bytes = (matrix.bytes() + 255) / 256 * 256;
      TERRACE_CHECK(bytes <= memory.size(), "memory for every slab");
      TERRACE_RETURN_IF_ERROR(writer->write(memory.data(), {matrix.data, matrix.bytes()}));
      const std::byte* const at = memory.data();
      memory = memory.subspan(bytes);
      return at;
    };
    for (const CardTrunkLayer& layer : model_.layers)
      for (std::uint32_t e = 0; e < kExperts; ++e) {
        SlabView slab;
        TERRACE_ASSIGN_OR_RETURN(slab.gate, place(layer.experts.gate, kWidth, kModel));
        TERRACE_ASSIGN_OR_RETURN(slab.up, place(layer.experts.up, kWidth, kModel));
        TERRACE_ASSIGN_OR_RETURN(slab.down, place(layer.experts.down, kModel, kWidth));
        slabs_.push_back(slab);
      }
    return {};
  }

  Status step(std::uint32_t n_rows, std::uint32_t depth, std::uint32_t n_wanted) {
    const CardStepInput in = trunk_->begin({n_rows, 1, n_wanted, depth + n_rows});
    for (std::size_t i = 0; i < std::size_t{n_rows} * kModel; ++i) in.x[i] = random_[i];
    for (std::size_t i = 0; i < std::size_t{n_rows} * kHeadDim / 2; ++i) {
      in.cosines[i] = 0.8f;
      in.sines[i] = 0.6f;
    }
    for (std::uint32_t i = 0; i < n_rows; ++i) {
      in.positions[i] = depth + i;
      in.n_keys[i] = depth + i + 1;
      in.tables[i] = 0;
    }
    for (std::uint32_t i = 0; i < n_wanted; ++i) in.wanted[i] = n_rows - n_wanted + i;
    for (std::uint32_t i = 0; i < in.blocks_stride; ++i) in.blocks[i] = i;
    TERRACE_ASSIGN_OR_RETURN(const CardStepResult result, trunk_->run(slabs_));
    failures_ += result.failures.size();
    return {};
  }

  Status time(const char* what, std::uint32_t n_rows, std::uint32_t depth, std::uint32_t n_wanted, int repeats) {
    if (random_.empty()) {
      std::mt19937 rng(7);
      std::normal_distribution<float> bell;
      random_.resize(std::size_t{kMostRows} * kModel);
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
};

// Bytes that a copy on the card reads and writes in a second.
Result<double> measure_copy(int index) {
  constexpr std::uint64_t kBytes = std::uint64_t{2} << 30;
  TERRACE_ASSIGN_OR_RETURN(const auto card, cuda::Card::open(index, 2 * kBytes));
  TERRACE_ASSIGN_OR_RETURN(const cuda::Stream stream, card->make_stream());
  TERRACE_ASSIGN_OR_RETURN(const cuda::Event begin, card->make_event());
  TERRACE_ASSIGN_OR_RETURN(const cuda::Event end, card->make_event());
  TERRACE_ASSIGN_OR_RETURN(std::byte* const from, card->take(kBytes, "a copy"));
  TERRACE_ASSIGN_OR_RETURN(std::byte* const to, card->take(kBytes, "a copy"));
  TERRACE_RETURN_IF_ERROR(stream.fill(from, 0x5a, kBytes));
  for (int i = 0; i < 5; ++i) {
    TERRACE_RETURN_IF_ERROR(stream.record(begin));
    TERRACE_RETURN_IF_ERROR(stream.copy_on_card(to, from, kBytes));
    TERRACE_RETURN_IF_ERROR(stream.record(end));
  }
  TERRACE_RETURN_IF_ERROR(stream.synchronize());
  TERRACE_ASSIGN_OR_RETURN(const float ms, end.milliseconds_since(begin));
  return 2.0 * static_cast<double>(kBytes) / (double{ms} * 1e-3);
}

Status run(const std::vector<std::uint32_t>& arguments) {
  const auto argument = [&](std::size_t i) { return i < arguments.size() ? arguments[i] : 0; };
  TERRACE_ASSIGN_OR_RETURN(const double copy_rate, measure_copy(static_cast<int>(argument(0))));
  fmt::print("a copy moves {:.0f} GB/s\n", copy_rate * 1e-9);
  TERRACE_ASSIGN_OR_RETURN(const auto card, cuda::open_expert_card(argument(0), kBudget));
  RandomWeights weights;
  return Bench(*card, make_model(weights), copy_rate).run(argument(1), argument(2));
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
