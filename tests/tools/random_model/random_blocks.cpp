#include "tests/tools/random_model/random_blocks.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "common/base/check.h"

namespace terrace::tools {
namespace {

// Rounds to nearest even; |x| < 65504. Below the smallest normal number the f32 adder does the rounding: 0.5 has the
// unit in the last place of an f16 subnormal.
std::uint16_t to_f16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  const std::uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude < 0x38800000) {
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000));
  }
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

std::uint16_t to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void put_f16(std::byte* at, float x) {
  const std::uint16_t half = to_f16(x);
  std::memcpy(at, &half, sizeof half);
}

// A random scale: d times [0.75, 1.25), so that blocks differ.
float scale(std::uint64_t draw, float d) { return d * (0.75F + 0.5F * static_cast<float>(draw >> 40) * 0x1p-24F); }
// The same with a random sign, for formats whose integers are not centred on 0.
float signed_scale(std::uint64_t draw, float d) { return draw & 1 ? scale(draw, d) : -scale(draw, d); }

using FillBlock = void (*)(std::byte* block, std::uint64_t draw, float deviation);

// Each is given a block of random bytes and sets what must not be random. The divisor is the root mean square of the
// format's random integers.
void set_q8_0(std::byte* b, std::uint64_t draw, float s) { put_f16(b, scale(draw, s / 73.9F)); }          // -128..127
void set_q4_0(std::byte* b, std::uint64_t draw, float s) { put_f16(b, signed_scale(draw, s / 4.637F)); }  // -8..7
void set_q5_0(std::byte* b, std::uint64_t draw, float s) { put_f16(b, signed_scale(draw, s / 9.247F)); }  // -16..15

void set_q5_1(std::byte* b, std::uint64_t draw, float s) {  // 0..31, mean 15.5
  const float d = scale(draw, s / 9.233F);
  put_f16(b, d);
  put_f16(b + 2, -15.5F * d);
}

// The packed 6-bit scales and mins of Q4_K and Q5_K: 8 scales in 32..63, each min equal to its scale.
void set_scales_and_mins(std::byte* b, std::uint64_t draw) {
  for (int j = 0; j < 4; ++j) {
    const auto low = static_cast<std::uint32_t>(32 + (draw >> (10 * j) & 31));
    const auto high = static_cast<std::uint32_t>(32 + (draw >> (10 * j + 5) & 31));
    b[j] = b[j + 4] = static_cast<std::byte>(low | (high >> 4) << 6);
    b[j + 8] = static_cast<std::byte>((high & 15) | (high & 15) << 4);
  }
}

// value = d * s * q - dmin * s with dmin = d * mean(q): centred on 0.
// Mean of s^2 over 32..63 is 2341.5; variance of q over 0..15 is 21.25, over 0..31 it is 85.25.
void set_q4_k(std::byte* b, std::uint64_t draw, float s) {
  const float d = s / 223.1F;
  put_f16(b, d);
  put_f16(b + 2, 7.5F * d);
  set_scales_and_mins(b + 4, draw);
}

void set_q5_k(std::byte* b, std::uint64_t draw, float s) {
  const float d = s / 446.8F;
  put_f16(b, d);
  put_f16(b + 2, 15.5F * d);
  set_scales_and_mins(b + 4, draw);
}

// q over -32..31: mean square 341.5. Scales of either sign in +-16..31: mean square 573.5.
void set_q6_k(std::byte* b, std::uint64_t draw, float s) {
  for (int j = 0; j < 16; ++j) {
    const auto magnitude = static_cast<int>(16 + (std::to_integer<int>(b[192 + j]) & 15));
    b[192 + j] = static_cast<std::byte>(std::to_integer<int>(b[192 + j]) & 128 ? -magnitude : magnitude);
  }
  put_f16(b + 208, scale(draw, s / 442.6F));
}

FillBlock fill_block(TensorType type) {
  switch (type) {
    case TensorType::kQ8_0:
      return set_q8_0;
    case TensorType::kQ4_0:
      return set_q4_0;
    case TensorType::kQ5_0:
      return set_q5_0;
    case TensorType::kQ5_1:
      return set_q5_1;
    case TensorType::kQ4_K:
      return set_q4_k;
    case TensorType::kQ5_K:
      return set_q5_k;
    case TensorType::kQ6_K:
      return set_q6_k;
    default:
      return nullptr;
  }
}

void fill_blocks(TensorType type, float deviation, Random& random, std::span<std::byte> out) {
  const FillBlock set = fill_block(type);
  const std::size_t block_bytes = info(type).block_bytes;
  for (std::size_t at = 0; at < out.size(); at += block_bytes) {
    random.fill(out.subspan(at, block_bytes));
    set(out.data() + at, random.next(), deviation);
  }
}

// Values of one of 4096 levels, uniform in +-sqrt(3) * deviation: a look-up for each instead of a conversion.
void fill_halves(std::uint16_t (*convert)(float), float deviation, Random& random, std::span<std::byte> out) {
  constexpr std::size_t kLevels = 4096;
  std::array<std::uint16_t, kLevels> levels{};
  for (std::size_t i = 0; i < kLevels; ++i)
    levels[i] = convert((static_cast<float>(2 * i + 1) / kLevels - 1) * std::sqrt(3.0F) * deviation);
  std::uint64_t draw = 0;
  for (std::size_t i = 0; i < out.size() / 2; ++i) {
    draw = i % 4 == 0 ? random.next() : draw >> 16;
    std::memcpy(out.data() + 2 * i, &levels[draw % kLevels], sizeof levels[0]);
  }
}

// centre + uniform in [-half_width, half_width)
void fill_floats(float centre, float half_width, Random& random, std::span<std::byte> out) {
  std::uint64_t draw = 0;
  for (std::size_t i = 0; i < out.size() / 4; ++i) {
    draw = i % 2 == 0 ? random.next() : draw >> 32;
    const auto integer = static_cast<std::int32_t>(static_cast<std::uint32_t>(draw)) >> 8;
    const float value = centre + half_width * (static_cast<float>(integer) * 0x1p-23F);
    std::memcpy(out.data() + 4 * i, &value, sizeof value);
  }
}

}  // namespace

void Random::fill(std::span<std::byte> out) {
  std::size_t at = 0;
  for (; at + 8 <= out.size(); at += 8) {
    const std::uint64_t draw = next();
    std::memcpy(out.data() + at, &draw, 8);
  }
  if (at == out.size()) return;
  const std::uint64_t draw = next();
  std::memcpy(out.data() + at, &draw, out.size() - at);
}

bool can_fill(TensorType type) {
  return type == TensorType::kF32 || type == TensorType::kF16 || type == TensorType::kBF16 ||
         fill_block(type) != nullptr;
}

void fill_weights(TensorType type, float deviation, Random random, std::span<std::byte> out) {
  TERRACE_CHECK(can_fill(type) && out.size() % info(type).block_bytes == 0, "a type or a size that cannot be filled");
  switch (type) {
    case TensorType::kF32:
      return fill_floats(0, std::sqrt(3.0F) * deviation, random, out);
    case TensorType::kF16:
      return fill_halves(to_f16, deviation, random, out);
    case TensorType::kBF16:
      return fill_halves(to_bf16, deviation, random, out);
    default:
      return fill_blocks(type, deviation, random, out);
  }
}

void fill_norm(Random random, std::span<std::byte> out) { fill_floats(1, 0.05F, random, out); }

}  // namespace terrace::tools
