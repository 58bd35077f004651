#include "coordinator/legs/open_batch.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"

namespace terrace::legs {

static_assert(sizeof(kernels::Pair) == sizeof(wire::Pair) && sizeof(RowRange) == sizeof(wire::RowRange));

namespace {

constexpr std::uint16_t kNone = 0xffff;

wire::BatchShape shape_of(const wire::BatchInfo& info) {
  return {info.n_rows, info.n_pairs, info.n_ranges, info.d_model, info.gate_class, info.up_class};
}

}  // namespace

// Gives row_of and compact_of, and the rows as they will travel: the caller's memory when all rows do, else a copy of
// those that have a pair here.
void OpenBatch::compact_rows(const LegBatch& batch) {
  compact_of.assign(batch.n_rows, kNone);
  for (const kernels::Pair& pair : batch.pairs) compact_of[pair.row] = 0;
  row_of.clear();
  for (std::uint32_t row = 0; row < batch.n_rows; ++row) {
    if (compact_of[row] == kNone) continue;
    compact_of[row] = static_cast<std::uint16_t>(row_of.size());
    row_of.push_back(static_cast<std::uint16_t>(row));
  }
  borrows_rows = false;
  rows_owner = nullptr;
  const auto gather = [&](const kernels::RowsView& rows, std::vector<std::byte>& copy) -> std::span<const std::byte> {
    const std::size_t bytes = row_bytes(rows.activation, info.d_model);
    if (row_of.size() == batch.n_rows && rows.stride == bytes) {
      borrows_rows = true;
      rows_owner = batch.rows_owner;
      return {rows.data, bytes * batch.n_rows};
    }
    copy.resize(bytes * row_of.size());
    for (std::size_t i = 0; i < row_of.size(); ++i) std::memcpy(copy.data() + i * bytes, rows.row(row_of[i]), bytes);
    return copy;
  };
  gate_span = gather(batch.gate_rows, gate_rows);
  const bool same = batch.up_rows.activation == batch.gate_rows.activation;
  up_span = same ? gate_span : gather(batch.up_rows, up_rows);
}

// The pairs of the rows that travel, and the ranges that have any, with the pairs of each.
void OpenBatch::compact_pairs(const LegBatch& batch) {
  pairs.clear();
  for (const kernels::Pair& pair : batch.pairs) pairs.push_back({compact_of[pair.row], pair.expert, pair.weight});
  ranges.clear();
  callers_ranges.clear();
  for (const RowRange& range : batch.ranges) {
    const auto begin = std::lower_bound(row_of.begin(), row_of.end(), range.first);
    const auto end = std::lower_bound(begin, row_of.end(), range.first + range.count);
    OpenRange& callers = callers_ranges.emplace_back();
    if (begin == end) continue;
    callers = {.travels_as = static_cast<std::uint32_t>(ranges.size()), .state = RangeState::kOpen};
    ranges.push_back({static_cast<std::uint32_t>(begin - row_of.begin()), static_cast<std::uint32_t>(end - begin)});
  }
  range_pairs.assign(ranges.size(), 0);
  for (const wire::Pair& pair : pairs) {
    const auto after =
        std::upper_bound(ranges.begin(), ranges.end(), pair.row,
                         [](std::uint32_t row, const wire::RowRange& range) { return row < range.first; });
    TERRACE_CHECK(after != ranges.begin() && pair.row - (after - 1)->first < (after - 1)->count,
                  "a pair whose row is in no range");
    ++range_pairs[static_cast<std::size_t>(after - ranges.begin()) - 1];
  }
}

void OpenBatch::fill(const LegBatch& batch, std::uint32_t d_model) {
  info = wire::BatchInfo{};
  info.d_model = d_model;
  compact_rows(batch);
  compact_pairs(batch);
  answered.assign(ranges.size(), 0);
  replies.assign(ranges.size(), {});
  sums_begin.resize(row_of.size());
  n_answered = 0;
  compute_us = 0;
  refused.reset();
  abandoned = late = moved = sent = false;
  send_ticket = 0;

  epoch = batch.epoch;
  layer = batch.layer;
  priority = batch.priority;
  info.n_rows = static_cast<std::uint32_t>(row_of.size());
  info.n_pairs = static_cast<std::uint32_t>(pairs.size());
  info.n_ranges = static_cast<std::uint32_t>(ranges.size());
  info.form = batch.form == ReplyForm::kSum ? wire::ReplyForm::kSum : wire::ReplyForm::kSlots;
  info.priority = batch.priority == Priority::kDecode ? wire::Priority::kDecode : wire::Priority::kPrompt;
  info.gate_class = batch.gate_rows.activation;
  info.up_class = batch.up_rows.activation;
  frame_bytes = wire::batch_frame_bytes(shape_of(info));
  reply_bytes = 0;
  for (std::size_t i = 0; i < ranges.size(); ++i)
    reply_bytes += wire::widest_reply_frame_bytes(info.form, ranges[i].count, range_pairs[i], d_model);
}

}  // namespace terrace::legs
