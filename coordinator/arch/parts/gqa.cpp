#include "coordinator/arch/parts/gqa.h"

#include <algorithm>
#include <array>
#include <atomic>

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

// The context is what a file says, up to 2^30 positions: tables are as long as streams are, and double, from what most
// streams never exceed, so that hardly a step allocates for them.
void GqaAttention::grow_tables(std::size_t most_keys) {
  constexpr std::size_t kLeastBlocks = 1024;
  const std::size_t n_blocks = kv::Cache::blocks_for(most_keys);
  const std::size_t had = workers_.front().k.size();
  if (n_blocks <= had) return;
  for (Worker& worker : workers_) {
    worker.k.resize(std::max({n_blocks, 2 * had, kLeastBlocks}));
    worker.v.resize(worker.k.size());
  }
}

// Several items a head pay where there are less than two heads a worker; a head has no more of them than splits.
void GqaAttention::cut_heads(std::size_t n_rows, std::size_t most_keys) {
  constexpr std::size_t kItemsPerWorker = 2;
  most_splits_ = kernels::attention_splits(most_keys);
  const std::size_t n_heads = n_rows * shape_.n_kv_heads;
  const std::size_t wanted = kItemsPerWorker * parallel_.n_workers();
  n_parts_ = n_heads == 0 || parallel_.n_workers() == 1 ? 1 : std::min(most_splits_, (wanted + n_heads - 1) / n_heads);
  if (n_parts_ == 1) return;
  const std::size_t group = shape_.n_heads / shape_.n_kv_heads;
  grow(states_, n_heads * most_splits_ * kernels::attention_state_floats(group, shape_.value_dim));
  left_.resize(std::max(left_.size(), n_heads));
}

void GqaAttention::begin(std::span<const StepRow> rows, std::size_t most_at_once) {
  rows_ = rows;
  std::size_t most_keys = 0;
  for (const StepRow& row : rows) most_keys = std::max(most_keys, std::size_t{row.position} + 1);
  grow_tables(most_keys);
  cut_heads(most_at_once, most_keys);
  const std::size_t n_pairs = shape_.n_rot / 2;
  grow(cosines_, rows.size() * n_pairs);
  grow(sines_, rows.size() * n_pairs);
  grow(q_, most_at_once * q_width());
  grow(k_, most_at_once * k_width());
  grow(v_, most_at_once * v_width());
  grow(o_, most_at_once * o_width());
  found_.resize(std::max(found_.size(), most_at_once));
  rows_are_alone_ =
      std::ranges::all_of(rows, [this](const StepRow& row) { return row.position == cache_.length(row.stream); });
  for_each_row(parallel_, rows.size(), [&](std::size_t i, std::size_t) {
    kernels::rope_table(rows_[i].position, shape_.n_rot, shape_.rope_base, shape_.rope_scaling,
                        cosines_.data() + i * n_pairs, sines_.data() + i * n_pairs);
  });
}

