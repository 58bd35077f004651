#include "coordinator/app/probe_trunk.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "coordinator/app/bench_run.h"
#include "coordinator/app/open_stream.h"
#include "coordinator/app/probe_timing.h"
#include "coordinator/arch/architectures.h"

namespace terrace::app {
namespace {

class NoExperts final : public legs::RoutedExperts {
 public:
  Status submit(const legs::RoutedRows&) override { return {}; }
  Status collect(kernels::SumsView sums, std::span<std::uint8_t> failed) override {
    std::fill_n(sums.data, failed.size() * sums.d_model, 0);
    return {};
  }
};

// Layers that somebody else computes, of rows of his own.
class OtherExperts final : public legs::RoutedExperts {
 public:
  explicit OtherExperts(std::function<Result<double>()> layer) : layer_(std::move(layer)) {}
  Status submit(const legs::RoutedRows&) override { return {}; }
  Status collect(kernels::SumsView sums, std::span<std::uint8_t> failed) override {
    const auto begin = std::chrono::steady_clock::now();
    TERRACE_ASSIGN_OR_RETURN(const double seconds, layer_());
    std::fill_n(sums.data, failed.size() * sums.d_model, 0);
    layers_ += seconds;
    aside_ += seconds_since(begin);
    ++n_;
    return {};
  }

  // Seconds, and how many, since the last restart().
  void restart() { layers_ = aside_ = n_ = 0; }
  double layers() const { return layers_; }
  double aside() const { return aside_; }
  double n() const { return n_; }

 private:
  std::function<Result<double>()> layer_;
  double layers_ = 0, aside_ = 0, n_ = 0;
};

std::vector<std::int32_t> decode_tokens(const arch::Trunk& trunk, std::uint32_t steps) {
  return bench_tokens({.depth = 0, .n_prompt = 0, .n_gen = std::min(steps, trunk.context())}, trunk.info().vocabulary);
}

// Seconds a step.
Result<std::array<double, 1>> time_a_step(arch::Trunk& trunk, std::span<const std::int32_t> tokens, std::size_t batch) {
  TERRACE_ASSIGN_OR_RETURN(OpenStream stream, OpenStream::open(trunk));
  const auto begin = std::chrono::steady_clock::now();
  double steps = 0;
  for (std::span<const std::int32_t> rest = tokens; !rest.empty(); ++steps) {
    const auto chunk = rest.first(std::min(rest.size(), batch));
    rest = rest.subspan(chunk.size());
    const bool logits = batch == 1 || rest.empty();
    TERRACE_RETURN_IF_ERROR(stream.step(chunk, logits ? WantLogits::kLast : WantLogits::kNone));
  }
  return std::array<double, 1>{seconds_since(begin) / steps};
}

}  // namespace

Result<TrunkTimes> measure_trunk(const gguf::File& file, const arch::TrunkOptions& options, std::uint32_t batch,
                                 Parallel& parallel) {
  NoExperts experts;
  TERRACE_ASSIGN_OR_RETURN(const auto trunk, arch::make_trunk(file, options, experts, parallel));
  const std::vector<std::int32_t> decode = decode_tokens(*trunk, kTrunkDecodeSteps);
  const std::vector<std::int32_t> prompt = bench_tokens(
      {.depth = 0, .n_prompt = std::min(kTrunkPromptTokens, trunk->context()), .n_gen = 0}, trunk->info().vocabulary);
  const Repeats repeats{.least = 3, .most = 50, .time = std::chrono::duration<double>(0.4)};
  TrunkTimes times;
  times.prompt_rows = static_cast<std::uint32_t>(std::min<std::size_t>({batch, trunk->max_rows(), prompt.size()}));
  TERRACE_ASSIGN_OR_RETURN(const auto one, medians<1>(repeats, [&] { return time_a_step(*trunk, decode, 1); }));
  TERRACE_ASSIGN_OR_RETURN(const auto many,
                           medians<1>(repeats, [&] { return time_a_step(*trunk, prompt, times.prompt_rows); }));
  times.decode = one[0];
  times.prompt = many[0];
  return times;
}

Result<DecodeStepTimes> measure_decode_step(const gguf::File& file, const arch::TrunkOptions& options,
                                            Parallel& parallel, std::function<Result<double>()> layer) {
  constexpr std::chrono::duration<double> kTime{0.6};
  OtherExperts experts(std::move(layer));
  TERRACE_ASSIGN_OR_RETURN(const auto trunk, arch::make_trunk(file, options, experts, parallel));
  const std::vector<std::int32_t> tokens = decode_tokens(*trunk, kWholeDecodeSteps);
  DecodeStepTimes sum;
  double runs = 0;
  auto begin = std::chrono::steady_clock::now();
  for (bool warm = false; runs == 0 || seconds_since(begin) < kTime.count(); warm = true) {
    experts.restart();
    TERRACE_ASSIGN_OR_RETURN(const auto step, time_a_step(*trunk, tokens, 1));
    if (!warm) {
      begin = std::chrono::steady_clock::now();
      continue;
    }
    sum.trunk += step[0] - experts.aside() / static_cast<double>(tokens.size());
    sum.layer += experts.n() > 0 ? experts.layers() / experts.n() : 0;
    ++runs;
  }
  return DecodeStepTimes{std::max(sum.trunk / runs, 0.0), sum.layer / runs};
}

}  // namespace terrace::app
