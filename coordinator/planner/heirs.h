// Who is to own the experts of lost legs once their bytes have moved: other nodes, as far as they have room
// (docs/adr/0018). Until then owners_without() says who computes them.
//
// Threads  Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/manifest/manifest.h"
#include "coordinator/legs/owner_table.h"
#include "coordinator/planner/replan.h"

namespace terrace::planner {

// What the plan knows of those who may inherit.
struct HeirTerms {
  std::vector<std::uint64_t> room;     // [legs] bytes of slabs that a leg takes beside its share; 0: it inherits none
  std::vector<double> expert_seconds;  // [legs] of a decode step's expert there; all alike: nothing was measured
  std::vector<std::uint64_t> slab_bytes;  // [n_layers] that a slab moves
  std::vector<std::uint64_t> kept_bytes;  // [n_layers] that it takes of a node's room
  // Legs whose experts stay with the host when they are lost, by the plan's figures (stays_here()), as long as
  // `host_room`, in bytes of slabs, holds all of them that are lost at once.
  std::vector<std::uint8_t> stays{};  // [legs]; empty: none
  std::uint64_t host_room = 0;
};
// Of a plan, before the room of nodes is known and speeds are: nobody inherits. Slabs as nodes store them.
HeirTerms heir_terms(const manifest::Manifest& model, std::size_t n_legs);

// owners_without(), and of what the host would have of the lost legs' experts each one, but for those that stay there,
// goes by rising layer and id to the leg that is through with the layer first with it: (experts it owns of the layer +
// 1) * expert_seconds, the first of several. Legs without room for it are passed over; where none has any it stays with
// the host. What `holds` has already is in a leg's room.
legs::OwnerTable owners_with_heirs(const legs::OwnerTable& planned, std::span<const std::uint8_t> gone,
                                   std::uint64_t epoch, const HeirTerms& terms, HoldsSlab holds);

// What one leg inherits.
struct Heir {
  std::size_t leg = 0;
  std::uint64_t experts = 0;
  std::uint64_t bytes = 0;
};
std::uint64_t bytes_to_move(std::span<const Heir> heirs);
struct Inheritance {
  std::vector<Heir> heirs;         // by leg, those that get something
  std::uint64_t host_experts = 0;  // of the lost one's that stay with the host
  legs::OwnerTable owners;         // once all bytes have moved
};
// When `lost` alone is.
Inheritance inheritance_of(const legs::OwnerTable& planned, std::size_t lost, const HeirTerms& terms);

}  // namespace terrace::planner
