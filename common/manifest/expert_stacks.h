// What the architectures share when they look for their experts. Used by experts.cpp and <architecture>.cpp only:
// a new architecture is one file with one function, declared here and listed in experts.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/gguf/file.h"
#include "common/manifest/experts.h"

namespace terrace::manifest {

// The file's architecture is the one of the name.
Result<ModelExperts> find_qwen3moe_experts(const gguf::File& file);

// The key "<architecture>.<name>" as a number in [least, most].
Result<std::uint32_t> read_number(const gguf::File& file, std::string_view name, std::uint32_t least,
                                  std::uint32_t most);

// Architecture, block, expert and width keys; `layers` is sized to the blocks and otherwise empty.
Result<ModelExperts> read_expert_numbers(const gguf::File& file);

// The stacks blk.<layer>.ffn_{gate,up,down}_exps.weight, or gate and up fused as ffn_gate_up_exps, with every
// dimension checked. ff is the width of one expert.
Result<LayerExperts> find_stacks(const gguf::File& file, const ModelExperts& model, std::uint32_t layer,
                                 std::uint32_t ff);

}  // namespace terrace::manifest
