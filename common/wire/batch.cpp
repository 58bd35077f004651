#include <algorithm>

#include "common/base/finite.h"
#include "common/wire/bytes.h"
#include "common/wire/messages.h"
#include "common/wire/vectors.h"

namespace terrace::wire {
namespace {

constexpr std::uint32_t kMaxRows = 65536;  // a pair names its row in 16 bits

Status check_count(const char* what, std::uint32_t found, std::uint32_t most) {
  if (found >= 1 && found <= most) return {};
  return corrupt("batch: {} {}, this session allows 1 to {}", found, what, most);
}

Status check_class(const char* role, ActivationClass activation, std::uint32_t d_model) {
  if (static_cast<std::size_t>(activation) >= kActivationClasses)
    return corrupt("batch: {} class {} is not known", role, static_cast<unsigned>(activation));
  if (d_model % block_values(activation) != 0)
    return corrupt("batch: {} class {} has blocks of {} values, d_model is {}", role, name(activation),
                   block_values(activation), d_model);
  return {};
}

Status check_info(const BatchInfo& info, const BatchLimits& limits) {
  TERRACE_RETURN_IF_ERROR(check_count("rows", info.n_rows, std::min(limits.max_rows, kMaxRows)));
  TERRACE_RETURN_IF_ERROR(check_count("pairs", info.n_pairs, limits.max_pairs));
  TERRACE_RETURN_IF_ERROR(check_count("ranges", info.n_ranges, limits.max_ranges));
  if (info.d_model != limits.d_model)
    return corrupt("batch: rows of {} values, the model has {}", info.d_model, limits.d_model);
  if (info.form > ReplyForm::kSlots)
    return corrupt("batch: reply form {} is not known", static_cast<unsigned>(info.form));
  if (info.priority > Priority::kPrompt)
    return corrupt("batch: priority {} is not known", static_cast<unsigned>(info.priority));
  if (info.reserved != std::array<std::uint32_t, 2>{}) return corrupt("batch: reserved bytes are not zero");
  TERRACE_RETURN_IF_ERROR(check_class("gate", info.gate_class, info.d_model));
  return check_class("up", info.up_class, info.d_model);
}

// Blocks of q behind f32 d each: whether any value is -128. All of them are looked at, sixteen at once: on the way of a
// decode batch that is faster than a search in each block.
bool any_least(std::span<const std::byte> rows, std::size_t values) {
  using Bytes = std::int8_t __attribute__((vector_size(16)));
  Bytes any{};
  for (std::size_t at = sizeof(float); at < rows.size(); at += sizeof(float) + values) {
    for (std::size_t i = 0; i < values; i += sizeof(Bytes)) {
      Bytes q;
      load_vector(rows.data() + at + i, q);
      any |= q == -128;
    }
  }
  std::array<std::uint64_t, 2> halves;
  store_vector(any, halves.data());
  return (halves[0] | halves[1]) != 0;
}

// Blocks of the quantised classes: f32 d, then int8 q. The contract's q is at least -127 (numerics.md 2): kernels count
// on it, and of -128 each would make something else.
Status check_values(const char* role, ActivationClass activation, std::span<const std::byte> rows,
                    std::uint32_t d_model) {
  if (activation == ActivationClass::kF32) return {};
  const std::size_t values = block_values(activation);  // a multiple of 16
  if (!any_least(rows, values)) return {};
  const std::size_t stride = sizeof(float) + values;
  for (std::size_t block = 0; block * stride < rows.size(); ++block) {
    const std::byte* q = rows.data() + block * stride + sizeof(float);
    const void* found = std::memchr(q, 0x80, values);
    if (found == nullptr) continue;
    const std::size_t value = block * values + static_cast<std::size_t>(static_cast<const std::byte*>(found) - q);
    return corrupt("batch: {} rows: value {} of row {} is -128, those of class {} are -127 to 127", role,
                   value % d_model, value / d_model, name(activation));
  }
  return {};
}

Status read_rows(const Frame& frame, BatchView& batch) {
  const BatchInfo& info = batch.info;
  TERRACE_ASSIGN_OR_RETURN(batch.gate_rows, require_section(frame, SectionTag::kRows, 0,
                                                            info.n_rows * row_bytes(info.gate_class, info.d_model)));
  TERRACE_RETURN_IF_ERROR(check_values("gate", info.gate_class, batch.gate_rows, info.d_model));
  if (info.up_class == info.gate_class) {
    if (frame.find(SectionTag::kRows, 1) != nullptr)
      return corrupt("batch: gate and up have one class ({}), yet up's rows are sent too", name(info.up_class));
    batch.up_rows = batch.gate_rows;
    return {};
  }
  TERRACE_ASSIGN_OR_RETURN(batch.up_rows, require_section(frame, SectionTag::kRows, 1,
                                                          info.n_rows * row_bytes(info.up_class, info.d_model)));
  return check_values("up", info.up_class, batch.up_rows, info.d_model);
}

Status check_ranges(std::span<const RowRange> ranges, std::uint32_t n_rows) {
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const RowRange& range = ranges[i];
    if (range.count == 0) return corrupt("batch: range {} is empty", i);
    if (range.first < end)
      return corrupt("batch: range {} begins at row {}, the one before ends at {}", i, range.first, end);
    end = std::uint64_t{range.first} + range.count;
    if (end > n_rows) return corrupt("batch: range {} ends at row {}, the batch has {} rows", i, end, n_rows);
  }
  return {};
}

// The last range that begins at or before `row`; ranges are checked. ranges.size() if there is none.
std::size_t range_of(std::span<const RowRange> ranges, std::uint32_t row) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), row,
                                      [](std::uint32_t r, const RowRange& range) { return r < range.first; });
  return after == ranges.begin() ? ranges.size() : static_cast<std::size_t>(after - ranges.begin()) - 1;
}

