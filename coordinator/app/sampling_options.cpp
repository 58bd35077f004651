#include "coordinator/app/sampling_options.h"

#include <cstdint>

namespace terrace::app {

void add_sampling_options(OptionTable& table, sampler::SamplingOptions* options) {
  table.group("Sampling");
  table.add("temperature", &options->temperature, "0 always takes the most likely token").range(0, 1e6L);
  table.add("top-k", &options->top_k, "keep the k most likely tokens; 0 keeps all").range(0, INT32_MAX);
  table.add("top-p", &options->top_p, "keep the most likely tokens with this share of probability; 1 keeps all")
      .range(0, 1);
  table.add("min-p", &options->min_p, "drop tokens less likely than this share of the most likely; 0 keeps all")
      .range(0, 1);
  table.add("repeat-penalty", &options->repeat_penalty, "divide logits of recent tokens by this; 1 is off")
      .range(1e-6L, 1e6L);
  table.add("presence-penalty", &options->presence_penalty, "subtract from logits of recent tokens").range(-1e6L, 1e6L);
  table.add("frequency-penalty", &options->frequency_penalty, "subtract for each recent occurrence").range(-1e6L, 1e6L);
  table.add("repeat-last-n", &options->repeat_last_n, "tokens that count as recent; -1: all").range(-1, INT32_MAX);
}

void add_seed_option(OptionTable& table, sampler::SamplingOptions* options) {
  table.group("Sampling");
  table.add("seed", &options->seed, "the same seed gives the same text");
}

}  // namespace terrace::app
