#include "kernels/executor/slice.h"

#include <algorithm>
#include <atomic>

#include "common/base/yield.h"
#include "kernels/registry/registry.h"

namespace terrace::kernels {
namespace {

// Weight rows of an item: whole cache lines of outputs; at most so many that a large group's outputs stay in the
// second-level cache (512 pairs * 128 * 4 bytes = 256 KiB).
constexpr std::size_t kMinChunk = 16;
constexpr std::size_t kMaxChunk = 128;
// The same of down while every expert has one row. An item has rows of all experts there, so at kMaxChunk it would be
// the longest of the step, and the workers that are through first would wait for half of it in each layer.
constexpr std::size_t kMaxChunkOfOneRow = 32;
// Items for each worker: enough that one which starts late costs little.
constexpr std::size_t kItemsPerWorker = 4;

std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

}  // namespace

// As reserve() and gather() set it aside.
std::uint64_t Executor::Slice::bytes_a_pair(const ExpertKernels& kernels, std::size_t n_workers) {
  const std::uint64_t h = std::uint64_t{kernels.shape.ff} * sizeof(float);
  const ActivationClass down = kernels.down_class();
  const std::uint64_t quantised = down == ActivationClass::kF32 ? 0 : row_bytes(down, kernels.shape.ff);
  const std::uint64_t products = std::uint64_t{n_workers} * kMaxChunk * sizeof(float);
  constexpr std::uint64_t kPointers = sizeof(Group) + 3 * (sizeof(const std::byte*) + sizeof(const float*));
  return h + quantised + products + kPointers;
}

void Executor::Slice::compute(const ExpertKernels& kernels, SlabOf slab_of, const BatchView& batch,
                              std::span<const Pair> pairs, const ExpertOutputs& outputs,
                              std::span<std::uint8_t> failed) {
  const auto part = [](const WeightKernels& weights, std::size_t cols) {
    return Part{&weights, cols, row_bytes(weights.type, cols)};
  };
  kernels_ = &kernels;
  gate_ = part(kernels.gate, kernels.shape.d_model);
  up_ = part(kernels.up, kernels.shape.d_model);
  down_ = part(kernels.down, kernels.shape.ff);
  batch_ = &batch;
  pairs_ = pairs;
  outputs_ = outputs;
  failed_ = failed;
  gather(slab_of);
  reserve();
  run();
}

// Pairs by expert, and where each pair's rows lie.
void Executor::Slice::gather(SlabOf slab_of) {
  Group* groups = groups_.at_least(pairs_.size());
  x_gate_.reserve(pairs_.size());
  x_up_.reserve(pairs_.size());
  n_groups_ = largest_group_ = 0;
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    const Pair& pair = pairs_[i];
    TERRACE_CHECK(pair.row < batch_->n_rows, "a pair names a row behind the batch's last");
    if (i == 0 || pair.expert != pairs_[i - 1].expert) {
      const SlabView slab = slab_of(pair.expert);
      TERRACE_CHECK(slab.gate && slab.up && slab.down, "this leg was asked for an expert that it does not hold");
      groups[n_groups_++] = {.slab = slab, .first = i};
    }
    largest_group_ = std::max(largest_group_, ++groups[n_groups_ - 1].n);
    x_gate_.set(i, batch_->gate_rows.row(pair.row));
    x_up_.set(i, batch_->up_rows.row(pair.row));
  }
}

void Executor::Slice::reserve() {
  const ExpertShape& shape = kernels_->shape;
  const std::size_t n_workers = parallel_.n_workers();
  h_.at_least(pairs_.size() * shape.ff);
  x_down_.reserve(pairs_.size());
  if (kernels_->down_class() != ActivationClass::kF32)
    h_quantised_.at_least(pairs_.size() * row_bytes(kernels_->down_class(), shape.ff));
  products_.at_least(n_workers * largest_group_ * kMaxChunk);
  if (kernels_->activations == Activations::kF32) dequantised_.at_least(n_workers * std::max(shape.d_model, shape.ff));
}

// Rows of an item when n_rows of each of n_groups matrices are cut: small enough to keep all workers busy with a
// single row of the model, large enough to be worth handing out.
std::size_t Executor::Slice::chunk_rows(std::size_t n_rows, std::size_t n_groups) const {
  const std::size_t n_chunks = divide_up(kItemsPerWorker * parallel_.n_workers(), n_groups);
  const std::size_t rows = divide_up(divide_up(n_rows, n_chunks), kMinChunk) * kMinChunk;
  return std::clamp(rows, kMinChunk, kMaxChunk);
}

void Executor::Slice::run() {
  const ExpertShape& shape = kernels_->shape;
  ff_chunk_ = chunk_rows(shape.ff, n_groups_);
  const bool short_items = largest_group_ == 1 && parallel_.n_workers() > 1;
  d_model_chunk_ = std::min(chunk_rows(shape.d_model, 1), short_items ? kMaxChunkOfOneRow : kMaxChunk);
  const std::size_t n_chunks = divide_up(shape.ff, ff_chunk_);
  const std::size_t n_gate_and_up = n_groups_ * n_chunks;
  for (std::size_t g = 0; g < n_groups_; ++g) groups_.data()[g].chunks_left = static_cast<std::uint32_t>(n_chunks);
  parallel_.run_in_order(n_gate_and_up + divide_up(shape.d_model, d_model_chunk_),
                         [&](std::size_t item, std::size_t worker) {
                           if (item < n_gate_and_up)
                             gate_and_up(groups_.data()[item / n_chunks], item % n_chunks, worker);
                           else
                             down(item - n_gate_and_up, worker);
                         });
}

