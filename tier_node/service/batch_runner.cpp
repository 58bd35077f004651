#include "tier_node/service/batch_runner.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

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

BatchRunner::BatchRunner(Parallel& parallel, FramePool& frames, std::unique_ptr<PairExecutor> executor,
                         std::unique_ptr<kernels::CardExecutor> card)
    : parallel_(parallel), frames_(frames), executor_(std::move(executor)), card_(std::move(card)) {}

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
    const bool sums = reply->form == wire::ReplyForm::kSum;
    const std::size_t n_sums = sums ? range.rows.count * std::size_t{work.batch.info.d_model} : 0;
    const Status done =
        sums ? compute_sums(work, range, between_slices, *reply) : compute_slots(work, range, between_slices, *reply);
    if (done.ok()) {
      for (const std::uint32_t row : rows_)
        if (failed_[row] != 0) reply->failed_rows.push_back(static_cast<std::uint16_t>(range.rows.first + row));
      emit(std::move(reply));
    } else {
      frames_.give(std::move(reply));
    }
    // The next ones are added to zeros. Nobody waits for that now: the reply is on its way.
    std::fill_n(sums_.begin(), n_sums, 0);
    if (!done.ok()) return done;
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
  sums_.resize(std::max(sums_.size(), range.rows.count * d_model));
  TERRACE_ASSIGN_OR_RETURN(const kernels::ExecStats stats, run_executors(work, range, between_slices));
  reply.reply.compute_us = static_cast<std::uint32_t>(std::min<std::uint64_t>(stats.compute_ns / 1000, ~0U));
  pack_sums(d_model, reply);
  return {};
}

void BatchRunner::split_by_memory(const Work& work, const Range& range) {
  card_pairs_.clear();
  ram_pairs_.clear();
  bool on_card = false;
  for (std::size_t i = 0; i < range.pairs.size(); ++i) {
    const kernels::Pair& pair = range.pairs[i];
    if (i == 0 || pair.expert != range.pairs[i - 1].expert)
      on_card = work.epoch->on_card(work.batch.layer, pair.expert);
    (on_card ? card_pairs_ : ram_pairs_).push_back(pair);
  }
}

Result<kernels::ExecStats> BatchRunner::run_executors(const Work& work, const Range& range,
                                                      kernels::Executor::BetweenSlices between_slices) {
  const Model& model = work.session->model();
  const kernels::ExpertKernels& kernels = model.layer(work.batch.layer).kernels;
  const kernels::SumsView sums{sums_.data(), work.batch.info.d_model, model.shift()};
  const auto slab_of = [&](std::uint16_t expert) { return work.epoch->slab(work.batch.layer, expert); };
  if (card_ == nullptr) return run_in_slices(work, range.batch, sums, between_slices);
  split_by_memory(work, range);
  kernels::BatchView on_card = range.batch, in_ram = range.batch;
  on_card.pairs = card_pairs_;
  in_ram.pairs = ram_pairs_;
  if (!card_pairs_.empty()) TERRACE_RETURN_IF_ERROR(card_->submit(kernels.shape, slab_of, on_card, model.shift()));
  Result<kernels::ExecStats> stats = kernels::ExecStats();
  if (!ram_pairs_.empty()) stats = run_in_slices(work, in_ram, sums, between_slices);
  if (card_pairs_.empty()) return stats;
  // Collected also after an error: the card reads what the batch lent it.
  const auto of_card = card_->collect(sums, failed_, between_slices);
  if (!stats.ok()) return stats;
  if (!of_card.ok()) return of_card;
  return kernels::ExecStats{stats->pairs + of_card->pairs, std::max(stats->compute_ns, of_card->compute_ns)};
}

