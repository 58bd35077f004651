#include "coordinator/app/probe_trunk.h"

#include <algorithm>
#include <array>

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
  const std::uint32_t vocabulary = trunk->info().vocabulary;
  const std::vector<std::int32_t> decode =
      bench_tokens({.depth = 0, .n_prompt = 0, .n_gen = std::min(kTrunkDecodeSteps, trunk->context())}, vocabulary);
  const std::vector<std::int32_t> prompt =
      bench_tokens({.depth = 0, .n_prompt = std::min(kTrunkPromptTokens, trunk->context()), .n_gen = 0}, vocabulary);
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

}  // namespace terrace::app
