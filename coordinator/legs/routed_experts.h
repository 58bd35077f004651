// The trunk's view of a layer's routed experts: rows and choices in, one exact integer sum a row out. Who computes
// them (host, nodes, cards) is behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/result.h"
#include "coordinator/legs/leg.h"
#include "kernels/executor/executor.h"

namespace terrace::legs {

// The rows of one layer of one step and the experts chosen for each. Borrowed until collect() returns.
struct RoutedRows {
  std::uint32_t layer = 0;
  const float* rows = nullptr;  // [n_rows, d_model], the normed rows; finite
  std::uint32_t n_rows = 0;
  const std::uint16_t* experts = nullptr;  // [n_rows, top_k] in selection order, each once a row
  const float* weights = nullptr;          // [n_rows, top_k]
  Priority priority = Priority::kDecode;
  bool without_card = false;       // the trunk's card computes those of part_on_card() itself
  std::uint64_t card_wait_us = 0;  // with that: how long the step waited for the card before it had these rows
};

// Layers that may be submitted before the first of them is collected: the parts of a step's rows follow each other
// through the layers, so that the trunk computes for one while legs compute for the others.
inline constexpr std::size_t kMostLayersOpen = 4;

// One owner thread. collect() ends the layer that was submitted first of those under way.
class RoutedExperts {
 public:
  virtual ~RoutedExperts() = default;
  // A step begins: who computes what may be another than before it, and stays until the next one begins. Nothing is
  // under way.
  virtual void begin_step() {}
  // The number of the step that began last, from 1.
  virtual std::uint64_t step() const { return 0; }
  // After collect() said kUncertain: what this step and later ones gave may be wrong.
  virtual std::uint64_t uncertain_since() const { return 0; }
  // Of the step that began last: some experts are computed by others, who do so while the caller does something else.
  virtual bool computes_elsewhere() const { return false; }
  // Every expert of every layer [n_layers, n_experts], where in this step all of them lie in one card's memory: a trunk
  // on that card then computes them itself and says so afterwards. Else empty. Slabs stay as long as the step.
  virtual std::span<const kernels::SlabView> slabs_on_card() { return {}; }
  // The same where others own experts too: null parts there. Rows may then be submitted without the card's pairs, which
  // count as computed. Empty where no card does, or where more than one card or another set of slabs is concerned.
  virtual std::span<const kernels::SlabView> part_on_card() { return {}; }
  // Whether submit() may launch kernels on a card, for a leg there owns experts that are not in part_on_card(). Such a
  // launch may wait until the card has ended what it is at, so nothing there may wait for submit() meanwhile.
  virtual bool launches_on_card() const { return false; }
  // The choices [n_layers, n_rows, top_k] that were computed by slabs_on_card(), and the card's time for the whole
  // step.
  virtual void count_on_card(const std::uint16_t* /*experts*/, std::uint32_t /*n_rows*/, std::uint64_t /*ns*/) {}
  // Hands every pair to the leg that owns its expert, nodes first, and returns; the trunk may compute meanwhile.
  virtual Status submit(const RoutedRows& routed) = 0;
  // sums [n_rows, d_model] is overwritten with each row's Y (docs/numerics.md 5); failed[row] = 1 where an output was
  // not finite, the rest of failed stays. An error (nobody is left who can compute an expert) ends the step.
  // kUncertain: an audit found that a node computes wrong; the node is out, and the text names it.
  virtual Status collect(kernels::SumsView sums, std::span<std::uint8_t> failed) = 0;
  // Ends what is under way, for a step that goes no further; nothing that was submitted is read any more. Does nothing
  // where nothing is: an error of submit() or collect() has ended the step's other layers too. kUncertain as collect().
  virtual Status abandon() { return {}; }
  // Moves bytes of what is under way, without blocking: what computes for longer than a link needs to carry a buffer
  // calls it now and then.
  virtual void progress() {}
};

}  // namespace terrace::legs
