// One run of the placement gate: a greedy generation through app::Engine, in this process, and what two of them have
// in common.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "coordinator/app/model_options.h"
#include "coordinator/legs/leg_board.h"
#include "tests/test_data.h"

namespace terrace::app {
class Engine;
}

namespace terrace::test {

// The value, or the error's text as an exception: the test fails.
template <class T>
T must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().text());
  return std::move(result).value();
}

// What a leg did.
struct LegWork {
  std::string name;
  std::uint64_t experts = 0;
  std::uint64_t pairs = 0;
  std::uint64_t weight_bytes_sent = 0;
  std::uint64_t hedged_pairs = 0;
  legs::LegState state = legs::LegState::kOk;
  std::string reason;  // of a state that is not ok
};
std::vector<LegWork> work_of(const legs::LegBoard& board);

struct GateRun {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint64_t> logits_xxh3;
  std::vector<std::uint64_t> sums_xxh3;  // of the experts, for each token; empty: not asked for
  std::vector<LegWork> legs;
  std::uint64_t expected_pairs = 0;  // rows x top-k x layers

  std::uint64_t pairs() const;
};

// Options of the gate: the model (default: the demo's), the context that it needs, nothing printed.
app::ModelOptions gate_options(const std::filesystem::path& model = demo_model());

// Throws with the error's text.
GateRun gate_run(const app::ModelOptions& options, const std::vector<std::int32_t>& prompt, std::uint64_t max_tokens);

// One more run of an engine that is open; legs count what this run did not do too.
GateRun gate_run(app::Engine& engine, std::uint32_t batch, const std::vector<std::int32_t>& prompt,
                 std::uint64_t max_tokens);

// Where the two differ, as a sentence that names the first step; nothing: the same tokens and logits to the bit.
std::optional<std::string> difference(const GateRun& expected, const GateRun& got);

// The first `n` tokens of the demo's corpus.
std::vector<std::int32_t> corpus_prompt(std::size_t n);

}  // namespace terrace::test
