// The trunk: everything of a model but its routed experts. One entry, step(rows): rows of any mix of streams, prompts
// and, later, drafts. A row's bits do not depend on what shares its step (docs/numerics.md 9, P4).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/base/tensor_type.h"
#include "coordinator/kv/cache.h"

namespace terrace::arch {

using StreamId = std::uint32_t;

// One token of one stream. Rows of a stream come with rising positions without gaps, from its length so far.
struct StepRow {
  StreamId stream = 0;
  std::uint32_t position = 0;
  std::int32_t token = 0;
  bool want_logits = false;
};

// A row that could not be computed (an activation or logit is not finite); its stream has ended, others go on.
struct FailedRow {
  std::size_t row = 0;  // index into the step's rows
  Error error;          // names layer and position
};

struct StepResult {
  std::span<const float> logits;  // [rows that want logits, vocabulary] in the order of the rows; valid until the
                                  // next step. Undefined for failed rows
  // [rows that want logits] id of the largest logit, the lowest of equal ones, where the trunk has looked; else empty.
  std::span<const std::int32_t> largest = {};
  std::vector<FailedRow> failed;  // normally empty (and then nothing was allocated)
};

// What a layer did with a row, for tests and `--trace`-like tools: called on the step's thread.
struct LayerTrace {
  std::uint32_t layer = 0;
  std::size_t row = 0;
  std::span<const std::uint16_t> experts;  // [top_k], selection order
  std::span<const float> weights;          // [top_k]
  std::span<const std::int64_t> sums;      // [d_model], of the chosen experts (docs/numerics.md 5)
  std::span<const float> x;                // [d_model], the residual row after the layer
};
using TraceFn = std::function<void(const LayerTrace&)>;

// A dense matrix whose products a card may compute.
struct DenseMatrix {
  TensorType type = TensorType::kF32;
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  std::uint64_t bytes() const { return rows * row_bytes(type, cols); }
  // What it takes of a card's memory.
  std::uint64_t card_bytes() const { return (bytes() + 255) / 256 * 256; }
};

struct ModelInfo {
  std::string architecture;
  std::uint32_t n_layers = 0;
  std::uint32_t d_model = 0;
  std::uint32_t vocabulary = 0;  // logits a row
  std::uint32_t n_experts = 0;
  std::uint32_t top_k = 0;
  std::uint32_t context = 0;  // the model's own
  std::uint64_t kv_bytes_per_position = 0;
  // Bytes of weights that one decode step of one row reads: dense matrices, head, one embedding row and top_k experts
  // a layer.
  std::uint64_t weight_bytes_per_step = 0;
  // Its parts that a step of several rows reads another number of times.
  std::uint64_t embedding_row_bytes = 0;    // once a row
  std::uint64_t head_bytes = 0;             // once a step, where some row wants logits
  std::vector<std::uint64_t> expert_bytes;  // [n_layers] once for each expert that some row chose
  std::vector<DenseMatrix> dense_products;  // of every layer, and the head
};

// One owner thread. Scratch grows to the largest step and is kept: a decode step allocates nothing after warm-up,
// but a cache block whenever a stream enters one.
class Trunk {
 public:
  virtual ~Trunk() = default;
  virtual const ModelInfo& info() const = 0;
  // Largest number of rows of one step.
  virtual std::size_t max_rows() const = 0;
  // Positions a stream may hold: the option's, or else the model's.
  virtual std::uint32_t context() const = 0;

  // A new, empty stream. kBusy when all are taken.
  virtual Result<StreamId> open_stream() = 0;
  // A new stream that holds the first `positions` of `from`, which has stored as many: nothing is computed or copied.
  // kBusy as open_stream().
  virtual Result<StreamId> fork_stream(StreamId from, std::uint32_t positions) = 0;
  // Frees the stream's cache blocks.
  virtual void close_stream(StreamId stream) = 0;
  virtual std::uint32_t length(StreamId stream) const = 0;  // positions stored

  // Computes the rows, stores their keys and values, and gives the logits asked for. Errors leave streams as they were
  // before the step: kContextFull (names position and context), kInvalidArgument (token out of range, wrong
  // position), kOutOfMemory (no cache block), or a leg's error. Rows that fail alone come back in StepResult::failed.
  // kUncertain: a node was found to compute wrong and is out. What steps since uncertain_since() gave, logits and what
  // streams store, may be wrong: the caller forgets the tokens chosen in them, cuts its streams with forget_since(),
  // and computes again what is left.
  virtual Result<StepResult> step(std::span<const StepRow> rows) = 0;
  // The number of the last step. It rises with each, failed ones too; the first is not 0.
  virtual std::uint64_t last_step() const = 0;
  // After kUncertain, until the next step.
  virtual std::uint64_t uncertain_since() const = 0;
  // Cuts the stream at its first position that was computed in `step` or later; what it holds now.
  std::uint32_t forget_since(StreamId stream, std::uint64_t step) { return cache().forget_since(stream, step); }
  // Cuts the stream to its first `positions`, at most length().
  void truncate(StreamId stream, std::uint32_t positions) { cache().commit(stream, positions); }

  // Where its streams' keys and values lie, by the same stream ids: for what memory they take, which streams rest, and
  // to save and restore them. Streams are opened, forked and closed through the trunk alone.
  virtual kv::Cache& cache() = 0;

  // Null: off.
  virtual void set_trace(TraceFn trace) = 0;
};

}  // namespace terrace::arch
