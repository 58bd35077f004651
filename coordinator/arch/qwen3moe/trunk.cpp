#include "coordinator/arch/qwen3moe/trunk.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "coordinator/arch/parts/gqa.h"
#include "coordinator/arch/parts/matrix.h"
#include "coordinator/arch/parts/rows.h"
#include "coordinator/arch/parts/streams.h"
#include "coordinator/arch/qwen3moe/card_model.h"
#include "coordinator/arch/qwen3moe/model.h"
#include "coordinator/kv/cache.h"
#include "coordinator/legs/polling_parallel.h"
#include "kernels/cpu/ops/ops.h"

namespace terrace::arch::qwen3moe {
namespace {

// Buffers of a step, [n_rows, ...]: grown to the largest step and kept.
struct Buffers {
  std::vector<float> x;                // [d_model] residual
  std::vector<float> h;                // [d_model] normed rows
  std::vector<float> delta;            // [d_model] what is added to the residual
  std::vector<float> choices;          // [n_experts] router logits
  std::vector<std::uint16_t> experts;  // [top_k]
  std::vector<float> weights;          // [top_k]
  std::vector<std::int64_t> sums;      // [d_model]
  std::vector<std::uint8_t> failed;    // of the routed experts
  std::vector<float> logits;           // [rows that want them, vocabulary]
};

template <class T>
void grow(std::vector<T>& buffer, std::size_t n) {
  if (buffer.size() < n) buffer.resize(n);
}

class Qwen3MoeTrunk final : public Trunk {
 public:
  // card: null without one.
  Qwen3MoeTrunk(Model model, const TrunkOptions& options, const kernels::Ops& ops,
                std::unique_ptr<kernels::CardMultiplier> card, legs::RoutedExperts& experts, Parallel& parallel)
      : model_(std::move(model)),
        options_(options),
        ops_(ops),
        experts_(experts),
        parallel_(parallel, [this] { experts_.progress(); }),
        cache_(model_.cache, options.context == 0 ? model_.info.context : options.context, options.max_streams,
               options.cache_bytes / model_.cache.block_bytes()),
        streams_(cache_, model_.info.vocabulary, options.max_rows),
        card_(std::move(card)),
        multiplier_(parallel_, card_.get()),
        normed_(parallel_, ops_),
        attention_(model_.parameters.attention, cache_, ops_, parallel_, multiplier_),
        router_scratch_(parallel.n_workers(), std::vector<float>(2 * std::size_t{model_.info.n_experts})) {}

  const ModelInfo& info() const override { return model_.info; }
  std::size_t max_rows() const override { return options_.max_rows; }
  std::uint32_t context() const override { return cache_.context(); }
  Result<StreamId> open_stream() override { return streams_.open(); }
  Result<StreamId> fork_stream(StreamId from, std::uint32_t positions) override {
    return streams_.fork(from, positions);
  }
  kv::Cache& cache() override { return cache_; }
  void close_stream(StreamId stream) override { streams_.close(stream); }
  std::uint32_t length(StreamId stream) const override { return streams_.length(stream); }
  void set_trace(TraceFn trace) override { trace_ = std::move(trace); }
  std::uint64_t last_step() const override { return experts_.step(); }
  std::uint64_t uncertain_since() const override { return experts_.uncertain_since(); }

  Result<StepResult> step(std::span<const StepRow> rows) override;

 private:
  std::size_t d_model() const { return model_.info.d_model; }
  float* x(std::size_t row) { return buffers_.x.data() + row * d_model(); }
  float* h(std::size_t row) { return buffers_.h.data() + row * d_model(); }
  float* delta(std::size_t row) { return buffers_.delta.data() + row * d_model(); }

  // Which rows go through a layer together, and what they are.
  struct Part {
    std::size_t first = 0;
    std::size_t n = 0;
  };

  Status compute(std::span<const StepRow> rows);
  Status compute_layers();
  void begin(std::span<const StepRow> rows);
  void cut_parts();
  void embed(std::span<const StepRow> rows);
  void norm(std::size_t row, std::size_t to, std::uint32_t layer, const float* weights, const char* what);
  void add_delta(std::size_t row, std::uint32_t layer, const char* what);
  Status begin_layer(const Part& part, std::uint32_t layer);
  Status end_layer(const Part& part, std::uint32_t layer);
  void attend(const Part& part, std::uint32_t layer);
  void choose_experts(const Part& part, std::uint32_t layer);
  void choose(std::size_t row, std::uint32_t layer, const kernels::RouterRule& rule, float* scratch);
  Status submit_experts(const Part& part, std::uint32_t layer);
  void add_experts(std::size_t row, std::uint32_t layer);
  void trace(const Part& part, std::uint32_t layer) const;
  void compute_logits();

