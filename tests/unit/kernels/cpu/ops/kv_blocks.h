// One KV head's cache for tests: blocks as kernels/cpu/ops/args.h lays them out, every unwritten byte 0xff (a NaN in
// both types), written by the table under test.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "kernels/cpu/ops/ops.h"

namespace terrace::test {

class KvBlocks {
 public:
  // keys [n_keys, head_dim], values [n_keys, value_dim].
  KvBlocks(const kernels::Ops& ops, kernels::KvType type, std::span<const float> keys, std::span<const float> values,
           std::size_t head_dim, std::size_t value_dim)
      : n_keys_(keys.size() / head_dim) {
    constexpr std::size_t kBlock = kernels::kKvBlockPositions;
    for (std::size_t t = 0; t < n_keys_; ++t) {
      if (t % kBlock == 0) {
        k_.push_back(fresh_block(kBlock * head_dim * bytes(type)));
        v_.push_back(fresh_block(kBlock * value_dim * bytes(type)));
      }
      ops.store_k(&keys[t * head_dim], head_dim, t % kBlock, type, k_.back());
      ops.store_v(&values[t * value_dim], value_dim, t % kBlock, type, v_.back());
    }
  }

  const std::byte* const* k() const { return k_.data(); }
  const std::byte* const* v() const { return v_.data(); }
  std::size_t n_keys() const { return n_keys_; }

 private:
  struct AlignedDelete {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };

  std::byte* fresh_block(std::size_t size) {
    owned_.emplace_back(static_cast<std::byte*>(::operator new[](size, std::align_val_t{64})));
    std::memset(owned_.back().get(), 0xff, size);
    return owned_.back().get();
  }

  std::size_t n_keys_;
  std::vector<std::unique_ptr<std::byte[], AlignedDelete>> owned_;
  std::vector<std::byte*> k_, v_;
};

// attend() of `ops` over `cache`: q [n_heads, head_dim] -> [n_heads, value_dim].
struct AttentionCase {
  std::size_t n_heads, head_dim, value_dim;
  float scale;
  kernels::KvType type;
  const float* sinks = nullptr;
};
// `in_steps`: by attend_splits(), two splits a call and the last ones first, and merge_splits().
inline std::vector<float> attend(const kernels::Ops& ops, const AttentionCase& shape, std::span<const float> q,
                                 const KvBlocks& cache, bool in_steps = false) {
  std::vector<float> out(shape.n_heads * shape.value_dim);
  std::vector<float> scratch(kernels::attention_scratch_floats(shape.n_heads, shape.value_dim));
  kernels::AttentionArgs args;
  args.q = q.data();
  args.out = out.data();
  args.k = cache.k();
  args.v = cache.v();
  args.n_keys = cache.n_keys();
  args.n_heads = shape.n_heads;
  args.head_dim = shape.head_dim;
  args.value_dim = shape.value_dim;
  args.scale = shape.scale;
  args.type = shape.type;
  args.sinks = shape.sinks;
  args.scratch = scratch.data();
  if (!in_steps) {
    ops.attend(args);
    return out;
  }
  const std::size_t n_splits = kernels::attention_splits(args.n_keys);
  const std::size_t stride = kernels::attention_state_floats(shape.n_heads, shape.value_dim);
  std::vector<float> states(n_splits * stride);
  for (std::size_t end = n_splits; end > 0;) {
    const std::size_t n = std::min<std::size_t>(2, end);
    end -= n;
    ops.attend_splits(args, {.first = end, .n = n, .states = states.data() + end * stride});
  }
  ops.merge_splits(args, states.data());
  return out;
}

}  // namespace terrace::test
