#include "tests/e2e/support/gate_parts.h"

#include <xxhash.h>

#include <algorithm>
#include <stdexcept>

#include "common/manifest/cache.h"
#include "coordinator/arch/architectures.h"
#include "coordinator/legs/slab_reader.h"
#include "tests/e2e/support/process.h"

namespace terrace::test {
namespace {

constexpr std::uint32_t kMaxRows = 512;

std::shared_ptr<const legs::Epoch> epoch_of(const legs::OwnerTable& owners, legs::Leg& host,
                                            const std::vector<legs::Leg*>& nodes) {
  std::vector<std::shared_ptr<legs::Leg>> borrowed = {{std::shared_ptr<void>(), &host}};
  for (legs::Leg* node : nodes) borrowed.emplace_back(std::shared_ptr<void>(), node);
  return legs::make_epoch(owners, std::move(borrowed));
}

std::unique_ptr<legs::Backstop> backstop_over(const GateModel& model) {
  return must(legs::Backstop::open({.reader = legs::open_slab_reader(model.file, model.experts),
                                    .kernels = model.kernels,
                                    .n_experts = model.experts.n_experts,
                                    .top_k = model.experts.top_k,
                                    .parallel = model.serial,
                                    .ops = model.ops}));
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
                                 std::uint32_t max_streams, bool with_backstop, arch::Overlap overlap,
                                 legs::StepClock* clock)
    : model_(model),
      host_(owners, lookup, std::move(host_kernels), model.serial, model.ops),
      backstop_(with_backstop ? backstop_over(model) : nullptr),
      dispatcher_(legs::DispatcherParts{.epoch = epoch_of(owners, host_, nodes),
                                        .kernels = model.kernels,
                                        .top_k = model.experts.top_k,
                                        .parallel = model.serial,
                                        .ops = model.ops,
                                        .backstop = backstop_.get(),
                                        .clock = clock}) {
  arch::TrunkOptions options;
  options.max_rows = kMaxRows;
  options.max_streams = max_streams;
  options.shift = model.experts.shift;
  options.overlap = overlap;
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
  run.legs = work_of(dispatcher_.board());
  const std::uint64_t rows = prompt.size() + max_tokens - 1;
  run.expected_pairs = rows * model_.experts.top_k * model_.experts.layers.size();
  return run;
}

}  // namespace terrace::test
