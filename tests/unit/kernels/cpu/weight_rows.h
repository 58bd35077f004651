// Weight and activation rows for kernel tests, for every type of the registry: random ones and edges. All values stay
// finite unless the edge says otherwise.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/base/tensor_type.h"
#include "kernels/cpu/activations/activations.h"
#include "kernels/cpu/weight_kernels.h"

namespace terrace::kernels {
inline void PrintTo(const WeightKernels& k, std::ostream* out) { *out << k.kernel_name; }
}  // namespace terrace::kernels

namespace terrace::test {

using Bytes = std::vector<std::byte>;
using Rng = std::mt19937;

// What a block's f16 scales, or a float type's values, are set to; every other byte is `fill` or random.
struct WeightEdge {
  const char* name;
  std::uint16_t scale;  // f16 bits
  int fill;             // -1: random bytes
};
inline constexpr WeightEdge kWeightEdges[] = {
    {"bytes all 00", 0x3800, 0x00},
    {"bytes all ff", 0x3800, 0xff},
    {"bytes all 80", 0x3800, 0x80},
    {"scale zero", 0x0000, -1},
    {"scale -0", 0x8000, -1},
    {"scale negative", 0xb555, -1},
    {"scale largest", 0x7bff, -1},
    {"scale most negative", 0xfbff, -1},
    {"scale smallest normal", 0x0400, -1},
    {"scale largest subnormal", 0x03ff, -1},
    {"scale smallest subnormal", 0x8001, -1},
    {"scale infinite", 0x7c00, -1},
    {"scale NaN", 0x7e01, -1},
};

// Offsets of a block's f16 fields. A type that is not here must be added with its kernels.
inline std::vector<std::size_t> scale_offsets(TensorType type) {
  switch (type) {
    case TensorType::kQ8_0:
    case TensorType::kQ4_0:
      return {0};
    case TensorType::kQ3_K:
      return {108};
    case TensorType::kQ4_K:
    case TensorType::kQ5_K:
      return {0, 2};
    case TensorType::kQ6_K:
      return {208};
    default:
      throw std::logic_error("weight_rows.h does not know the scales of " + std::string(info(type).name));
  }
}

inline void put_u16(Bytes& bytes, std::size_t at, std::uint16_t value) { std::memcpy(&bytes[at], &value, 2); }

inline void fill_random(Bytes& bytes, Rng& rng) {
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng() & 0xff);
}

// A finite f16 of either sign between 2^-9 and 2^-4.
inline std::uint16_t ordinary_scale(Rng& rng) {
  const std::uint32_t exponent = 6 + rng() % 6;
  return static_cast<std::uint16_t>((rng() & 0x8000u) | exponent << 10 | (rng() & 0x3ffu));
}

inline bool is_float_type(TensorType type) { return info(type).block_values == 1; }

// n values of F32, F16 or BF16: bell-shaped, every 16th of another magnitude.
inline Bytes random_float_values(TensorType type, std::size_t n, Rng& rng) {
  std::normal_distribution<float> bell;
  Bytes bytes(row_bytes(type, n));
  for (std::size_t i = 0; i < n; ++i) {
    const float value = bell(rng) * (i % 16 == 7 ? 1e-4f : 1.0f);
    std::uint32_t bits;
    std::memcpy(&bits, &value, 4);
    if (type == TensorType::kF32) std::memcpy(&bytes[4 * i], &bits, 4);
    if (type == TensorType::kBF16) put_u16(bytes, 2 * i, static_cast<std::uint16_t>(bits >> 16));
    if (type == TensorType::kF16) put_u16(bytes, 2 * i, ordinary_scale(rng));
  }
  return bytes;
}

// n_rows rows of cols weights.
inline Bytes random_weights(TensorType type, std::size_t n_rows, std::size_t cols, Rng& rng) {
  if (is_float_type(type)) return random_float_values(type, n_rows * cols, rng);
  Bytes bytes(n_rows * row_bytes(type, cols));
  fill_random(bytes, rng);
  for (std::size_t block = 0; block < bytes.size(); block += info(type).block_bytes)
    for (std::size_t offset : scale_offsets(type)) put_u16(bytes, block + offset, ordinary_scale(rng));
  return bytes;
}

inline Bytes edge_weights(TensorType type, std::size_t n_rows, std::size_t cols, const WeightEdge& edge, Rng& rng) {
  Bytes bytes = random_weights(type, n_rows, cols, rng);
  if (edge.fill >= 0) std::fill(bytes.begin(), bytes.end(), static_cast<std::byte>(edge.fill));
  if (is_float_type(type)) {  // the edge value among ordinary ones
    const std::size_t size = info(type).block_bytes;
    for (std::size_t at = 0; at < bytes.size() && edge.fill < 0; at += 5 * size)
      put_u16(bytes, at + size - 2, edge.scale);
    return bytes;
  }
  for (std::size_t block = 0; block < bytes.size(); block += info(type).block_bytes)
    for (std::size_t offset : scale_offsets(type)) put_u16(bytes, block + offset, edge.scale);
  return bytes;
}

// n_rows rows of cols values in `activation`, quantised by the scalar reference. Rows take turns: bell-shaped, heavy
// tails, tiny with zero blocks, large, all at the largest codes (mixed signs, then the largest sums of either sign).
inline std::vector<Bytes> random_activations(ActivationClass activation, std::size_t n_rows, std::size_t cols,
                                             Rng& rng) {
  std::normal_distribution<float> bell;
  std::vector<Bytes> rows;
  std::vector<float> x(cols);
  for (std::size_t j = 0; j < n_rows; ++j) {
    for (std::size_t i = 0; i < cols; ++i) {
      const float v = bell(rng);
      switch (j % 7) {
        case 0:
          x[i] = v;
          break;
        case 1:
          x[i] = v * v * v * 10;
          break;
        case 2:
          x[i] = i % 512 < 256 ? 0.0f : v * 1e-3f;
          break;
        case 3:
          x[i] = v * 1e4f;
          break;
        case 4:
          x[i] = v < 0 ? -1.0f : 1.0f;
          break;
        case 5:
          x[i] = 1.0f;
          break;
        case 6:
          x[i] = -1.0f;
          break;
      }
    }
    rows.emplace_back(row_bytes(activation, cols));
    kernels::quantize_row_scalar(activation, x.data(), cols, rows.back().data());
  }
  return rows;
}

inline std::vector<const std::byte*> pointers(const std::vector<Bytes>& rows) {
  std::vector<const std::byte*> out;
  out.reserve(rows.size());
  for (const Bytes& row : rows) out.push_back(row.data());
  return out;
}

}  // namespace terrace::test