void GqaAttention::run(std::uint32_t layer, const GqaWeights& weights, std::size_t first, ActivationRows& x,
                       RowFailures& failures, float* out) {
  const std::size_t n_rows = x.n_rows();
  TERRACE_CHECK(first + n_rows <= rows_.size(), "attention runs over the rows of its step");
  first_ = first;
  multiplier_.run(
      std::array{Product{&weights.q, q_.data()}, Product{&weights.k, k_.data()}, Product{&weights.v, v_.data()}}, x);
  std::fill_n(found_.begin(), n_rows, std::uint8_t{0});
  const bool finish_first = !rows_are_alone_ || n_parts_ > 1;
  if (finish_first) {
    for_each_row(parallel_, n_rows, [&](std::size_t row, std::size_t) {
      for (std::uint32_t head = 0; head < shape_.n_kv_heads; ++head) finish_head(row, layer, head, weights);
    });
  }
  if (n_parts_ > 1) std::fill_n(left_.begin(), n_rows * shape_.n_kv_heads, static_cast<std::uint32_t>(n_parts_));
  parallel_.run(n_rows * shape_.n_kv_heads * n_parts_, [&](std::size_t item, std::size_t worker) {
    const std::size_t head = item / n_parts_, row = head / shape_.n_kv_heads;
    const auto kv_head = static_cast<std::uint32_t>(head % shape_.n_kv_heads);
    if (!finish_first) finish_head(row, layer, kv_head, weights);
    attend(row, layer, kv_head, item % n_parts_, workers_[worker]);
  });
  for_each_row(parallel_, n_rows, [&](std::size_t row, std::size_t) {
    report(row, layer, failures);
    float* o = o_.data() + row * o_width();
    if (!ops_.all_finite(o, o_width())) failures.fail(first_ + row, layer, "attention values", o, o_width());
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
    ops_.rope(head, cosines_.data() + (first_ + row) * n_pairs, sines_.data() + (first_ + row) * n_pairs, shape_.n_rot,
              shape_.pairing);
  }
}

// Norm and RoPE of one KV head and of the query heads that share it, and its place in the cache. What is not finite
// becomes zeros and is noted: other workers may stand at other heads of the row.
void GqaAttention::finish_head(std::size_t row, std::uint32_t layer, std::uint32_t kv_head, const GqaWeights& weights) {
  const std::size_t group = shape_.n_heads / shape_.n_kv_heads;
  const std::size_t q_size = group * shape_.key_dim;
  float* q = q_.data() + row * q_width() + kv_head * q_size;
  float* k = k_.data() + row * k_width() + kv_head * shape_.key_dim;
  float* v = v_.data() + row * v_width() + kv_head * shape_.value_dim;
  rotate(row, weights.q_norm, group, q);
  rotate(row, weights.k_norm, 1, k);
  const kernels::KvType type = cache_.shape().type;
  const auto note = [&](Found what, float* values, std::size_t n) {
    std::fill_n(values, n, 0.0f);
    std::atomic_ref(found_[row]).fetch_or(what, std::memory_order_relaxed);
  };
  if (!ops_.all_finite(q, q_size)) note(kQueries, q, q_size);
  if (!ops_.storable(k, shape_.key_dim, type)) note(kKeys, k, shape_.key_dim);
  if (!ops_.storable(v, shape_.value_dim, type)) note(kValues, v, shape_.value_dim);
  store(row, layer, kv_head);
}

void GqaAttention::store(std::size_t row, std::uint32_t layer, std::uint32_t kv_head) {
  const StepRow& at = rows_[first_ + row];
  const std::size_t slot = at.position % kKvBlockPositions;
  const kernels::KvType type = cache_.shape().type;
  const kv::HeadBlock block = cache_.block(at.stream, at.position, layer, kv_head);
  ops_.store_k(k_.data() + row * k_width() + kv_head * shape_.key_dim, shape_.key_dim, slot, type, block.k);
  ops_.store_v(v_.data() + row * v_width() + kv_head * shape_.value_dim, shape_.value_dim, slot, type, block.v);
}

// The values are zeros already.
void GqaAttention::report(std::size_t row, std::uint32_t layer, RowFailures& failures) {
  const std::uint8_t found = found_[row];
  if (found & kQueries) failures.fail(first_ + row, layer, "queries", nullptr, 0);
  if (found & kKeys) failures.fail(first_ + row, layer, "keys", nullptr, 0);
  if (found & kValues) failures.fail(first_ + row, layer, "values", nullptr, 0);
}

void GqaAttention::attend(std::size_t row, std::uint32_t layer, std::uint32_t kv_head, std::size_t part,
                          Worker& worker) {
  const StepRow& at = rows_[first_ + row];
  const std::size_t n_keys = std::size_t{at.position} + 1;
  cache_.bases(at.stream, layer, kv_head, kv::Cache::blocks_for(n_keys), worker.k.data(), worker.v.data());
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
  if (n_parts_ == 1) return ops_.attend(args);

  const std::size_t head = row * shape_.n_kv_heads + kv_head;
  const std::size_t n_splits = kernels::attention_splits(n_keys);
  const std::size_t first = n_splits * part / n_parts_, end = n_splits * (part + 1) / n_parts_;
  const std::size_t state_floats = kernels::attention_state_floats(group, shape_.value_dim);
  float* states = states_.data() + head * most_splits_ * state_floats;
  ops_.attend_splits(args, {.first = first, .n = end - first, .states = states + first * state_floats});
  // Who ends the head's last part sees the others' states.
  if (std::atomic_ref(left_[head]).fetch_sub(1, std::memory_order_acq_rel) == 1) ops_.merge_splits(args, states);
}

}  // namespace terrace::arch
