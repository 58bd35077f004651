#include "coordinator/serve/api/context.h"

namespace terrace::serve::api {

sampler::SamplingOptions default_sampling() {
  sampler::SamplingOptions options;
  options.temperature = 0.8f;  // the sampler's own defaults are llama-server's but for this
  return options;
}

}  // namespace terrace::serve::api