bool holds(const RowRange& range, std::uint32_t row) { return row - range.first < range.count; }

Status check_pair(std::size_t i, const Pair& pair, const BatchInfo& info, const BatchLimits& limits) {
  if (pair.row >= info.n_rows)
    return corrupt("batch: pair {} names row {}, the batch has {} rows", i, pair.row, info.n_rows);
  if (pair.expert >= limits.n_experts)
    return corrupt("batch: pair {} names expert {}, the model has {}", i, pair.expert, limits.n_experts);
  if (!is_finite(pair.weight))
    return corrupt("batch: pair {} (row {}, expert {}) has a weight that is not finite", i, pair.row, pair.expert);
  return {};
}

constexpr std::uint32_t order_of(const Pair& pair) { return std::uint32_t{pair.expert} << 16 | pair.row; }

Status check_pairs(const BatchView& batch, const BatchLimits& limits) {
  const auto pairs = batch.pairs;
  std::size_t range = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const Pair& pair = pairs[i];
    TERRACE_RETURN_IF_ERROR(check_pair(i, pair, batch.info, limits));
    if (i > 0 && order_of(pair) <= order_of(pairs[i - 1]))
      return corrupt("batch: pair {} (expert {}, row {}) follows (expert {}, row {}); they rise by expert, then row", i,
                     pair.expert, pair.row, pairs[i - 1].expert, pairs[i - 1].row);
    // Rows rise within an expert, so the range of the pair before is mostly the right one.
    if (!holds(batch.ranges[range], pair.row)) {
      range = range_of(batch.ranges, pair.row);
      if (range == batch.ranges.size() || !holds(batch.ranges[range], pair.row))
        return corrupt("batch: pair {} names row {}, which lies in no range", i, pair.row);
    }
  }
  return {};
}

}  // namespace

void add_batch(FrameBuilder& builder, const BatchInfo& info, std::span<const std::byte> gate_rows,
               std::span<const std::byte> up_rows, std::span<const Pair> pairs, std::span<const RowRange> ranges) {
  builder.add_copy(SectionTag::kBatch, 0, bytes_of(info));
  builder.add(SectionTag::kRows, 0, gate_rows);
  if (info.up_class != info.gate_class) builder.add(SectionTag::kRows, 1, up_rows);
  builder.add(SectionTag::kPairs, 0, std::as_bytes(pairs));
  builder.add(SectionTag::kRanges, 0, std::as_bytes(ranges));
}

Result<BatchView> read_batch(const Frame& frame, const BatchLimits& limits) {
  TERRACE_RETURN_IF_ERROR(expect_type(frame, FrameType::kBatch));
  BatchView batch;
  batch.layer = frame.header.layer;
  batch.epoch = frame.header.epoch;
  batch.sequence = frame.header.sequence;
  if (batch.sequence == 0) return corrupt("batch: sequence 0, they begin at 1");
  if (batch.layer >= limits.n_layers) return corrupt("batch: layer {}, the model has {}", batch.layer, limits.n_layers);
  TERRACE_ASSIGN_OR_RETURN(batch.info, read_struct<BatchInfo>(frame, SectionTag::kBatch));
  TERRACE_RETURN_IF_ERROR(check_info(batch.info, limits));
  TERRACE_RETURN_IF_ERROR(read_rows(frame, batch));
  TERRACE_ASSIGN_OR_RETURN(batch.pairs, read_array<Pair>(frame, SectionTag::kPairs, batch.info.n_pairs));
  TERRACE_ASSIGN_OR_RETURN(batch.ranges, read_array<RowRange>(frame, SectionTag::kRanges, batch.info.n_ranges));
  TERRACE_RETURN_IF_ERROR(check_ranges(batch.ranges, batch.info.n_rows));
  TERRACE_RETURN_IF_ERROR(check_pairs(batch, limits));
  return batch;
}

std::uint64_t batch_frame_bytes(const BatchShape& shape) {
  std::uint64_t bytes = kHeaderBytes + section_bytes(sizeof(BatchInfo));
  bytes += section_bytes(shape.n_rows * row_bytes(shape.gate_class, shape.d_model));
  if (shape.up_class != shape.gate_class)
    bytes += section_bytes(shape.n_rows * row_bytes(shape.up_class, shape.d_model));
  bytes += section_bytes(std::uint64_t{shape.n_pairs} * sizeof(Pair));
  return bytes + section_bytes(std::uint64_t{shape.n_ranges} * sizeof(RowRange));
}

}  // namespace terrace::wire
