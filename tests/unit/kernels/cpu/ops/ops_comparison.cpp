#include "tests/unit/kernels/cpu/ops/ops_comparison.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "tests/unit/kernels/cpu/ops/kv_blocks.h"
#include "tests/unit/kernels/cpu/ops/ops_testing.h"

namespace terrace::test {
namespace {

using kernels::KvType;
using kernels::Ops;
using kernels::RopePairing;

// What one operation's check found: empty, or the shape that differs.
using Difference = std::string;
using Random = std::mt19937;

std::vector<std::size_t> lengths() {
  std::vector<std::size_t> n;
  for (std::size_t i = 1; i <= 70; ++i) n.push_back(i);
  n.insert(n.end(), {100, 256, 1000});
  return n;
}

std::vector<float> normal(Random& random, std::size_t n, float size = 1.0f) {
  std::normal_distribution<float> distribution(0.0f, size);
  std::vector<float> values(n);
  for (float& value : values) value = distribution(random);
  return values;
}

// Finite floats of any size, subnormals and zeros of both signs among them.
std::vector<float> any_finite(Random& random, std::size_t n) {
  std::vector<float> values(n);
  for (float& value : values) {
    do value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    while (!std::isfinite(value));
    if (random() % 16 == 0) value = std::copysign(0.0f, value);
  }
  return values;
}

Difference compare_elementwise(const Ops& a, const Ops& b, Random& random) {
  for (const std::size_t n : lengths()) {
    for (const auto& x : {normal(random, n, 20.0f), any_finite(random, n)}) {
      const std::vector<float> y = normal(random, n);
      std::vector<float> of_a(n), of_b(n);
      a.exp(x.data(), n, of_a.data()), b.exp(x.data(), n, of_b.data());
      if (first_difference(of_a, of_b)) return fmt::format("exp n={}", n);
      a.silu(x.data(), n, of_a.data()), b.silu(x.data(), n, of_b.data());
      if (first_difference(of_a, of_b)) return fmt::format("silu n={}", n);
      a.silu_mul(x.data(), y.data(), n, of_a.data()), b.silu_mul(x.data(), y.data(), n, of_b.data());
      if (first_difference(of_a, of_b)) return fmt::format("silu_mul n={}", n);
      of_b = x;
      b.silu_mul(of_b.data(), y.data(), n, of_b.data());
      if (first_difference(of_a, of_b)) return fmt::format("silu_mul in place n={}", n);
      of_a = of_b = x;
      a.add(of_a.data(), y.data(), n), b.add(of_b.data(), y.data(), n);
      if (first_difference(of_a, of_b)) return fmt::format("add n={}", n);
      of_a[random() % n] = of_a[a.largest(of_a.data(), n)];  // two equal ones
      if (a.largest(of_a.data(), n) != b.largest(of_a.data(), n)) return fmt::format("largest n={}", n);
    }
  }
  return {};
}

Difference compare_rms_norm(const Ops& a, const Ops& b, Random& random) {
  for (const std::size_t n : lengths()) {
    for (const auto& x : {normal(random, n), normal(random, n, 1e-4f), any_finite(random, n)}) {
      const std::vector<float> w = normal(random, n);
      std::vector<float> of_a(n), of_b(n);
      a.rms_norm(x.data(), w.data(), n, 1e-6f, of_a.data());
      b.rms_norm(x.data(), w.data(), n, 1e-6f, of_b.data());
      if (first_difference(of_a, of_b)) return fmt::format("rms_norm n={}", n);
    }
  }
  return {};
}

Difference compare_rope(const Ops& a, const Ops& b, Random& random) {
  for (const RopePairing pairing : {RopePairing::kNeox, RopePairing::kAdjacent}) {
    for (std::size_t n_rot = 2; n_rot <= 140; n_rot += 2) {
      std::vector<float> cosines(n_rot / 2), sines(n_rot / 2);
      kernels::rope_table(random() % 100000, n_rot, 1e6, {0.25, 1.1}, cosines.data(), sines.data());
      std::vector<float> of_a = normal(random, n_rot), of_b = of_a;
      a.rope(of_a.data(), cosines.data(), sines.data(), n_rot, pairing);
      b.rope(of_b.data(), cosines.data(), sines.data(), n_rot, pairing);
      if (first_difference(of_a, of_b)) return fmt::format("rope n_rot={} {}", n_rot, static_cast<int>(pairing));
    }
  }
  return {};
}

Difference compare_all_finite(const Ops& a, const Ops& b, Random& random) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const std::size_t n : lengths()) {
    for (const float bad : {1.0f, std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity}) {
      std::vector<float> x = any_finite(random, n);
      x[random() % n] = bad;
      if (a.all_finite(x.data(), n) != b.all_finite(x.data(), n)) return fmt::format("all_finite n={}", n);
    }
  }
  return {};
}

