#include "tier_node/service/batch_runner.h"

#include <algorithm>
#include <cstring>

#include "common/wire/pack.h"

namespace terrace::node {
namespace {

static_assert(sizeof(wire::Pair) == sizeof(kernels::Pair) && alignof(wire::Pair) == alignof(kernels::Pair) &&
              offsetof(wire::Pair, expert) == offsetof(kernels::Pair, expert) &&
              offsetof(wire::Pair, weight) == offsetof(kernels::Pair, weight));

kernels::RowsView rows_view(ActivationClass activation, std::span<const std::byte> rows, std::uint32_t d_model,
                            std::uint32_t first) {
  const std::size_t stride = row_bytes(activation, d_model);
  return {activation, rows.data() + first * stride, stride};
}

}  // namespace

BatchRunner::BatchRunner(Parallel& parallel, const kernels::Ops& ops, FramePool& frames)
    : parallel_(parallel), frames_(frames), executor_(parallel, ops) {}

Status BatchRunner::run(const Work& work, FunctionRef<void(OutFramePtr)> emit,
                        kernels::Executor::BetweenSlices between_slices) {
  const std::size_t n_ranges = work.batch.ranges.size();
  for (std::size_t index = 0; index < n_ranges; ++index) {
    const Range range = select_range(work, index);
    OutFramePtr reply = frames_.take();
    reply->form = work.batch.info.form;
    reply->reply = {};
    reply->reply.range_index = static_cast<std::uint32_t>(index);
    reply->reply.n_rows = static_cast<std::uint32_t>(rows_.size());
    reply->reply.n_pairs = static_cast<std::uint32_t>(range.pairs.size());
    const Status done = reply->form == wire::ReplyForm::kSum ? compute_sums(work, range, between_slices, *reply)
                                                             : compute_slots(work, range, between_slices, *reply);
    if (!done.ok()) {
      frames_.give(std::move(reply));
      return done;
    }
    for (const std::uint32_t row : rows_)
      if (failed_[row] != 0) reply->failed_rows.push_back(static_cast<std::uint16_t>(range.rows.first + row));
    emit(std::move(reply));
  }
  return {};
}

BatchRunner::Range BatchRunner::select_range(const Work& work, std::size_t index) {
  const wire::BatchView& batch = work.batch;
  const wire::RowRange rows = batch.ranges[index];
  pairs_.clear();
  has_pair_.assign(rows.count, 0);
  for (const wire::Pair& pair : batch.pairs) {
    const std::uint32_t row = pair.row - rows.first;  // wraps below the range, and is then too large as well
    if (row >= rows.count) continue;
    pairs_.push_back({static_cast<std::uint16_t>(row), pair.expert, pair.weight});
    has_pair_[row] = 1;
  }
  rows_.clear();
  for (std::uint32_t row = 0; row < rows.count; ++row)
    if (has_pair_[row] != 0) rows_.push_back(row);
  failed_.assign(rows.count, 0);

  Range range{rows, pairs_, {}};
  range.batch.gate_rows = rows_view(batch.info.gate_class, batch.gate_rows, batch.info.d_model, rows.first);
  range.batch.up_rows = rows_view(batch.info.up_class, batch.up_rows, batch.info.d_model, rows.first);
  range.batch.n_rows = rows.count;
  range.batch.pairs = range.pairs;
  return range;
}

Status BatchRunner::compute_sums(const Work& work, const Range& range, kernels::Executor::BetweenSlices between_slices,
                                 OutFrame& reply) {
  const std::size_t d_model = work.batch.info.d_model;
  sums_.assign(range.rows.count * d_model, 0);
  const kernels::SumsView sums{sums_.data(), d_model, work.session->model().shift()};
  const auto slab_of = [&](std::uint16_t expert) { return work.epoch->slab(work.batch.layer, expert); };
  TERRACE_ASSIGN_OR_RETURN(const kernels::ExecStats stats,
                           executor_.run(work.session->model().layer(work.batch.layer).kernels, slab_of, range.batch,
                                         sums, failed_, between_slices));
  reply.reply.compute_us = static_cast<std::uint32_t>(std::min<std::uint64_t>(stats.compute_ns / 1000, ~0U));
  pack_sums(d_model, reply);
  return {};
}

void BatchRunner::pack_sums(std::size_t d_model, OutFrame& reply) {
  const std::size_t widest = wire::widest_packed_bytes(d_model);
  packed_.resize(std::max(packed_.size(), rows_.size() * widest));
  packed_bytes_.resize(rows_.size());
  parallel_.run(rows_.size(), [&](std::size_t i, std::size_t) {
    const std::span<std::int64_t> sums(sums_.data() + rows_[i] * d_model, d_model);
    // A failed row's sums are undefined: zeros travel, so that equal batches have equal replies.
    if (failed_[rows_[i]] != 0) std::fill(sums.begin(), sums.end(), 0);
    packed_bytes_[i] = wire::pack_row(sums, packed_.data() + i * widest);
  });
  std::size_t total = 0;
  for (const std::size_t bytes : packed_bytes_) total += bytes;
  reply.data.resize(total);
  std::byte* to = reply.data.data();
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    std::memcpy(to, packed_.data() + i * widest, packed_bytes_[i]);
    to += packed_bytes_[i];
  }
}

Status BatchRunner::compute_slots(const Work& work, const Range& range, kernels::Executor::BetweenSlices between_slices,
                                  OutFrame& reply) {
  const std::size_t d_model = work.batch.info.d_model;
  reply.data.resize(range.pairs.size() * d_model * sizeof(float));
  const std::span<float> out(reinterpret_cast<float*>(reply.data.data()), range.pairs.size() * d_model);
  const auto slab_of = [&](std::uint16_t expert) { return work.epoch->slab(work.batch.layer, expert); };
  TERRACE_ASSIGN_OR_RETURN(const kernels::ExecStats stats,
                           executor_.run_slots(work.session->model().layer(work.batch.layer).kernels, slab_of,
                                               range.batch, out, failed_, between_slices));
  reply.reply.compute_us = static_cast<std::uint32_t>(std::min<std::uint64_t>(stats.compute_ns / 1000, ~0U));
  return {};
}

}  // namespace terrace::node