  Model model_;
  TrunkOptions options_;
  kernels::Ops ops_;
  legs::RoutedExperts& experts_;
  legs::PollingParallel parallel_;
  TraceFn trace_;

  kv::Cache cache_;
  Streams streams_;
  std::unique_ptr<kernels::CardMultiplier> card_;
  Multiplier multiplier_;
  ActivationRows normed_;
  GqaAttention attention_;
  RowFailures failures_;
  Buffers buffers_;
  std::vector<std::vector<float>> router_scratch_;  // one a worker
  std::vector<std::size_t> wanted_;                 // rows that want logits
  std::size_t n_rows_ = 0;                          // of the current step
  std::array<Part, legs::kMostLayersOpen> parts_;   // of its rows, in order
  std::size_t n_parts_ = 0;
};

Result<StepResult> Qwen3MoeTrunk::step(std::span<const StepRow> rows) {
  TERRACE_RETURN_IF_ERROR(streams_.begin(rows));
  if (const Status status = compute(rows); !status.ok()) {
    streams_.roll_back(rows);
    return status.error();
  }
  StepResult result;
  result.logits = std::span<const float>(buffers_.logits).first(wanted_.size() * model_.info.vocabulary);
  streams_.commit(rows, failures_, result.failed);
  return result;
}

Status Qwen3MoeTrunk::compute(std::span<const StepRow> rows) {
  begin(rows);
  if (rows.empty()) return {};
  experts_.begin_step();
  cache_.set_step(experts_.step());
  cut_parts();
  embed(rows);
  attention_.begin(rows, parts_[0].n);
  const Status computed = compute_layers();
  parallel_.stop_polling();
  if (!computed.ok()) {
    const Status abandoned = experts_.abandon();
    return abandoned.ok() ? computed : abandoned;
  }
  compute_logits();
  return multiplier_.status();
}

// With several parts, each computes its part of the trunk while the experts of the others' are under way. A row's keys
// of a layer are stored before any later row attends to them, in its own part or a later one.
Status Qwen3MoeTrunk::compute_layers() {
  const auto parts = std::span(parts_).first(n_parts_);
  for (std::uint32_t layer = 0; layer < model_.info.n_layers; ++layer)
    for (const Part& part : parts) {
      if (layer > 0) TERRACE_RETURN_IF_ERROR(end_layer(part, layer - 1));
      TERRACE_RETURN_IF_ERROR(begin_layer(part, layer));
    }
  for (const Part& part : parts) TERRACE_RETURN_IF_ERROR(end_layer(part, model_.info.n_layers - 1));
  return {};
}

// docs/adr/0025: the rule. Every choice gives the same bits.
void Qwen3MoeTrunk::cut_parts() {
  n_parts_ = step_parts(options_, streams_.one_row_each(), n_rows_, experts_.computes_elsewhere());
  // The first ones have a row more where they are not equal.
  std::size_t first = 0;
  for (std::size_t i = 0; i < n_parts_; ++i) {
    parts_[i] = {first, (n_rows_ - first + n_parts_ - i - 1) / (n_parts_ - i)};
    first += parts_[i].n;
  }
}

void Qwen3MoeTrunk::begin(std::span<const StepRow> rows) {
  n_rows_ = rows.size();
  failures_.reset(n_rows_);
  wanted_.clear();
  for (std::size_t i = 0; i < n_rows_; ++i)
    if (rows[i].want_logits) wanted_.push_back(i);
  grow(buffers_.x, n_rows_ * d_model());
  grow(buffers_.h, n_rows_ * d_model());
  grow(buffers_.delta, n_rows_ * d_model());
  grow(buffers_.choices, n_rows_ * model_.info.n_experts);
  grow(buffers_.experts, n_rows_ * model_.info.top_k);
  grow(buffers_.weights, n_rows_ * model_.info.top_k);
  grow(buffers_.sums, n_rows_ * d_model());
  grow(buffers_.failed, n_rows_);
  grow(buffers_.logits, wanted_.size() * model_.info.vocabulary);
}

void Qwen3MoeTrunk::embed(std::span<const StepRow> rows) {
  const Matrix& embedding = model_.tensors.embedding;
  for_each_row(parallel_, n_rows_, [&](std::size_t row, std::size_t) {
    embedding.kernels.dequantize_row(embedding.row(static_cast<std::size_t>(rows[row].token)), d_model(), x(row));
    if (!ops_.all_finite(x(row), d_model()))
      failures_.fail(row, RowFailures::kNoLayer, "embedding's values", x(row), d_model());
  });
}

// h[to] = the normed residual of `row`.
void Qwen3MoeTrunk::norm(std::size_t row, std::size_t to, std::uint32_t layer, const float* weights, const char* what) {
  ops_.rms_norm(x(row), weights, d_model(), model_.parameters.norm_eps, h(to));
  if (!ops_.all_finite(h(to), d_model())) failures_.fail(row, layer, what, h(to), d_model());
}

void Qwen3MoeTrunk::add_delta(std::size_t row, std::uint32_t layer, const char* what) {
  ops_.add(x(row), delta(row), d_model());
  if (!ops_.all_finite(x(row), d_model())) failures_.fail(row, layer, what, x(row), d_model());
}

// Until the experts of this layer are under way.
Status Qwen3MoeTrunk::begin_layer(const Part& part, std::uint32_t layer) {
  attend(part, layer);
  TERRACE_RETURN_IF_ERROR(multiplier_.status());
  choose_experts(part, layer);
  return submit_experts(part, layer);
}

// x = x + attention output; h = its norm, for the router and the experts.
void Qwen3MoeTrunk::attend(const Part& part, std::uint32_t layer) {
  const Layer& weights = model_.tensors.layers[layer];
  for_each_row(parallel_, part.n, [&](std::size_t i, std::size_t) {
    norm(part.first + i, part.first + i, layer, weights.attention_norm, "normed values before attention");
  });
  normed_.set(h(part.first), part.n, d_model());
  attention_.run(layer, weights.attention, part.first, normed_, failures_, delta(part.first));
  for_each_row(parallel_, part.n, [&](std::size_t i, std::size_t) {
    add_delta(part.first + i, layer, "residual values after attention");
    norm(part.first + i, part.first + i, layer, weights.expert_norm, "normed values before the experts");
  });
}

void Qwen3MoeTrunk::choose_experts(const Part& part, std::uint32_t layer) {
  normed_.set(h(part.first), part.n, d_model());
  float* choices = buffers_.choices.data() + part.first * model_.info.n_experts;
  multiplier_.run(std::array{Product{&model_.tensors.layers[layer].router, choices}}, normed_);
  kernels::RouterRule rule;
  rule.top_k = model_.info.top_k;
  rule.scale = model_.parameters.expert_scale;
  for_each_row(parallel_, part.n, [&](std::size_t i, std::size_t worker) {
    choose(part.first + i, layer, rule, router_scratch_[worker].data());
  });
}

void Qwen3MoeTrunk::choose(std::size_t row, std::uint32_t layer, const kernels::RouterRule& rule, float* scratch) {
  const std::size_t n_experts = model_.info.n_experts;
  float* logits = buffers_.choices.data() + row * n_experts;
  if (!ops_.all_finite(logits, n_experts)) failures_.fail(row, layer, "router logits", logits, n_experts);
  kernels::route(logits, n_experts, rule, ops_.exp, scratch, buffers_.experts.data() + row * rule.top_k,
                 buffers_.weights.data() + row * rule.top_k);
}

Status Qwen3MoeTrunk::submit_experts(const Part& part, std::uint32_t layer) {
  legs::RoutedRows routed;
  routed.layer = layer;
  routed.rows = h(part.first);
  routed.n_rows = static_cast<std::uint32_t>(part.n);
  routed.experts = buffers_.experts.data() + part.first * model_.info.top_k;
  routed.weights = buffers_.weights.data() + part.first * model_.info.top_k;
  routed.priority = streams_.one_row_each() ? legs::Priority::kDecode : legs::Priority::kPrompt;
  TERRACE_RETURN_IF_ERROR(experts_.submit(routed));
  if (n_parts_ > 1) parallel_.start_polling();
  return {};
}

// x = x + the routed experts' sum.
Status Qwen3MoeTrunk::end_layer(const Part& part, std::uint32_t layer) {
  const auto failed = std::span(buffers_.failed).subspan(part.first, part.n);
  std::fill(failed.begin(), failed.end(), std::uint8_t{0});
  std::int64_t* sums = buffers_.sums.data() + part.first * d_model();
  TERRACE_RETURN_IF_ERROR(experts_.collect({sums, d_model(), options_.shift}, failed));
  for_each_row(parallel_, part.n, [&](std::size_t i, std::size_t) { add_experts(part.first + i, layer); });
  if (trace_) trace(part, layer);
  return {};
}

void Qwen3MoeTrunk::add_experts(std::size_t row, std::uint32_t layer) {
  const std::int64_t* sums = buffers_.sums.data() + row * d_model();
  if (buffers_.failed[row] != 0 || !ops_.from_fixed(sums, d_model(), options_.shift, delta(row)))
    failures_.fail_experts(row, layer, std::span(buffers_.experts).subspan(row * model_.info.top_k, model_.info.top_k),
                           delta(row), d_model());
  add_delta(row, layer, "residual values after the experts");
}

void Qwen3MoeTrunk::trace(const Part& part, std::uint32_t layer) const {
  const std::size_t top_k = model_.info.top_k;
  for (std::size_t row = part.first; row < part.first + part.n; ++row) {
    if (failures_.failed(row)) continue;
    trace_({layer, row, std::span(buffers_.experts).subspan(row * top_k, top_k),
            std::span(buffers_.weights).subspan(row * top_k, top_k),
            std::span(buffers_.sums).subspan(row * d_model(), d_model()),
            std::span(buffers_.x).subspan(row * d_model(), d_model())});
  }
}

void Qwen3MoeTrunk::compute_logits() {
  if (wanted_.empty()) return;
  const std::size_t vocabulary = model_.info.vocabulary;
  for_each_row(parallel_, wanted_.size(), [&](std::size_t i, std::size_t) {
    norm(wanted_[i], i, RowFailures::kNoLayer, model_.tensors.output_norm, "normed values before the output head");
  });
  normed_.set(buffers_.h.data(), wanted_.size(), d_model());
  multiplier_.run(std::array{Product{&model_.tensors.head, buffers_.logits.data()}}, normed_);
  for_each_row(parallel_, wanted_.size(), [&](std::size_t i, std::size_t) {
    float* logits = buffers_.logits.data() + i * vocabulary;
    if (!ops_.all_finite(logits, vocabulary))
      failures_.fail(wanted_[i], RowFailures::kNoLayer, "logits", logits, vocabulary);
  });
}

}  // namespace

Result<ModelInfo> describe(const gguf::File& file, const TrunkOptions& options) {
  TERRACE_ASSIGN_OR_RETURN(Model model, read_model(file, options));
  return std::move(model.info);
}

Result<std::unique_ptr<Trunk>> make_trunk(const gguf::File& file, const TrunkOptions& options,
                                          legs::RoutedExperts& experts, Parallel& parallel) {
  TERRACE_ASSIGN_OR_RETURN(Model model, read_model(file, options));
  TERRACE_ASSIGN_OR_RETURN(const kernels::Ops ops, kernels::select_ops(kernels::detect_cpu_features(), options.isa));
  if (options.on_card) return make_card_trunk(file, std::move(model), options, ops, experts, parallel);
  std::unique_ptr<kernels::CardMultiplier> card;
  if (options.card != nullptr) {
    TERRACE_ASSIGN_OR_RETURN(card, options.card->make_multiplier());
    TERRACE_RETURN_IF_ERROR(copy_to_card(model.tensors.dense_products(), *options.card, options.card_memory));
  }
  return std::unique_ptr<Trunk>(
      std::make_unique<Qwen3MoeTrunk>(std::move(model), options, ops, std::move(card), experts, parallel));
}

Result<DenseGroups> dense_groups(const gguf::File& file, const TrunkOptions& options) {
  TERRACE_ASSIGN_OR_RETURN(const Model model, read_model(file, options));
  DenseGroups groups;
  for (const Layer& layer : model.tensors.layers) {
    const GqaWeights& a = layer.attention;
    groups.layers.push_back({{a.q, a.k, a.v}, {a.output}, {layer.router}});
  }
  groups.head = {model.tensors.head};
  return groups;
}

}  // namespace terrace::arch::qwen3moe
