// How long something takes, with other programs about: the middle of some repeats.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

#include "common/base/function_ref.h"
#include "common/base/result.h"
#include "common/base/time.h"
#include "coordinator/app/median.h"

namespace terrace::app {

struct Repeats {
  std::size_t least = 5;
  std::size_t most = 400;
  std::chrono::duration<double> time{0.08};  // no further repeat after so much, once there are the least
};

// One unmeasured run, then repeats; each gives its own seconds, those of one run mostly several (alone, wire ...): the
// median of each. Errors end it.
template <std::size_t kValues>
Result<std::array<double, kValues>> medians(const Repeats& repeats,
                                            FunctionRef<Result<std::array<double, kValues>>()> run) {
  std::array<std::vector<double>, kValues> seen;
  TERRACE_ASSIGN_OR_RETURN(const auto warm_up, run());
  (void)warm_up;
  const auto begin = std::chrono::steady_clock::now();
  while (seen[0].size() < repeats.least ||
         (seen[0].size() < repeats.most && std::chrono::steady_clock::now() - begin < repeats.time)) {
    TERRACE_ASSIGN_OR_RETURN(const auto values, run());
    for (std::size_t i = 0; i < kValues; ++i) seen[i].push_back(values[i]);
  }
  std::array<double, kValues> result{};
  for (std::size_t i = 0; i < kValues; ++i) result[i] = median(std::move(seen[i]));
  return result;
}

// Of a decode batch: seconds of an expert, and of what it takes beside its experts.
struct DecodeCost {
  double each = 0;
  double fixed = 0;
};
// By the time of a batch of `experts`, two or more, and of one of a single expert. On a busy machine the larger one may
// seem to be no slower: then nothing is known of what is fixed, and an expert takes its part of the larger batch. An
// expert that took no time would have a plan give it any number of them.
inline DecodeCost decode_cost(double many, double one, std::uint32_t experts) {
  if (many <= one) return {.each = many / experts, .fixed = 0};
  const double each = (many - one) / (experts - 1);
  return {.each = each, .fixed = std::max(one - each, 0.0)};
}

}  // namespace terrace::app
