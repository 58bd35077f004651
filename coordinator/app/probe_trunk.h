// The trunk's time of a step, measured without a single expert: its own weights and operations, over experts that give
// nothing and take no time.
#pragma once

#include <cstdint>

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

// Reads the trunk's weights: of the file, what every step reads. Errors as the trunk's.
Result<TrunkTimes> measure_trunk(const gguf::File& file, const arch::TrunkOptions& options, std::uint32_t batch,
                                 Parallel& parallel);

}  // namespace terrace::app
