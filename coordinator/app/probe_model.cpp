#include "coordinator/app/probe_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/machine_limits.h"
#include "common/base/units.h"
#include "common/gguf/bytes.h"
#include "common/manifest/probe_slab.h"
#include "kernels/cpu/activations/rows.h"

namespace terrace::app {
namespace {

constexpr std::uint32_t kRows = 512;
constexpr std::size_t kAlignment = 64;
// A node takes no more, and neither do we.
constexpr std::uint64_t kMostLegBytes = std::uint64_t{1} << 30;
// Sums of so much have three bytes at SHIFT 24, however many pairs are added, and rows of one pair do too.
constexpr float kUsualSum = 0.25f;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::uint64_t div_up(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

}  // namespace

Result<std::unique_ptr<ProbeModel>> ProbeModel::make(const ProbeModelInput& input, const kernels::Ops& ops,
                                                     Parallel& parallel) {
  std::unique_ptr<ProbeModel> model(new ProbeModel());
  model->find_kinds(input);
  model->cut_experts(input);
  TERRACE_RETURN_IF_ERROR(model->make_slabs(parallel));
  const std::string bytes = manifest::serialize(model->manifest_);
  std::copy_n(gguf::as_bytes(bytes).end() - security::kSha256Bytes, security::kSha256Bytes,
              model->manifest_.hash.begin());
  model->session_model_.emplace(legs::SessionModel{
      model->manifest_, bytes, model->kernels_,
      [m = model.get()](std::uint32_t kind, std::uint16_t expert) { return m->view(kind, expert); }, ops});
  model->make_rows(ops);
  TERRACE_RETURN_IF_ERROR(model->choose_weights(ops));
  return model;
}

void ProbeModel::find_kinds(const ProbeModelInput& input) {
  manifest_.architecture = input.experts.architecture;
  manifest_.d_model = input.experts.d_model;
  manifest_.shift = input.experts.shift;
  kind_of_layer_.assign(input.experts.layers.size(), 0);
  for (std::size_t layer = 0; layer < input.experts.layers.size(); ++layer) {
    const manifest::LayerShape& shape = input.experts.layers[layer].shape;
    if (shape.n_experts == 0) continue;
    const auto found = std::find(manifest_.layers.begin(), manifest_.layers.end(), shape);
    kind_of_layer_[layer] = static_cast<std::uint32_t>(found - manifest_.layers.begin());
    if (found != manifest_.layers.end()) continue;
    manifest_.layers.push_back(shape);
    kernels_.push_back(input.layers[layer]);
    slab_bytes_of_all_kinds_ += shape.slab_bytes();
  }
}

// As many as the buffer holds, but no more than the leg's own share has: a share that a cache holds is measured so.
// At least what one row, and one layer of a small model, may ask of the leg.
void ProbeModel::cut_experts(const ProbeModelInput& input) {
  const std::uint32_t top_k = input.experts.top_k;
  const std::size_t n_legs = input.owners.n_legs();
  const std::uint64_t most = std::max<std::uint64_t>(1, kMostLegBytes / slab_bytes_of_all_kinds_);
  const std::uint64_t most_of_all = manifest::kMaxExperts / n_legs;
  first_ = {0};
  for (std::size_t leg = 0; leg < n_legs; ++leg) {
    std::uint64_t in_a_layer = 0;
    for (std::uint32_t layer = 0; layer < input.owners.n_layers(); ++layer)
      in_a_layer = std::max<std::uint64_t>(in_a_layer, input.owners.experts(leg, layer).size());
    const std::uint64_t own = div_up(input.owners.n_slabs(leg), n_kinds());
    const std::uint64_t wanted = std::min(div_up(input.leg_bytes, slab_bytes_of_all_kinds_), own);
    const std::uint64_t least = std::max<std::uint64_t>(top_k, in_a_layer);
    const std::uint64_t n = std::clamp<std::uint64_t>(std::max(wanted, least), 1, std::min(most, most_of_all));
    first_.push_back(first_.back() + static_cast<std::uint32_t>(n));
    whole_share_.push_back(n >= own);
  }
  const std::uint32_t n_experts = first_.back();
  manifest_.n_experts = n_experts;
  manifest_.top_k = std::min(top_k, n_experts);
  for (manifest::LayerShape& shape : manifest_.layers) shape.n_experts = n_experts;
  std::vector<std::uint16_t> row;
  for (std::size_t leg = 0; leg < n_legs; ++leg) row.insert(row.end(), count(leg), static_cast<std::uint16_t>(leg));
  std::vector<std::uint16_t> owners;
  for (std::size_t kind = 0; kind < n_kinds(); ++kind) owners.insert(owners.end(), row.begin(), row.end());
  owners_.emplace(1, input.owners.leg_names(), static_cast<std::uint32_t>(n_kinds()), n_experts, std::move(owners));
}

// The host's slabs are kept, of a node's the first of each kind: with it the node is compared (canary), and its bytes
// measure the weights lane. Of all others only the ids remain.
Status ProbeModel::make_slabs(Parallel& parallel) {
  std::size_t bytes = 0;
  for (const manifest::LayerShape& shape : manifest_.layers) {
    kind_begins_.push_back(bytes);
    bytes += aligned(shape.slab_bytes()) * count(0);
  }
  TERRACE_ASSIGN_OR_RETURN(const std::uint64_t available, memory_available());
  if (bytes > available)
    return Error(ErrorCode::kOutOfMemory,
                 fmt::format("the probe's experts take {} here, {} are available; lower --probe-memory",
                             format_size(bytes), format_size(available)));
  auto pages = Pages::map(bytes, false);
  if (!pages.ok()) return pages.error().in("the probe's experts");
  host_slabs_.emplace(std::move(*pages));

  const std::uint32_t n = manifest_.n_experts;
  manifest_.slab_ids.resize(n_kinds() * n);
  first_of_nodes_.resize((first_.size() - 2) * n_kinds());
  std::vector<std::vector<std::byte>> scratch(parallel.n_workers());
  parallel.run(manifest_.slab_ids.size(), [&](std::size_t item, std::size_t worker) {
    const std::size_t kind = item / n;
    const auto expert = static_cast<std::uint32_t>(item % n);
    const std::size_t size = manifest_.layers[kind].slab_bytes();
    const auto leg =
        static_cast<std::size_t>(std::upper_bound(first_.begin(), first_.end(), expert) - first_.begin()) - 1;
    std::span<std::byte> slab;
    if (leg == 0) {
      slab = {host_slabs_->data() + kind_begins_[kind] + expert * aligned(size), size};
    } else {
      std::vector<std::byte>& memory =
          expert == first_[leg] ? first_of_nodes_[(leg - 1) * n_kinds() + kind] : scratch[worker];
      memory.resize(size);
      slab = memory;
    }
    manifest::make_probe_slab(static_cast<std::uint32_t>(kind), expert, slab);
    manifest_.slab_ids[item] = manifest::slab_id_of(manifest_.layers[kind], slab);
  });
  return {};
}

kernels::SlabView ProbeModel::view(std::size_t kind, std::uint32_t expert) const {
  const manifest::LayerShape& shape = manifest_.layers[kind];
  const std::byte* slab = host_slabs_->data() + kind_begins_[kind] + expert * aligned(shape.slab_bytes());
  if (expert >= first_[1]) {
    const auto leg =
        static_cast<std::size_t>(std::upper_bound(first_.begin(), first_.end(), expert) - first_.begin()) - 1;
    slab = first_of_nodes_[(leg - 1) * n_kinds() + kind].data();
  }
  return {slab, slab + shape.gate_bytes(), slab + shape.gate_bytes() + shape.up_bytes()};
}

// Every weight of a made slab is about equal: values of one sign add up instead of cancelling, so that outputs are of
// one size.
void ProbeModel::make_rows(const kernels::Ops& ops) {
  n_rows_ = kRows;
  const std::size_t d_model = manifest_.d_model;
  plain_.resize(n_rows_ * d_model);
  for (std::size_t i = 0; i < plain_.size(); ++i)
    plain_[i] = 1e-3f * (1 + 0.5f * std::sin(static_cast<float>(i % 8191)));
  for (const kernels::ExpertKernels& layer : kernels_) {
    for (const ActivationClass activation : {layer.gate_class(), layer.up_class()}) {
      std::vector<std::byte>& rows = quantised_[static_cast<std::size_t>(activation)];
      if (activation == ActivationClass::kF32 || !rows.empty()) continue;
      rows = kernels::quantized_rows(ops.quantize_row, activation, {plain_.data(), n_rows_, d_model});
    }
  }
}

kernels::RowsView ProbeModel::rows(ActivationClass activation) const {
  if (activation == ActivationClass::kF32)
    return {activation, reinterpret_cast<const std::byte*>(plain_.data()), row_bytes(activation, manifest_.d_model)};
  return {activation, quantised_[static_cast<std::size_t>(activation)].data(),
          row_bytes(activation, manifest_.d_model)};
}

Status ProbeModel::choose_weights(const kernels::Ops& ops) {
  Serial serial;
  kernels::Executor executor(serial, ops);
  for (std::size_t kind = 0; kind < n_kinds(); ++kind) {
    const kernels::ExpertKernels& layer = kernels_[kind];
    const kernels::Pair pair{0, 0, 1};
    const kernels::BatchView batch{rows(layer.gate_class()), rows(layer.up_class()), 1, {&pair, 1}};
    std::vector<float> out(manifest_.d_model);
    std::uint8_t failed = 0;
    TERRACE_ASSIGN_OR_RETURN(const kernels::ExecStats stats,
                             executor.run_slots(
                                 layer, [&](std::uint16_t expert) { return view(kind, expert); }, batch, out,
                                 {&failed, 1}, [] { return true; }));
    (void)stats;
    float largest = 0;
    for (const float y : out) largest = std::max(largest, std::abs(y));
    const float weight = kUsualSum / static_cast<float>(manifest_.top_k) / largest;
    weights_.push_back(failed == 0 && std::isfinite(weight) ? weight : 0.0f);
  }
  return {};
}

}  // namespace terrace::app
