// The streams of a trunk between steps: which are open, how long each is, which have ended with a failed row; and
// whether the rows of a step continue them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "coordinator/arch/parts/rows.h"
#include "coordinator/arch/trunk.h"
#include "coordinator/kv/cache.h"

namespace terrace::arch {

// One owner thread.
class Streams {
 public:
  // The cache is borrowed.
  Streams(kv::Cache& cache, std::uint32_t vocabulary, std::uint32_t max_rows);

  Result<StreamId> open();
  Result<StreamId> fork(StreamId from, std::uint32_t positions);
  void close(StreamId stream);
  std::uint32_t length(StreamId stream) const { return cache_.is_open(stream) ? cache_.length(stream) : 0; }

  // Checks every row, then makes room for their positions. On error all streams are as before. Errors as Trunk::step().
  Status begin(std::span<const StepRow> rows);
  // True if each stream of the step has one row: decoding.
  bool one_row_each() const { return one_row_each_; }
  // The rows are stored. Of a stream with failed rows, those before the first count; it has ended, and each of its rows
  // from there on is in `failed`.
  void commit(std::span<const StepRow> rows, const RowFailures& failures, std::vector<FailedRow>& failed);
  // The rows are forgotten.
  void roll_back(std::span<const StepRow> rows);

 private:
  struct Stream {
    std::uint32_t next = 0;  // during a step: the position after its rows so far; after it: the length
    bool ended = false;      // a row failed: only close() is left
  };

  Status check(const StepRow& row);
  Status reserve(std::span<const StepRow> rows);

  kv::Cache& cache_;
  std::uint32_t vocabulary_;
  std::uint32_t max_rows_;
  bool one_row_each_ = true;
  std::vector<Stream> streams_;
};

}  // namespace terrace::arch
