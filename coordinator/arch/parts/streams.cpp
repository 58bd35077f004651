#include "coordinator/arch/parts/streams.h"

#include <fmt/format.h>

#include "common/base/check.h"

namespace terrace::arch {
namespace {

Error refused(const StepRow& row, std::string_view why) {
  return Error(ErrorCode::kInvalidArgument, fmt::format("stream {}, position {}: {}", row.stream, row.position, why));
}

}  // namespace

Streams::Streams(kv::Cache& cache, std::uint32_t vocabulary, std::uint32_t max_rows)
    : cache_(cache), vocabulary_(vocabulary), max_rows_(max_rows), streams_(cache.max_streams()) {}

Result<StreamId> Streams::open() {
  TERRACE_ASSIGN_OR_RETURN(const StreamId stream, cache_.open());
  streams_[stream] = {};
  return stream;
}

Result<StreamId> Streams::fork(StreamId from, std::uint32_t positions) {
  TERRACE_ASSIGN_OR_RETURN(const StreamId stream, cache_.fork(from, positions));
  streams_[stream] = {};
  return stream;
}

void Streams::close(StreamId stream) { cache_.close(stream); }

Status Streams::check(const StepRow& row) {
  if (!cache_.is_open(row.stream)) return refused(row, "the stream is not open");
  Stream& stream = streams_[row.stream];
  if (stream.ended) return refused(row, "the stream ended with a row that failed; close it");
  if (row.position != stream.next) return refused(row, fmt::format("the stream goes on at position {}", stream.next));
  if (row.token < 0 || static_cast<std::uint32_t>(row.token) >= vocabulary_)
    return refused(row, fmt::format("token {} is out of range; the vocabulary has {}", row.token, vocabulary_));
  if (row.position >= cache_.context())
    return Error(ErrorCode::kContextFull, fmt::format("stream {}, position {}: the context of {} positions is full",
                                                      row.stream, row.position, cache_.context()));
  ++stream.next;
  return {};
}

Status Streams::begin(std::span<const StepRow> rows) {
  if (rows.size() > max_rows_)
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("a step of {} rows; this trunk takes {}", rows.size(), max_rows_));
  for (const StepRow& row : rows)
    if (cache_.is_open(row.stream)) streams_[row.stream].next = cache_.length(row.stream);
  one_row_each_ = true;
  for (const StepRow& row : rows) {
    TERRACE_RETURN_IF_ERROR(check(row));
    if (row.position != cache_.length(row.stream)) one_row_each_ = false;
  }
  return reserve(rows);
}

Status Streams::reserve(std::span<const StepRow> rows) {
  for (const StepRow& row : rows) {
    if (const Status status = cache_.reserve(row.stream, row.position + 1); !status.ok()) {
      roll_back(rows);
      return status;
    }
  }
  return {};
}

void Streams::commit(std::span<const StepRow> rows, const RowFailures& failures, std::vector<FailedRow>& failed) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const StepRow& row = rows[i];
    Stream& stream = streams_[row.stream];
    if (stream.ended) {
      failed.push_back({i, Error(ErrorCode::kNotFinite, fmt::format("position {} of stream {}: position {} failed",
                                                                    row.position, row.stream, stream.next))});
    } else if (failures.failed(i)) {
      failed.push_back({i, failures.error(i, row)});
      stream = {.next = row.position, .ended = true};
    }
  }
  for (const StepRow& row : rows) cache_.commit(row.stream, streams_[row.stream].next);
}

void Streams::roll_back(std::span<const StepRow> rows) {
  for (const StepRow& row : rows) cache_.roll_back(row.stream);
}

}  // namespace terrace::arch