Difference compare_add_fixed(const Ops& a, const Ops& b, Random& random) {
  for (const int shift : {16, 24, 36}) {
    const float limit = std::ldexp(1.0f, 51 - shift);
    for (const std::size_t n : lengths()) {
      for (const float size : {1.0f, std::ldexp(1.0f, -shift), limit / 8, limit / 2}) {
        const std::vector<float> out = normal(random, n, size);
        const float weight = normal(random, 1)[0];
        std::vector<std::int64_t> of_a(n);
        for (auto& sum : of_a) sum = static_cast<std::int64_t>(random()) - (1LL << 31);
        std::vector<std::int64_t> of_b = of_a;
        const bool ok = a.add_fixed(weight, out.data(), n, shift, of_a.data());
        if (b.add_fixed(weight, out.data(), n, shift, of_b.data()) != ok || (ok && of_a != of_b))
          return fmt::format("add_fixed n={} shift={} size={}", n, shift, size);
      }
    }
  }
  return {};
}

Difference compare_from_fixed(const Ops& a, const Ops& b, Random& random) {
  std::uniform_int_distribution<std::int64_t> values(-(1LL << 51), 1LL << 51);
  for (const std::size_t n : lengths()) {
    for (const int small : {0, 20, 44}) {
      std::vector<std::int64_t> sums(n);
      for (auto& sum : sums) sum = values(random) >> small;
      if (small == 0) sums[random() % n] = (random() % 2 ? 1 : -1) * ((1LL << 51) - static_cast<int>(random() % 2));
      std::vector<float> of_a(n), of_b(n);
      const bool ok = a.from_fixed(sums.data(), n, 24, of_a.data());
      if (b.from_fixed(sums.data(), n, 24, of_b.data()) != ok || (ok && first_difference(of_a, of_b)))
        return fmt::format("from_fixed n={}", n);
    }
  }
  return {};
}

// Values around every step of f16, its subnormals, its overflow and the halfway cases.
std::vector<float> around_f16(Random& random, std::size_t n) {
  std::vector<float> values(n);
  for (float& value : values) {
    const std::uint32_t exponent = 127 - 27 + random() % 46;  // 2^-27 .. 2^18
    const std::uint32_t halfway = random() % 2 ? 0x1000 : random() & 0x1fff;
    const std::uint32_t bits = (random() & 0x80000000u) | exponent << 23 | (random() & 0x7fe000) | halfway;
    value = std::bit_cast<float>(bits);
  }
  return values;
}

Difference compare_stores(const Ops& a, const Ops& b, Random& random) {
  for (const KvType type : {KvType::kF16, KvType::kF32}) {
    for (const std::size_t dim : {8, 64, 80, 128}) {
      for (std::size_t slot = 0; slot < kernels::kKvBlockPositions; ++slot) {
        const std::vector<float> x = slot % 2 ? around_f16(random, dim) : any_finite(random, dim);
        std::vector<std::byte> of_a(kernels::kKvBlockPositions * dim * bytes(type)), of_b = of_a;
        a.store_k(x.data(), dim, slot, type, of_a.data()), b.store_k(x.data(), dim, slot, type, of_b.data());
        if (of_a != of_b) return fmt::format("store_k dim={} slot={} {}", dim, slot, static_cast<int>(type));
        a.store_v(x.data(), dim, slot, type, of_a.data()), b.store_v(x.data(), dim, slot, type, of_b.data());
        if (of_a != of_b) return fmt::format("store_v dim={} slot={} {}", dim, slot, static_cast<int>(type));
        const std::size_t n = 1 + slot;
        if (n <= dim && a.storable(x.data(), n, type) != b.storable(x.data(), n, type))
          return fmt::format("storable n={} {}", n, static_cast<int>(type));
      }
    }
  }
  return {};
}

