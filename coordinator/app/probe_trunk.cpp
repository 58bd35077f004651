#include "coordinator/app/probe_trunk.h"

#include <algorithm>
#include <array>
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

std::vector<std::int32_t> decode_tokens(const arch::Trunk& trunk, std::uint32_t steps) {
  return bench_tokens({.depth = 0, .n_prompt = 0, .n_gen = std::min(steps, trunk.context())}, trunk.info().vocabulary);
}

std::vector<std::int32_t> prompt_tokens(const arch::Trunk& trunk) {
  return bench_tokens({.depth = 0, .n_prompt = std::min(kTrunkPromptTokens, trunk.context()), .n_gen = 0},
                      trunk.info().vocabulary);
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
  const std::vector<std::int32_t> prompt = prompt_tokens(*trunk);
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

Result<MeasuredSteps> measure_steps(const gguf::File& file, const arch::TrunkOptions& options, Parallel& parallel,
                                    legs::RoutedExperts& experts, bool decode, std::uint32_t prompt_rows,
                                    FunctionRef<void()> counting) {
  constexpr double kTime = 1;
  TERRACE_ASSIGN_OR_RETURN(const auto trunk, arch::make_trunk(file, options, experts, parallel));
  const std::vector<std::int32_t> tokens = decode ? decode_tokens(*trunk, kWholeDecodeSteps) : prompt_tokens(*trunk);
  const std::size_t batch = decode ? 1 : prompt_rows;
  TERRACE_ASSIGN_OR_RETURN(const auto warm_up, time_a_step(*trunk, tokens, batch));
  (void)warm_up;
  counting();
  MeasuredSteps steps;
  const auto begin = std::chrono::steady_clock::now();
  while (steps.n == 0 || seconds_since(begin) < kTime) {
    TERRACE_ASSIGN_OR_RETURN(const auto one, time_a_step(*trunk, tokens, batch));
    const auto n = static_cast<double>((tokens.size() + batch - 1) / batch);
    steps.seconds += n * one[0];
    steps.n += n;
  }
  return steps;
}

}  // namespace terrace::app
