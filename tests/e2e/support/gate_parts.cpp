#include "tests/e2e/support/gate_parts.h"

#include <xxhash.h>

#include <algorithm>
#include <stdexcept>

#include "common/manifest/cache.h"
#include "coordinator/arch/architectures.h"
#include "tests/e2e/support/process.h"

namespace terrace::test {
namespace {

constexpr std::uint32_t kMaxRows = 512;

std::vector<legs::Leg*> with_host(legs::Leg& host, const std::vector<legs::Leg*>& nodes) {
  std::vector<legs::Leg*> legs = {&host};
  legs.insert(legs.end(), nodes.begin(), nodes.end());
  return legs;
}

std::span<const float> feed(arch::Trunk& trunk, arch::StreamId stream, std::span<const std::int32_t> tokens,
                            std::uint32_t batch) {
  std::span<const float> logits;
  for (std::size_t first = 0; first < tokens.size(); first += batch) {
    const auto chunk = tokens.subspan(first, std::min<std::size_t>(batch, tokens.size() - first));
    std::vector<arch::StepRow> rows;
    std::uint32_t position = trunk.length(stream);
    for (const std::int32_t token : chunk) rows.push_back({stream, position++, token, false});
    rows.back().want_logits = true;
    const arch::StepResult result = must(trunk.step(rows));
    if (!result.failed.empty()) throw std::runtime_error(result.failed.front().error.text());
    logits = result.logits;
  }
  return logits;
}

}  // namespace

GateModel::GateModel(const std::filesystem::path& path)
    : file(must(gguf::File::open(path))),
      experts(must(manifest::find_experts(file))),
      ops(must(kernels::select_ops(kernels::detect_cpu_features(), std::nullopt))),
      slabs(file, experts),
      kernels(must(legs::select_layer_kernels(experts, kernels::detect_cpu_features(), std::nullopt,
                                              kernels::Activations::kQuantised))),
      manifest(must(manifest::load(file, experts, cache_dir(), serial, [](std::uint64_t, std::uint64_t) {})).manifest) {
}

legs::OwnerTable GateModel::share(const std::vector<std::string>& nodes, const std::string& spec) const {
  planner::ShareInput input;
  input.nodes = nodes;
  input.n_layers = static_cast<std::uint32_t>(experts.layers.size());
  input.n_experts = experts.n_experts;
  return must(planner::parse_share(spec, input));
}

legs::SessionModel GateModel::session_model(const std::vector<kernels::ExpertKernels>& our_kernels) const {
  return {manifest, manifest::serialize(manifest), our_kernels, slabs.lookup(), ops};
}

GateCoordinator::GateCoordinator(const GateModel& model, const legs::OwnerTable& owners, const legs::SlabLookup& lookup,
                                 std::vector<kernels::ExpertKernels> host_kernels, const std::vector<legs::Leg*>& nodes,
                                 std::uint32_t max_streams)
    : model_(model),
      host_(owners, lookup, std::move(host_kernels), model.serial, model.ops),
      legs_(with_host(host_, nodes)),
      dispatcher_(owners, legs_, model.kernels, model.experts.top_k, model.serial, model.ops) {
  arch::TrunkOptions options;
  options.max_rows = kMaxRows;
  options.max_streams = max_streams;
  options.shift = model.experts.shift;
  trunk_ = must(arch::make_trunk(model.file, options, dispatcher_, model.serial));
}

GateRun GateCoordinator::run(const std::vector<std::int32_t>& prompt, std::uint32_t batch, std::uint64_t max_tokens) {
  GateRun run;
  const arch::StreamId stream = must(trunk_->open_stream());
  std::span<const float> logits = feed(*trunk_, stream, prompt, batch);
  for (;;) {
    run.logits_xxh3.push_back(XXH3_64bits(logits.data(), logits.size_bytes()));
    run.tokens.push_back(static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin()));
    if (run.tokens.size() == max_tokens) break;
    logits = feed(*trunk_, stream, std::span(run.tokens).last(1), 1);
  }
  trunk_->close_stream(stream);
  for (const legs::Leg* leg : legs_)
    run.legs.push_back({leg->name(), leg->experts(), leg->counters().pairs, leg->counters().weight_bytes_sent});
  const std::uint64_t rows = prompt.size() + max_tokens - 1;
  run.expected_pairs = rows * model_.experts.top_k * model_.experts.layers.size();
  return run;
}

}  // namespace terrace::test