Difference compare_attention_shape(const Ops& a, const Ops& b, Random& random, AttentionCase shape, std::size_t keys) {
  const std::vector<float> q = normal(random, shape.n_heads * shape.head_dim, 2.0f);
  const std::vector<float> k = normal(random, keys * shape.head_dim);
  const std::vector<float> v = normal(random, keys * shape.value_dim);
  const std::vector<float> sinks = normal(random, shape.n_heads, 4.0f);
  if (random() % 2) shape.sinks = sinks.data();
  const KvBlocks cache(a, shape.type, k, v, shape.head_dim, shape.value_dim);
  const std::vector<float> right = attend(a, shape, q, cache);
  const char* wrong = first_difference(right, attend(b, shape, q, cache))                      ? "attend"
                      : first_difference(right, attend(b, shape, q, cache, /*in_steps=*/true)) ? "attend_splits"
                                                                                               : nullptr;
  if (wrong == nullptr) return {};
  return fmt::format("{} keys={} heads={} dim={} value_dim={} {} sinks={}", wrong, keys, shape.n_heads, shape.head_dim,
                     shape.value_dim, static_cast<int>(shape.type), shape.sinks != nullptr);
}

Difference compare_attention(const Ops& a, const Ops& b, Random& random) {
  std::vector<std::size_t> keys;
  for (std::size_t n = 1; n <= 70; ++n) keys.push_back(n);
  keys.insert(keys.end(), {255, 256, 257, 287, 288, 289, 300, 511, 512, 513, 600, 1023, 1024, 1025, 1100});
  const std::size_t dims[] = {64, 80, 128};
  for (const KvType type : {KvType::kF16, KvType::kF32}) {
    for (const std::size_t n : keys) {
      for (int repeat = 0; repeat < 3; ++repeat) {
        const AttentionCase shape{1 + random() % 8, dims[random() % 3], dims[random() % 3], 0.125f, type};
        if (Difference found = compare_attention_shape(a, b, random, shape, n); !found.empty()) return found;
      }
    }
    for (std::size_t heads = 1; heads <= 8; ++heads)
      for (const std::size_t dim : {8, 64, 72, 80, 128})
        if (Difference found = compare_attention_shape(a, b, random, {heads, dim, dim, 0.3f, type}, 45); !found.empty())
          return found;
  }
  return {};
}

Difference compare_quantize_row(const Ops& a, const Ops& b, Random& random) {
  for (const ActivationClass activation : {ActivationClass::kF32, ActivationClass::kA8x32, ActivationClass::kA8x256}) {
    for (const std::size_t n : {256, 512, 2048}) {
      const std::vector<float> x = normal(random, n);
      std::vector<std::byte> of_a(row_bytes(activation, n)), of_b = of_a;
      a.quantize_row(activation, x.data(), n, of_a.data()), b.quantize_row(activation, x.data(), n, of_b.data());
      if (of_a != of_b) return fmt::format("quantize_row {} n={}", name(activation), n);
    }
  }
  return {};
}

}  // namespace

std::vector<std::string> compare_tables(const Ops& reference, const Ops& candidate, std::uint32_t seed,
                                        std::string_view operation) {
  struct Check {
    Difference (*compare)(const Ops&, const Ops&, Random&);
    std::vector<std::string_view> operations;
  };
  const Check checks[] = {{compare_elementwise, {"exp", "silu", "silu_mul", "add", "largest"}},
                          {compare_rms_norm, {"rms_norm"}},
                          {compare_rope, {"rope"}},
                          {compare_all_finite, {"all_finite"}},
                          {compare_add_fixed, {"add_fixed"}},
                          {compare_from_fixed, {"from_fixed"}},
                          {compare_stores, {"store_k", "store_v", "storable"}},
                          {compare_attention, {"attend", "attend_splits"}},
                          {compare_quantize_row, {"quantize_row"}}};
  std::vector<std::string> differences;
  for (const Check& check : checks) {
    if (!operation.empty() && std::ranges::count(check.operations, operation) == 0) continue;
    Random random(seed);
    if (Difference found = check.compare(reference, candidate, random); !found.empty()) differences.push_back(found);
  }
  return differences;
}

}  // namespace terrace::test