// The worker that ends a group's last chunk sees what the others wrote to its h.
void Executor::Slice::gate_and_up(Group& group, std::size_t chunk, std::size_t worker) {
  const std::size_t first_row = chunk * ff_chunk_;
  multiply_gate_and_up(group, first_row, std::min(ff_chunk_, kernels_->shape.ff - first_row), worker);
  if (std::atomic_ref(group.chunks_left).fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  for (std::size_t j = 0; j < group.n; ++j) quantise(group.first + j);
  std::atomic_ref(group.h_ready).store(1, std::memory_order_release);
}

void Executor::Slice::multiply_gate_and_up(const Group& group, std::size_t first_row, std::size_t n_rows,
                                           std::size_t worker) {
  const ExpertShape& shape = kernels_->shape;
  float* h = h_.data() + group.first * shape.ff + first_row;
  float* up = products_.data() + worker * largest_group_ * kMaxChunk;
  multiply({gate_, group.slab.gate, first_row, n_rows}, x_gate_, group, h, shape.ff, worker);
  multiply({up_, group.slab.up, first_row, n_rows}, x_up_, group, up, n_rows, worker);
  for (std::size_t j = 0; j < group.n; ++j) ops_.silu_mul(h + j * shape.ff, up + j * n_rows, n_rows, h + j * shape.ff);
}

// A row that is not finite has no quantised form: it fails here, and zeros go on in its place.
void Executor::Slice::quantise(std::size_t pair) {
  const std::size_t ff = kernels_->shape.ff;
  float* h = h_.data() + pair * ff;
  if (!ops_.all_finite(h, ff)) {
    fail(pair);
    std::fill_n(h, ff, 0.0f);
  }
  const ActivationClass activation = kernels_->down_class();
  if (activation == ActivationClass::kF32) return x_down_.set(pair, reinterpret_cast<const std::byte*>(h));
  std::byte* quantised = h_quantised_.data() + pair * row_bytes(activation, ff);
  ops_.quantize_row(activation, h, ff, quantised);
  x_down_.set(pair, quantised);
}

void Executor::Slice::down(std::size_t chunk, std::size_t worker) {
  const std::size_t first_row = chunk * d_model_chunk_;
  const std::size_t n_rows = std::min(d_model_chunk_, kernels_->shape.d_model - first_row);
  for (std::size_t g = 0; g < n_groups_; ++g) {
    Group& group = groups_.data()[g];
    await_h(group);
    down(group, first_row, n_rows, worker);
  }
}

// At the most as long as one item of gate and up takes that another worker has begun. A core that is wanted for that
// item, or for anything else, is given away.
void Executor::Slice::await_h(Group& group) {
  while (std::atomic_ref(group.h_ready).load(std::memory_order_acquire) == 0) yield_core();
}

void Executor::Slice::down(const Group& group, std::size_t first_row, std::size_t n_rows, std::size_t worker) {
  const ExpertShape& shape = kernels_->shape;
  const bool to_slots = outputs_.slots != nullptr;
  float* out = to_slots ? outputs_.slots + group.first * shape.d_model + first_row
                        : products_.data() + worker * largest_group_ * kMaxChunk;
  const std::size_t stride = to_slots ? shape.d_model : n_rows;
  multiply({down_, group.slab.down, first_row, n_rows}, x_down_, group, out, stride, worker);
  for (std::size_t j = 0; j < group.n; ++j) deliver(group.first + j, out + j * stride, first_row, n_rows);
}

void Executor::Slice::multiply(const Product& product, const RowPointers& x, const Group& group, float* y,
                               std::size_t y_stride, std::size_t worker) const {
  const Part& part = product.part;
  const std::byte* w = product.data + product.first_row * part.row_bytes;
  if (kernels_->activations == Activations::kQuantised) {
    part.weights->dot_rows(w, part.row_bytes, product.n_rows, x.bytes.data() + group.first, group.n, part.cols, y,
                           y_stride);
  } else {
    float* scratch = dequantised_.data() + worker * std::max(kernels_->shape.d_model, kernels_->shape.ff);
    dot_rows_dequantized(*part.weights, w, part.row_bytes, product.n_rows, x.floats.data() + group.first, group.n,
                         part.cols, y, y_stride, scratch);
  }
}

void Executor::Slice::deliver(std::size_t pair, const float* out, std::size_t first_row, std::size_t n_rows) const {
  if (outputs_.slots != nullptr) {
    if (!ops_.all_finite(out, n_rows)) fail(pair);
    return;
  }
  const SumsView& sums = outputs_.sums;
  const Pair& p = pairs_[pair];
  if (!ops_.add_fixed(p.weight, out, n_rows, sums.shift, sums.row(p.row) + first_row)) fail(pair);
}

// Several workers may find the same row bad.
void Executor::Slice::fail(std::size_t pair) const {
  std::atomic_ref(failed_[pairs_[pair].row]).store(1, std::memory_order_relaxed);
}

}  // namespace terrace::kernels
