// The trunk's time of a step, measured without a single expert of the model: its own weights and operations, over
// experts that give nothing, and take no time or that of somebody else's.
#pragma once

#include <cstdint>

#include "common/base/function_ref.h"
#include "common/base/parallel.h"
#include "common/base/result.h"
#include "common/gguf/file.h"
#include "coordinator/arch/trunk_options.h"
#include "coordinator/legs/routed_experts.h"

namespace terrace::app {

struct TrunkTimes {
  double decode = 0;  // seconds of a step of one row, at the first kDecodeSteps positions of an empty stream
  double prompt = 0;  // of a step of prompt_rows rows, the mean of those of a prompt of kPromptTokens
  std::uint32_t prompt_rows = 0;
};
inline constexpr std::uint32_t kTrunkDecodeSteps = 64;
inline constexpr std::uint32_t kTrunkPromptTokens = 512;
inline constexpr std::uint32_t kWholeDecodeSteps = 16;

// Reads the trunk's weights: of the file, what every step reads. Errors as the trunk's.
Result<TrunkTimes> measure_trunk(const gguf::File& file, const arch::TrunkOptions& options, std::uint32_t batch,
                                 Parallel& parallel);

// Steps over experts of the caller's, each the other's neighbour in caches, on cores and in time: of one row at the
// first kWholeDecodeSteps positions of an empty stream, or of prompt_rows rows as of measure_trunk().
struct MeasuredSteps {
  double seconds = 0;  // of all
  double n = 0;
};
// counting: called before the first step that counts; one prompt or stream before it does not. Errors as the trunk's
// and the experts'.
Result<MeasuredSteps> measure_steps(const gguf::File& file, const arch::TrunkOptions& options, Parallel& parallel,
                                    legs::RoutedExperts& experts, bool decode, std::uint32_t prompt_rows,
                                    FunctionRef<void()> counting);

}  // namespace terrace::app
