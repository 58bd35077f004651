// The trunk's time of a step, measured without a single expert of the model: its own weights and operations, over
// experts that give nothing, and take no time or that of somebody else's.
#pragma once

#include <cstdint>
#include <functional>

#include "common/base/parallel.h"
#include "common/base/result.h"
#include "common/gguf/file.h"
#include "coordinator/arch/trunk_options.h"

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

struct DecodeStepTimes {
  double trunk = 0;  // seconds of a step beside its layers of experts
  double layer = 0;  // of such a layer
};
// A decode step with experts between the trunk's layers, each the other's neighbour in caches, on cores and in time:
// means over the first kWholeDecodeSteps positions of an empty stream, again and again. layer: computes some layer's
// experts and says how long they took; what else it does counts as neither. Errors as its, and the trunk's.
Result<DecodeStepTimes> measure_decode_step(const gguf::File& file, const arch::TrunkOptions& options,
                                            Parallel& parallel, std::function<Result<double>()> layer);

}  // namespace terrace::app
