// A pushdown automaton over bytes: what a grammar is while tokens are chosen.
//
// States with edges between them. A rule is a procedure: a call edge enters its first state and remembers where to go
// on; a return edge goes there. x{m,n} is a loop with a counter, not n copies: each procedure has one counter, which a
// call saves; a counted loop inside a counted loop is a procedure of its own. Reading it: from the first state of
// procedure 0, any path over edges whose bytes are the text and which ends by the return of the first procedure.
// Threads: immutable once made.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "coordinator/sampler/grammar/expression.h"

namespace terrace::sampler::grammar {

using StateId = std::uint32_t;
inline constexpr std::uint32_t kNoLoop = ~std::uint32_t{0};

struct Edge {
  enum class Kind : std::uint8_t {
    kBytes,     // a byte in [low, high], then `target`
    kEpsilon,   // `target`
    kCall,      // the procedure whose first state is `argument`, then `target`
    kTailCall,  // the procedure whose first state is `argument`, then return
    kReturn,    // from the procedure
    kReset,     // counter = 0, then `target`
    kLoop,      // counter < max: `target`, the body. counter >= min: the loop's exit, and counter = 0. Loop `argument`
    kCount,     // counter + 1 (of loop `argument`), then `target`
  };
  Kind kind = Kind::kEpsilon;
  std::uint8_t low = 0;
  std::uint8_t high = 0;
  std::uint32_t target = 0;
  std::uint32_t argument = 0;
};

struct Loop {
  std::uint32_t min = 0;
  std::uint32_t max = 0;  // or kUnlimited: then the counter stays at min once it is there
  StateId exit = 0;
};

class Automaton {
 public:
  static constexpr std::size_t kMaxStates = 400'000;

  // The automaton of the rules that can be reached from the first. Errors, each with the rule's `where`:
  // kInvalidArgument, left recursion; a rule that no text can end; characters of which there are none; more than
  // kMaxStates; something that may be empty, counted more than 64 times.
  static Result<std::unique_ptr<const Automaton>> compile(const Rules& rules);

  StateId start() const { return 0; }
  std::size_t n_states() const { return first_edge_.size() - 1; }
  std::span<const Edge> edges(StateId state) const {
    return std::span(edges_).subspan(first_edge_[state], first_edge_[state + 1] - first_edge_[state]);
  }
  const Loop& loop(std::uint32_t index) const { return loops_[index]; }
  // The loop whose iterations the counter counts in this state, or kNoLoop: then the counter is 0.
  std::uint32_t loop_of(StateId state) const { return loop_of_[state]; }

  // Bytes of one class are on the same edges everywhere. Classes are numbered from 0.
  std::size_t n_classes() const { return class_bytes_.size(); }
  const std::array<std::uint8_t, 256>& classes() const { return classes_; }
  std::uint8_t byte_of_class(std::size_t index) const { return class_bytes_[index]; }

 private:
  friend class AutomatonBuilder;
  void find_classes();

  std::vector<std::uint32_t> first_edge_;  // [n_states + 1]
  std::vector<Edge> edges_;
  std::vector<Loop> loops_;
  std::vector<std::uint32_t> loop_of_;  // [n_states]
  std::array<std::uint8_t, 256> classes_ = {};
  std::vector<std::uint8_t> class_bytes_;  // one byte of each class
};

}  // namespace terrace::sampler::grammar
