// Makes a model file of random weights: whole and loadable, of any size, the same bytes for the same seed. For
// benchmarks and tests that need a shape nobody publishes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "common/base/result.h"

namespace terrace::tools {

// Which types the tensors get: one type for all matrices, or a stock mix of quantisers.
enum class Mix : std::uint8_t { kF32, kF16, kBF16, kQ8_0, kQ4_0, kQ4_K_M };

struct RandomModel {
  std::string architecture = "qwen3moe";
  std::uint32_t layers = 12;
  std::uint32_t d_model = 1024;
  std::uint32_t heads = 16;
  std::uint32_t kv_heads = 4;
  std::uint32_t head_dim = 64;
  std::uint32_t experts = 64;
  std::uint32_t top_k = 8;
  std::uint32_t ff = 512;  // of one expert
  std::uint32_t vocab = 32000;
  std::uint32_t context = 40960;
  // Of the tokens' embeddings; the larger, the more a row is its token's own. At 1 what layers add is larger by far and
  // much the same for all rows, so that after a few layers most rows choose the same experts.
  float embedding_scale = 1;
  Mix mix = Mix::kQ4_K_M;
  std::uint64_t seed = 1;
};

// "q4_k_m"; kInvalidArgument lists those there are.
Result<Mix> mix_from_name(const std::string& name);

struct Written {
  std::size_t n_tensors = 0;
  std::uint64_t bytes = 0;
};
// kInvalidArgument: numbers that do not go together, by the names of their flags. kIo: as gguf::Writer.
Result<Written> write_random_model(const RandomModel& model, const std::filesystem::path& path);

}  // namespace terrace::tools
