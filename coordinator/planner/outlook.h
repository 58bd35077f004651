// What becomes of a plan: as it is, without each of its nodes, and when nodes are lost. Pure functions over what was
// measured (prediction.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "coordinator/planner/heirs.h"
#include "coordinator/planner/prediction.h"

namespace terrace::planner {

// A node is lost: its experts are computed by the host.
struct Loss {
  std::vector<std::size_t> legs;
  StepPrediction decode, prompt;           // at once: each slab read from the host's file for the batch that needs it
  bool has_room = false;                   // the host's memory holds them, once they were read
  std::uint64_t bytes = 0;                 // of their slabs
  double read_seconds = 0;                 // for all of them; 0: the disk's rate is not known
  StepPrediction settled, settled_prompt;  // then; meaningless without room
  // Of one node: who takes over what, and then.
  std::vector<Heir> heirs;
  // Until the last of them has its slabs, while nothing decodes, and beside streams (legs::movement_share()); 0: a rate
  // is not known.
  double move_seconds = 0, move_beside_seconds = 0;
  StepPrediction moved, moved_prompt;  // meaningless without heirs
};

// Its experts stay with the host, though there are heirs: memory holds them there, and decoding is faster so.
bool stays_here(const Loss& loss);

// What becomes of one node's experts when it is lost, once bytes have moved.
struct InheritedShare {
  std::vector<Heir> heirs;
  // As ModelNumbers::owned_of_layer; what stays with the host is still the lost leg's.
  std::vector<std::vector<std::uint32_t>> owned_of_layer;
};

// The same machines planned without a node.
struct Without {
  std::size_t leg = 0;
  // Its experts on the host, or spread over all others as they own now, whichever decodes faster; nothing where
  // neither has the room.
  std::optional<StepPrediction> decode, prompt;
  std::string experts_on;   // "the host", "the others"
  bool decode_pays = true;  // the plan with it is the faster one
  bool prompt_pays = true;
};

struct Outlook {
  StepPrediction decode, prompt;
  std::vector<Loss> losses;      // of each node alone, in the legs' order
  std::vector<Without> without;  // likewise
};

struct OutlookInput {
  const ModelNumbers& model;
  const Measurements& measured;
  std::vector<std::uint64_t> room;             // [legs] bytes that a leg has beside what the plan takes of it
  std::vector<InheritedShare> inherited = {};  // [legs - 1], of each node; empty: nobody inherits
};
Outlook make_outlook(const OutlookInput& input);

// Predictions of decoding that worst_loss() makes at the most: of a dozen nodes some seconds of them.
inline constexpr std::size_t kMostLossSets = 1000;

struct WorstLoss {
  Loss loss;
  double n_sets = 0;        // of so many nodes: too many of many nodes for an integer
  std::size_t n_tried = 0;  // of those

  bool tried_all() const { return static_cast<double>(n_tried) >= n_sets; }
};

// The slowest decoding after any `n` nodes are lost at once, 1 to all of them: each slab read from the host's file.
// Where they have more than `most_sets` sets, of those that were tried: the nodes with the most bytes, then one of them
// exchanged for another as long as that is slower. What is found may then be lost, and is no bound of what may be.
WorstLoss worst_loss(const OutlookInput& input, std::size_t n, std::size_t most_sets = kMostLossSets);

// "of 257 tried of the 601080390 sets of 16 nodes: another may be slower"; empty where all were tried.
std::string tried_text(const WorstLoss& worst);

// kRefused, with the numbers, where that loss decodes less than `least` tokens a second.
Status check_survives(const OutlookInput& input, const Outlook& outlook, const WorstLoss& worst, double least);

}  // namespace terrace::planner
