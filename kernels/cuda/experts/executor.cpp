#include "kernels/cuda/experts/executor.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "kernels/cuda/activations/activations.h"
#include "kernels/cuda/combine/combine.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/expert_gemv/expert_gemv.h"

namespace terrace::kernels::cuda {
namespace {

// One or two streams that decode. More pairs come in too many sizes, and their launches hide behind their kernels.
constexpr std::size_t kMostReplayedPairs = 16;
constexpr std::size_t kMostReplays = 128;

SliceSize size_of(const CardSlice& slice) {
  return {slice.n_rows, static_cast<std::uint32_t>(slice.pairs.size()), slice.most_pairs_of_row};
}

}  // namespace

Result<ExpertForm> form_of(const ExpertShape& shape) {
  for (const TensorType type : {shape.gate, shape.up, shape.down})
    if (!has_gemv(type))
      return Error(ErrorCode::kUnsupported, fmt::format("there is no card kernel for {}", info(type).name));
  return ExpertForm{shape, gemv_activation(shape.gate), gemv_activation(shape.up), gemv_activation(shape.down)};
}

Result<std::unique_ptr<CudaExecutor>> CudaExecutor::make(const Card& card, std::byte* workspace,
                                                         const WorkspaceBytes& bytes, std::function<void()> give_back) {
  TERRACE_ASSIGN_OR_RETURN(Stream stream, card.make_stream());
  TERRACE_ASSIGN_OR_RETURN(Event begin, card.make_event());
  TERRACE_ASSIGN_OR_RETURN(Event end, card.make_event());
  TERRACE_ASSIGN_OR_RETURN(PinnedBuffer in, card.make_pinned(bytes.pinned / 2));
  TERRACE_ASSIGN_OR_RETURN(PinnedBuffer back, card.make_pinned(bytes.pinned / 2));
  return std::unique_ptr<CudaExecutor>(new CudaExecutor(std::move(stream), std::move(begin), std::move(end),
                                                        std::move(in), std::move(back), workspace, bytes,
                                                        std::move(give_back)));
}

CudaExecutor::CudaExecutor(Stream stream, Event begin, Event end, PinnedBuffer in, PinnedBuffer back,
                           std::byte* workspace, const WorkspaceBytes& bytes, std::function<void()> give_back)
    : stream_(std::move(stream)),
      begin_(std::move(begin)),
      end_(std::move(end)),
      in_(std::move(in)),
      back_(std::move(back)),
      workspace_(workspace),
      bytes_(bytes),
      give_back_(std::move(give_back)) {}

// A batch that nobody collected may still run.
CudaExecutor::~CudaExecutor() {
  (void)stream_.synchronize();
  give_back_();
}

Status CudaExecutor::submit(const ExpertShape& shape, Executor::SlabOf slab_of, const BatchView& batch, int shift) {
  return begin(shape, slab_of, batch, shift, false);
}

Status CudaExecutor::begin(const ExpertShape& shape, Executor::SlabOf slab_of, const BatchView& batch, int shift,
                           bool to_slots) {
  TERRACE_CHECK(!open_, "submit() before collect()");
  TERRACE_ASSIGN_OR_RETURN(form_, form_of(shape));
  TERRACE_CHECK(batch.gate_rows.activation == form_.gate_class && batch.up_rows.activation == form_.up_class,
                "rows are in the classes of gate and up");
  TERRACE_ASSIGN_OR_RETURN(const SliceLimits limits, slice_limits(form_, bytes_, to_slots));
  slabs_.clear();
  for (const Pair& pair : batch.pairs) {
    TERRACE_CHECK(pair.row < batch.n_rows, "a pair names a row behind the batch's last");
    if (!slabs_.empty() && slabs_.back().expert == pair.expert) continue;
    slabs_.push_back({pair.expert, slab_of(pair.expert)});
    const SlabView& slab = slabs_.back().slab;
    TERRACE_CHECK(slab.gate && slab.up && slab.down, "this card was asked for an expert that it does not hold");
  }
  batch_ = batch;
  shift_ = shift;
  to_slots_ = to_slots;
  slicer_.begin(batch.pairs, static_cast<std::uint32_t>(batch.n_rows), limits);
  slice_ = slicer_.next();
  if (slice_ != nullptr) TERRACE_RETURN_IF_ERROR(queue(*slice_));
  open_ = true;
  return {};
}

Result<ExecStats> CudaExecutor::finish(Executor::BetweenSlices between_slices,
                                       FunctionRef<void(const CardSlice& slice)> take) {
  TERRACE_CHECK(open_, "collect() before submit()");
  open_ = false;
  ExecStats stats;
  while (slice_ != nullptr) {
    TERRACE_RETURN_IF_ERROR(stream_.synchronize());
    TERRACE_ASSIGN_OR_RETURN(const float milliseconds, end_.milliseconds_since(begin_));
    stats.compute_ns += static_cast<std::uint64_t>(double{milliseconds} * 1e6);
    stats.pairs += slice_->pairs.size();
    take(*slice_);
    if (stats.pairs < batch_.pairs.size() && !between_slices())
      return Error(ErrorCode::kDeadline,
                   fmt::format("experts were stopped after {} of {} pairs", stats.pairs, batch_.pairs.size()));
    slice_ = slicer_.next();
    if (slice_ != nullptr) TERRACE_RETURN_IF_ERROR(queue(*slice_));
  }
  return stats;
}

Result<ExecStats> CudaExecutor::collect(SumsView sums, std::span<std::uint8_t> failed,
                                        Executor::BetweenSlices between_slices) {
  TERRACE_CHECK(sums.d_model == form_.shape.d_model && failed.size() == batch_.n_rows, "sums of the batch's rows");
  return finish(between_slices, [&](const CardSlice& slice) {
    const auto* back = reinterpret_cast<const std::int64_t*>(back_.data());
    const std::byte* flags = back_.data() + (at_.failed - at_.sums);
    for (std::uint32_t row = 0; row < slice.n_rows; ++row) {
      if (in<std::int32_t>(at_.slots)[std::size_t{row} * slice.most_pairs_of_row] < 0) continue;  // no pair here
      if (flags[row] != std::byte{0}) failed[slice.first_row + row] = 1;
      std::int64_t* const to = sums.row(slice.first_row + row);
      const std::int64_t* const from = back + std::size_t{row} * sums.d_model;
      for (std::size_t i = 0; i < sums.d_model; ++i) to[i] += from[i];
    }
  });
}

Result<ExecStats> CudaExecutor::run_slots(const ExpertShape& shape, Executor::SlabOf slab_of, const BatchView& batch,
                                          std::span<float> out, std::span<std::uint8_t> failed,
                                          Executor::BetweenSlices between_slices) {
  const std::size_t d_model = shape.d_model;
  TERRACE_CHECK(out.size() == batch.pairs.size() * d_model && failed.size() == batch.n_rows, "a slot for each pair");
  TERRACE_RETURN_IF_ERROR(begin(shape, slab_of, batch, shift_, true));
  return finish(between_slices, [&](const CardSlice& slice) {
    const std::byte* flags = back_.data() + slice.pairs.size() * d_model * sizeof(float);
    for (std::size_t i = 0; i < slice.pairs.size(); ++i) {
      std::memcpy(out.data() + slice.pairs[i] * d_model, back_.data() + i * d_model * sizeof(float),
                  d_model * sizeof(float));
      const std::uint16_t row = batch_.pairs[slice.pairs[i]].row;
      if (flags[row - slice.first_row] != std::byte{0}) failed[row] = 1;
    }
  });
}

// ---- one slice on its way ----

Status CudaExecutor::queue(const CardSlice& slice) {
  at_ = lay_out(form_, size_of(slice));
  fill_rows(slice);
  fill_pairs(slice);
  TERRACE_RETURN_IF_ERROR(stream_.record(begin_));
  TERRACE_RETURN_IF_ERROR(is_replayed(slice) ? replay(slice) : launch_all(slice));
  return stream_.record(end_);
}

bool CudaExecutor::is_replayed(const CardSlice& slice) const {
  return !to_slots_ && slice.pairs.size() <= kMostReplayedPairs;
}

Status CudaExecutor::replay(const CardSlice& slice) {
  const Replayed what{form_, size_of(slice), shift_};
  const auto found = std::find_if(replays_.begin(), replays_.end(), [&](const Replay& r) { return r.what == what; });
  if (found != replays_.end()) return found->graph.launch(stream_);
  if (replays_.size() >= kMostReplays) return launch_all(slice);
  Result<Graph> graph = Graph::capture(stream_, [&] { return launch_all(slice); });
  if (!graph.ok() && graph.error().code() == ErrorCode::kOutOfMemory) return launch_all(slice);
  if (!graph.ok()) return graph.error();
  replays_.push_back({what, std::move(*graph)});
  return replays_.back().graph.launch(stream_);
}

Status CudaExecutor::launch_all(const CardSlice& slice) {
  TERRACE_RETURN_IF_ERROR(stream_.copy_to_card(workspace_, in_.data(), at_.in_bytes));
  TERRACE_RETURN_IF_ERROR(stream_.fill(workspace_ + at_.sums, 0, at_.back_bytes()));
  TERRACE_RETURN_IF_ERROR(launch_rows(slice));
  TERRACE_RETURN_IF_ERROR(launch_gate_and_up(slice));
  TERRACE_RETURN_IF_ERROR(launch_down(slice));
  return launch_back(slice);
}

void CudaExecutor::fill_rows(const CardSlice& slice) {
  const auto copy = [&](const RowsView& rows, std::uint64_t offset) {
    const std::size_t bytes = row_bytes(rows.activation, form_.shape.d_model);
    for (std::uint32_t row = 0; row < slice.n_rows; ++row)
      std::memcpy(in_.data() + offset + row * bytes, rows.row(slice.first_row + row), bytes);
  };
  copy(batch_.gate_rows, at_.gate_rows);
  if (at_.up_rows != at_.gate_rows) copy(batch_.up_rows, at_.up_rows);
}

const SlabView& CudaExecutor::slab_of_expert(std::uint16_t expert) const {
  return std::lower_bound(slabs_.begin(), slabs_.end(), expert,
                          [](const ExpertSlab& held, std::uint16_t id) { return held.expert < id; })
      ->slab;
}

void CudaExecutor::fill_pairs(const CardSlice& slice) {
  const std::size_t stride = slice.most_pairs_of_row, n_slots = slice.n_rows * stride;
  auto* const slots = in<std::int32_t>(at_.slots);
  auto* const weights = in<float>(at_.weights);
  std::fill_n(slots, n_slots, -1);
  std::fill_n(weights, n_slots, 0.0f);
  GemvGroup* const groups[] = {in<GemvGroup>(at_.gate_groups), in<GemvGroup>(at_.up_groups),
                               in<GemvGroup>(at_.down_groups)};
  n_groups_ = largest_group_ = 0;
  for (std::uint32_t i = 0; i < slice.pairs.size(); ++i) {
    const Pair& pair = batch_.pairs[slice.pairs[i]];
    if (i == 0 || pair.expert != batch_.pairs[slice.pairs[i - 1]].expert) {
      const SlabView& slab = slab_of_expert(pair.expert);
      const std::byte* const parts[] = {slab.gate, slab.up, slab.down};
      for (int part = 0; part < 3; ++part) groups[part][n_groups_] = {parts[part], i, 0};
      ++n_groups_;
    }
    for (GemvGroup* const part : groups) ++part[n_groups_ - 1].n;
    largest_group_ = std::max(largest_group_, groups[0][n_groups_ - 1].n);
    const std::uint32_t row = pair.row - slice.first_row;
    in<std::uint32_t>(at_.x_rows)[i] = row;
    std::size_t free = row * stride;
    while (slots[free] >= 0) ++free;
    slots[free] = static_cast<std::int32_t>(i);
    weights[free] = pair.weight;
  }
  if (!is_replayed(slice)) return;
  // One launch for every choice of experts: groups without rows are passed over.
  for (; n_groups_ < slice.pairs.size(); ++n_groups_)
    for (GemvGroup* const part : groups) part[n_groups_] = {};
  largest_group_ = slice.n_rows;
}

Status CudaExecutor::launch_rows(const CardSlice& slice) {
  const std::uint32_t cols = form_.shape.d_model;
  const auto make = [&](ActivationClass activation, TensorType type, std::uint64_t from, std::uint64_t to) {
    return make_card_rows(stream_, {activation, on_card<std::byte>(from), row_bytes(activation, cols), slice.n_rows,
                                    cols, on_card<std::byte>(to), card_row_bytes(type, cols)});
  };
  TERRACE_RETURN_IF_ERROR(make(form_.gate_class, form_.shape.gate, at_.gate_rows, at_.gate_x));
  if (at_.up_x == at_.gate_x) return {};
  return make(form_.up_class, form_.shape.up, at_.up_rows, at_.up_x);
}

GemvArgs CudaExecutor::product(TensorType type, std::uint64_t groups, std::uint32_t weight_rows, std::uint32_t cols,
                               std::uint64_t x, std::uint64_t y) const {
  GemvArgs args;
  args.type = type;
  args.weight_rows = weight_rows;
  args.cols = cols;
  args.groups = on_card<GemvGroup>(groups);
  args.n_groups = n_groups_;
  args.max_rows = largest_group_;
  args.x = on_card<std::byte>(x);
  args.x_stride = card_row_bytes(type, cols);
  args.y = on_card<float>(y);
  args.y_stride = weight_rows;
  return args;
}

Status CudaExecutor::launch_gate_and_up(const CardSlice& slice) {
  const ExpertShape& shape = form_.shape;
  const auto n = static_cast<std::uint32_t>(slice.pairs.size());
  GemvArgs gate = product(shape.gate, at_.gate_groups, shape.ff, shape.d_model, at_.gate_x, at_.gate);
  GemvArgs up = product(shape.up, at_.up_groups, shape.ff, shape.d_model, at_.up_x, at_.up);
  gate.x_rows = up.x_rows = on_card<std::uint32_t>(at_.x_rows);
  TERRACE_RETURN_IF_ERROR(expert_gemv(stream_, gate));
  TERRACE_RETURN_IF_ERROR(expert_gemv(stream_, up));
  TERRACE_RETURN_IF_ERROR(silu_mul(stream_, gate.y, up.y, std::size_t{n} * shape.ff, on_card<float>(at_.gate)));
  return mark_not_finite(stream_, {gate.y, shape.ff, n, shape.ff, gate.x_rows, on_card<std::uint8_t>(at_.failed)});
}

// A row of h that is not finite has no quantised form: what comes of it is undefined, and its row has failed.
Status CudaExecutor::launch_down(const CardSlice& slice) {
  const ExpertShape& shape = form_.shape;
  TERRACE_RETURN_IF_ERROR(quantize_card_rows(
      stream_, {form_.down_class, on_card<float>(at_.gate), shape.ff, static_cast<std::uint32_t>(slice.pairs.size()),
                shape.ff, on_card<std::byte>(at_.h), card_row_bytes(shape.down, shape.ff)}));
  return expert_gemv(stream_, product(shape.down, at_.down_groups, shape.d_model, shape.ff, at_.h, at_.out));
}

Status CudaExecutor::launch_back(const CardSlice& slice) {
  const std::uint32_t d_model = form_.shape.d_model;
  const auto n = static_cast<std::uint32_t>(slice.pairs.size());
  auto* const failed = on_card<std::uint8_t>(at_.failed);
  if (to_slots_) {
    TERRACE_RETURN_IF_ERROR(mark_not_finite(
        stream_, {on_card<float>(at_.out), d_model, n, d_model, on_card<std::uint32_t>(at_.x_rows), failed}));
    const std::size_t bytes = std::size_t{n} * d_model * sizeof(float);
    TERRACE_RETURN_IF_ERROR(stream_.copy_to_host(back_.data(), on_card<float>(at_.out), bytes));
    return stream_.copy_to_host(back_.data() + bytes, failed, slice.n_rows);
  }
  AddFixedArgs add;
  add.out = on_card<float>(at_.out);
  add.out_stride = d_model;
  add.slots = on_card<std::int32_t>(at_.slots);
  add.weights = on_card<float>(at_.weights);
  add.n_slots = slice.most_pairs_of_row;
  add.n_rows = slice.n_rows;
  add.n = d_model;
  add.shift = shift_;
  add.sums = on_card<std::int64_t>(at_.sums);
  add.failed = failed;
  TERRACE_RETURN_IF_ERROR(add_fixed(stream_, add));
  return stream_.copy_to_host(back_.data(), add.sums, at_.back_bytes());
}

}  // namespace terrace::kernels::cuda
