// The numbers of a qwen3moe model, from its metadata keys (docs/formats.md; Qwen3-30B-A3B, 235B-A22B).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "common/base/result.h"
#include "common/gguf/file.h"
#include "coordinator/arch/parts/gqa.h"

namespace terrace::arch::qwen3moe {

inline constexpr std::uint32_t kMostTokens = std::numeric_limits<std::int32_t>::max();  // an id travels as i32

struct Parameters {
  std::uint32_t n_layers = 0;
  std::uint32_t d_model = 0;
  std::uint32_t context = 0;
  GqaShape attention;
  std::uint32_t n_experts = 0;
  std::uint32_t top_k = 0;
  std::uint32_t expert_ff = 0;
  std::optional<float> expert_scale;        // times the renormalised weights, where it is not 0 or 1
  std::optional<std::uint32_t> vocabulary;  // where the file has the key; it equals the embedding's rows
  float norm_eps = 0;
};

// kNotFound, kCorrupt: a key is missing, of another type or out of its range. kUnsupported: the file asks for
// something that this architecture does not do (another gating function, a sliding window, ...). Errors name the file
// and the key.
Result<Parameters> read_parameters(const gguf::File& file);

}  // namespace terrace::arch::qwen3moe
