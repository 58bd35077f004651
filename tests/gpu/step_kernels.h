// Each launch of a step in the shape of Qwen3-30B-A3B by itself: what it must move or multiply, and a call that queues
// it with weights that no cache holds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/base/function_ref.h"
#include "common/base/result.h"
#include "tests/gpu/bench_card.h"

namespace terrace::test {

// What bounds a launch from below.
enum class Limit : std::uint8_t { kBytes, kInt8, kF32 };

struct StepKernel {
  std::string name;
  Limit limit = Limit::kBytes;
  double amount = 0;  // bytes that must be read and written, or multiply-adds
  // Queues it; `i` counts calls, whose weights differ.
  std::function<Status(int i)> queue;
  std::uint32_t of_a_step = 0;  // times that a step has it
};

struct StepSize {
  std::uint32_t n_rows = 1;
  std::uint32_t depth = 0;  // positions before the first row
};

// Calls `use` for each launch of one step, in its order: rows of one stream, the last of which wants logits. A launch
// is good until `use` returns.
Status for_each_step_kernel(BenchCard& card, const StepSize& size, FunctionRef<Status(const StepKernel&)> use);

}  // namespace terrace::test
