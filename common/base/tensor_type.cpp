#include "common/base/tensor_type.h"

#include <algorithm>
#include <cctype>

#include "common/base/check.h"

namespace terrace {
namespace {

constexpr TensorTypeInfo kTypes[] = {
    {TensorType::kF32, "F32", 1, 4},
    {TensorType::kF16, "F16", 1, 2},
    {TensorType::kQ4_0, "Q4_0", 32, 18},
    {TensorType::kQ4_1, "Q4_1", 32, 20},
    {TensorType::kQ5_0, "Q5_0", 32, 22},
    {TensorType::kQ5_1, "Q5_1", 32, 24},
    {TensorType::kQ8_0, "Q8_0", 32, 34},
    {TensorType::kQ8_1, "Q8_1", 32, 36},
    {TensorType::kQ2_K, "Q2_K", 256, 84},
    {TensorType::kQ3_K, "Q3_K", 256, 110},
    {TensorType::kQ4_K, "Q4_K", 256, 144},
    {TensorType::kQ5_K, "Q5_K", 256, 176},
    {TensorType::kQ6_K, "Q6_K", 256, 210},
    {TensorType::kQ8_K, "Q8_K", 256, 292},
    {TensorType::kIQ2_XXS, "IQ2_XXS", 256, 66},
    {TensorType::kIQ2_XS, "IQ2_XS", 256, 74},
    {TensorType::kIQ3_XXS, "IQ3_XXS", 256, 98},
    {TensorType::kIQ1_S, "IQ1_S", 256, 50},
    {TensorType::kIQ4_NL, "IQ4_NL", 32, 18},
    {TensorType::kIQ3_S, "IQ3_S", 256, 110},
    {TensorType::kIQ2_S, "IQ2_S", 256, 82},
    {TensorType::kIQ4_XS, "IQ4_XS", 256, 136},
    {TensorType::kI8, "I8", 1, 1},
    {TensorType::kI16, "I16", 1, 2},
    {TensorType::kI32, "I32", 1, 4},
    {TensorType::kI64, "I64", 1, 8},
    {TensorType::kF64, "F64", 1, 8},
    {TensorType::kIQ1_M, "IQ1_M", 256, 56},
    {TensorType::kBF16, "BF16", 1, 2},
    {TensorType::kTQ1_0, "TQ1_0", 256, 54},
    {TensorType::kTQ2_0, "TQ2_0", 256, 66},
    {TensorType::kMXFP4, "MXFP4", 32, 17},
    {TensorType::kNVFP4, "NVFP4", 64, 36},
    {TensorType::kQ1_0, "Q1_0", 128, 18},
    {TensorType::kQ2_0, "Q2_0", 64, 18},
};

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

}  // namespace

std::span<const TensorTypeInfo> all_tensor_types() { return kTypes; }

const TensorTypeInfo* find_tensor_type(std::uint32_t id) {
  for (const TensorTypeInfo& t : kTypes)
    if (static_cast<std::uint32_t>(t.type) == id) return &t;
  return nullptr;
}

const TensorTypeInfo* find_tensor_type(std::string_view name) {
  for (const TensorTypeInfo& t : kTypes)
    if (equal_ignoring_case(t.name, name)) return &t;
  return nullptr;
}

const TensorTypeInfo& info(TensorType type) {
  const TensorTypeInfo* t = find_tensor_type(static_cast<std::uint32_t>(type));
  TERRACE_CHECK(t != nullptr, "a tensor type that is not in the table");
  return *t;
}

std::uint64_t row_bytes(TensorType type, std::uint64_t values) {
  const TensorTypeInfo& t = info(type);
  return values / t.block_values * t.block_bytes;
}

const char* name(ActivationClass activation) {
  switch (activation) {
    case ActivationClass::kF32:
      return "f32";
    case ActivationClass::kA8x32:
      return "a8_32";
    case ActivationClass::kA8x256:
      return "a8_256";
  }
  return "unknown";
}

std::uint32_t block_values(ActivationClass activation) {
  switch (activation) {
    case ActivationClass::kF32:
      return 1;
    case ActivationClass::kA8x32:
      return 32;
    case ActivationClass::kA8x256:
      return 256;
  }
  return 1;
}

std::uint64_t row_bytes(ActivationClass activation, std::uint64_t values) {
  if (activation == ActivationClass::kF32) return values * 4;
  const std::uint64_t block = block_values(activation);
  return values / block * (block + 4);
}

}  // namespace terrace
