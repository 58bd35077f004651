// Who needs how much memory for a share, and who has it: before a byte of weights is read or sent.
//
// A node says itself what a session of this kind would take there (NodeControl::estimate), so that the plan's numbers
// are those that it reserves. This machine's experts and dense weights are read in place from the mapped file; what is
// taken from the system is cache and scratch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/manifest/manifest.h"
#include "coordinator/arch/trunk.h"
#include "coordinator/legs/leg.h"
#include "coordinator/legs/node_control.h"
#include "coordinator/legs/owner_table.h"
#include "coordinator/legs/session_sizes.h"
#include "coordinator/planner/card_share.h"

namespace terrace::planner {

struct LegPlan {
  std::string name;
  legs::LegKind kind = legs::LegKind::kNode;  // kCard: needs and offers are its own memory
  std::string experts;                        // "16-23", "0-3,8", "none", or "48 slabs" where layers differ
  std::uint64_t slabs = 0;
  // Bytes.
  std::uint64_t slab_bytes = 0;     // in the memory that the rest of this row is about
  std::uint64_t vram_bytes = 0;     // node: slabs on its card, beside those
  std::uint64_t dense_bytes = 0;    // host, card: weights that are no routed experts
  std::uint64_t cache_bytes = 0;    // host: keys and values of the context asked for
  std::uint64_t staging_bytes = 0;  // receive windows
  std::uint64_t scratch_bytes = 0;
  std::uint64_t needs = 0;   // all of it, in whole pages
  std::uint64_t offers = 0;  // free now
  std::string refusal;       // empty: it fits; else a sentence with the numbers

  bool fits() const { return refusal.empty(); }
  // What is left beside the plan.
  std::uint64_t room() const { return offers - std::min(offers, needs); }
};

struct MemoryPlan {
  std::vector<LegPlan> legs;  // host first, cards last
  // Positions that this machine's rest has room for, where --ctx-size asks for none: they are taken as needed.
  std::optional<std::uint64_t> room_for_positions;
  // Bytes that this machine has for keys and values, those that were asked for included; 0 where the plan does not fit.
  std::uint64_t room_for_cache = 0;

  bool fits() const;
  // kOutOfMemory with every leg's refusal; ok where it fits.
  Status status() const;
};

// What this machine is asked for and has.
struct HostInput {
  std::uint64_t dense_bytes = 0;
  std::uint64_t cache_bytes = 0;  // of the positions asked for; 0: taken as needed
  std::uint64_t scratch_bytes = 0;
  std::optional<std::uint64_t> ram;  // --ram: also counts pages of the file that are read again
  std::uint64_t available = 0;       // without swapping
};

struct PlanInput {
  const manifest::Manifest& model;  // ids are not looked at
  const arch::ModelInfo& info;
  const legs::OwnerTable& owners;  // leg 0 is the host, the last ones are the cards
  std::uint32_t max_rows = 512;    // of a batch
  std::uint32_t range_rows = 256;
  std::uint32_t sockets = 1;  // wire::BatchLimits::sockets
  std::string link = {};      // as in legs::check_node()
  HostInput host;
  std::vector<CardInput> cards = {};
};

// Asks the nodes, which are legs 1.. of the owner table; cards are open already. Errors: a node that does not answer,
// or refuses such a session whatever memory it has. That something does not fit is no error here.
Result<MemoryPlan> plan_memory(const PlanInput& input, std::span<const std::unique_ptr<legs::NodeControl>> nodes);

}  // namespace terrace::planner
