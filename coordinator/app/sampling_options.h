// The sampling flags, for every command that makes text.
#pragma once

#include "common/base/options.h"
#include "coordinator/sampler/sampler.h"

namespace terrace::app {

// Adds them, but for the seed, below the heading "Sampling"; the table fills `options`.
void add_sampling_options(OptionTable& table, sampler::SamplingOptions* options);
// --seed alone, for commands that make one text.
void add_seed_option(OptionTable& table, sampler::SamplingOptions* options);

}  // namespace terrace::app
