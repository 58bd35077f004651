#include "coordinator/arch/parts/gqa.h"

#include <algorithm>
#include <array>
#include <bit>

#include "common/base/check.h"

namespace terrace::arch {
namespace {

using kernels::kKvBlockPositions;

void grow(std::vector<float>& buffer, std::size_t n) { buffer.resize(std::max(buffer.size(), n)); }

}  // namespace

GqaAttention::GqaAttention(const GqaShape& shape, kv::Cache& cache, const kernels::Ops& ops, Parallel& parallel,
                           Multiplier& multiplier)
    : shape_(shape),
      cache_(cache),
      ops_(ops),
      parallel_(parallel),
      multiplier_(multiplier),
      heads_out_(parallel, ops),
      workers_(parallel.n_workers()) {
  const std::size_t group = shape.n_heads / shape.n_kv_heads;
  for (Worker& worker : workers_) worker.scratch.resize(kernels::attention_scratch_floats(group, shape.value_dim));
}

// By doubling, from what most streams never exceed: no step of theirs allocates, and a file that claims a context of a
// billion positions costs nothing for them.
void GqaAttention::make_room(std::uint32_t positions) {
  constexpr std::size_t kLeastBlocks = 1024;
  const std::size_t n_blocks = kv::Cache::blocks_for(positions);
  if (n_blocks <= workers_.front().k.size()) return;
  for (Worker& worker : workers_) {
    worker.k.resize(std::max(kLeastBlocks, std::bit_ceil(n_blocks)));
    worker.v.resize(worker.k.size());
  }
}

void GqaAttention::begin(std::span<const StepRow> rows) {
  rows_ = rows;
  const std::size_t n_pairs = shape_.n_rot / 2;
  grow(cosines_, rows.size() * n_pairs);
  grow(sines_, rows.size() * n_pairs);
  grow(q_, rows.size() * q_width());
  grow(k_, rows.size() * k_width());
  grow(v_, rows.size() * v_width());
  grow(o_, rows.size() * o_width());
  std::uint32_t last = 0;
  for (const StepRow& row : rows) last = std::max(last, row.position);
  make_room(last + 1);
  for_each_row(parallel_, rows.size(), [&](std::size_t i, std::size_t) {
    kernels::rope_table(rows_[i].position, shape_.n_rot, shape_.rope_base, shape_.rope_scaling,
                        cosines_.data() + i * n_pairs, sines_.data() + i * n_pairs);
  });
}

void GqaAttention::run(std::uint32_t layer, const GqaWeights& weights, ActivationRows& x, RowFailures& failures,
                       float* out) {
  const std::size_t n_rows = rows_.size();
  TERRACE_CHECK(x.n_rows() == n_rows, "attention runs over the rows of its step");
  multiplier_.run(
      std::array{Product{&weights.q, q_.data()}, Product{&weights.k, k_.data()}, Product{&weights.v, v_.data()}}, x);
  for_each_row(parallel_, n_rows, [&](std::size_t row, std::size_t) { finish_row(row, layer, weights, failures); });
  parallel_.run(n_rows * shape_.n_kv_heads, [&](std::size_t item, std::size_t worker) {
    attend(item / shape_.n_kv_heads, layer, static_cast<std::uint32_t>(item % shape_.n_kv_heads), workers_[worker]);
  });
  for_each_row(parallel_, n_rows, [&](std::size_t row, std::size_t) {
    float* o = o_.data() + row * o_width();
    if (!ops_.all_finite(o, o_width())) failures.fail(row, layer, "attention values", o, o_width());
  });
  heads_out_.set(o_.data(), n_rows, o_width());
  multiplier_.run(std::array{Product{&weights.output, out}}, heads_out_);
}

// Norm and RoPE of one row's heads, in place.
void GqaAttention::rotate(std::size_t row, const float* norm, std::size_t n_heads, float* heads) const {
  const std::size_t n_pairs = shape_.n_rot / 2;
  for (std::size_t h = 0; h < n_heads; ++h) {
    float* head = heads + h * shape_.key_dim;
    if (norm != nullptr) ops_.rms_norm(head, norm, shape_.key_dim, shape_.norm_eps, head);
    ops_.rope(head, cosines_.data() + row * n_pairs, sines_.data() + row * n_pairs, shape_.n_rot, shape_.pairing);
  }
}

void GqaAttention::finish_row(std::size_t row, std::uint32_t layer, const GqaWeights& weights, RowFailures& failures) {
  float* q = q_.data() + row * q_width();
  float* k = k_.data() + row * k_width();
  float* v = v_.data() + row * v_width();
  rotate(row, weights.q_norm, shape_.n_heads, q);
  rotate(row, weights.k_norm, shape_.n_kv_heads, k);
  const kernels::KvType type = cache_.shape().type;
  if (!ops_.all_finite(q, q_width())) failures.fail(row, layer, "queries", q, q_width());
  if (!ops_.storable(k, k_width(), type)) failures.fail(row, layer, "keys", k, k_width());
  if (!ops_.storable(v, v_width(), type)) failures.fail(row, layer, "values", v, v_width());
  store(row, layer);
}

void GqaAttention::store(std::size_t row, std::uint32_t layer) {
  const std::size_t slot = rows_[row].position % kKvBlockPositions;
  const kernels::KvType type = cache_.shape().type;
  for (std::uint32_t head = 0; head < shape_.n_kv_heads; ++head) {
    const kv::HeadBlock block = cache_.block(rows_[row].stream, rows_[row].position, layer, head);
    ops_.store_k(k_.data() + row * k_width() + head * shape_.key_dim, shape_.key_dim, slot, type, block.k);
    ops_.store_v(v_.data() + row * v_width() + head * shape_.value_dim, shape_.value_dim, slot, type, block.v);
  }
}

void GqaAttention::attend(std::size_t row, std::uint32_t layer, std::uint32_t kv_head, Worker& worker) {
  const std::size_t n_keys = std::size_t{rows_[row].position} + 1;
  cache_.bases(rows_[row].stream, layer, kv_head, kv::Cache::blocks_for(n_keys), worker.k.data(), worker.v.data());
  const std::size_t group = shape_.n_heads / shape_.n_kv_heads;
  kernels::AttentionArgs args;
  args.q = q_.data() + row * q_width() + kv_head * group * shape_.key_dim;
  args.out = o_.data() + row * o_width() + kv_head * group * shape_.value_dim;
  args.k = worker.k.data();
  args.v = worker.v.data();
  args.n_keys = n_keys;
  args.n_heads = group;
  args.head_dim = shape_.key_dim;
  args.value_dim = shape_.value_dim;
  args.scale = shape_.score_scale;
  args.type = cache_.shape().type;
  args.scratch = worker.scratch.data();
  ops_.attend(args);
}

}  // namespace terrace::arch