Result<kernels::ExecStats> BatchRunner::run_in_slices(const Work& work, const kernels::BatchView& batch,
                                                      kernels::SumsView sums,
                                                      kernels::Executor::BetweenSlices between_slices) {
  const kernels::ExpertKernels& kernels = work.session->model().layer(work.batch.layer).kernels;
  const auto slab_of = [&](std::uint16_t expert) { return work.epoch->slab(work.batch.layer, expert); };
  kernels::ExecStats all;
  while (all.pairs < batch.pairs.size()) {
    if (all.pairs != 0 && !between_slices())
      return Error(ErrorCode::kDeadline,
                   fmt::format("experts were stopped after {} of {} pairs", all.pairs, batch.pairs.size()));
    kernels::BatchView slice = batch;
    slice.pairs = batch.pairs.subspan(all.pairs, std::min(slice_.pairs(), batch.pairs.size() - all.pairs));
    TERRACE_ASSIGN_OR_RETURN(const kernels::ExecStats stats,
                             executor_->run(kernels, slab_of, slice, sums, failed_, between_slices));
    slice_.took(stats.pairs, std::chrono::nanoseconds(stats.compute_ns));
    all.pairs += stats.pairs;
    all.compute_ns += stats.compute_ns;
  }
  return all;
}

std::size_t BatchRunner::pack_row(std::size_t d_model, std::uint32_t row, std::byte* to) {
  const std::span<std::int64_t> sums(sums_.data() + row * d_model, d_model);
  // A failed row's sums are undefined: zeros travel, so that equal batches have equal replies.
  if (failed_[row] != 0) std::fill(sums.begin(), sums.end(), 0);
  return wire::pack_row(sums, to);
}

void BatchRunner::pack_sums(std::size_t d_model, OutFrame& reply) {
  const std::size_t widest = wire::widest_packed_bytes(d_model);
  reply.widest_bytes = rows_.size() * widest;
  // One row, as most decode batches have, is packed where it will lie.
  if (rows_.size() == 1) return (void)reply.data.resize(pack_row(d_model, rows_[0], reply.data.resize(widest)));
  packed_.resize(std::max(packed_.size(), rows_.size() * widest));
  packed_bytes_.resize(rows_.size());
  parallel_.run(rows_.size(), [&](std::size_t i, std::size_t) {
    packed_bytes_[i] = pack_row(d_model, rows_[i], packed_.data() + i * widest);
  });
  std::size_t total = 0;
  for (const std::size_t bytes : packed_bytes_) total += bytes;
  std::byte* to = reply.data.resize(total);
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    std::memcpy(to, packed_.data() + i * widest, packed_bytes_[i]);
    to += packed_bytes_[i];
  }
}

Status BatchRunner::compute_slots(const Work& work, const Range& range, kernels::Executor::BetweenSlices between_slices,
                                  OutFrame& reply) {
  const std::size_t d_model = work.batch.info.d_model;
  reply.widest_bytes = range.pairs.size() * d_model * sizeof(float);
  std::byte* const data = reply.data.resize(reply.widest_bytes);
  const std::span<float> out(reinterpret_cast<float*>(data), range.pairs.size() * d_model);
  const kernels::ExpertKernels& kernels = work.session->model().layer(work.batch.layer).kernels;
  const auto slab_of = [&](std::uint16_t expert) { return work.epoch->slab(work.batch.layer, expert); };
  const auto on_card = [&](std::size_t pair) {
    return card_ != nullptr && work.epoch->on_card(work.batch.layer, range.pairs[pair].expert);
  };
  std::uint64_t compute_ns = 0;
  // Runs of pairs that lie in one memory, one behind the other: slots are for audits.
  for (std::size_t first = 0, last = 0; first < range.pairs.size(); first = last) {
    const bool card = on_card(first);
    for (last = first + 1; last < range.pairs.size() && on_card(last) == card;) ++last;
    kernels::BatchView batch = range.batch;
    batch.pairs = range.pairs.subspan(first, last - first);
    const std::span<float> slots = out.subspan(first * d_model, (last - first) * d_model);
    TERRACE_ASSIGN_OR_RETURN(const kernels::ExecStats stats,
                             card ? card_->run_slots(kernels.shape, slab_of, batch, slots, failed_, between_slices)
                                  : executor_->run_slots(kernels, slab_of, batch, slots, failed_, between_slices));
    compute_ns += stats.compute_ns;
  }
  reply.reply.compute_us = static_cast<std::uint32_t>(std::min<std::uint64_t>(compute_ns / 1000, ~0U));
  return {};
}

}  // namespace terrace::node
