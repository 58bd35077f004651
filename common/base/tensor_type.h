// The tensor types that a GGUF file may hold: ids, names and block sizes (docs/formats.md). Every type is known by
// name; which of them this build computes with is the kernel registry's answer (kernels/registry).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace terrace {

// Values are the ids in the file. Ids that were removed from the format (4, 5, 31..33, 36..38) have no name here.
enum class TensorType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
  kQ1_0 = 41,
  kQ2_0 = 42,
};

struct TensorTypeInfo {
  TensorType type;
  std::string_view name;       // as written in model files' tables: "Q4_K"
  std::uint32_t block_values;  // values in one block
  std::uint32_t block_bytes;   // bytes of one block
};

// All known types, rising by id.
std::span<const TensorTypeInfo> all_tensor_types();
// nullptr for an id that has no type.
const TensorTypeInfo* find_tensor_type(std::uint32_t id);
// Case does not matter ("q4_k").
const TensorTypeInfo* find_tensor_type(std::string_view name);
const TensorTypeInfo& info(TensorType type);

// Bytes of a row of `values` values; `values` must be a multiple of the block (the reader has checked it).
std::uint64_t row_bytes(TensorType type, std::uint64_t values);

// The form in which activation rows meet a weight type (docs/numerics.md 2).
enum class ActivationClass : std::uint8_t {
  kF32 = 0,     // the values
  kA8x32 = 1,   // blocks of f32 d, int8 q[32]: 36 bytes
  kA8x256 = 2,  // blocks of f32 d, int8 q[256]: 260 bytes
};
inline constexpr std::size_t kActivationClasses = 3;

const char* name(ActivationClass activation);  // "f32", "a8_32", "a8_256"
// Values of one block of the class: 1, 32, 256.
std::uint32_t block_values(ActivationClass activation);
// Bytes of a row of `values` values in this class; a multiple of the class's block.
std::uint64_t row_bytes(ActivationClass activation, std::uint64_t values);

}  // namespace terrace
