// Who owns which expert and the legs that do: what a step keeps from its begin to its end.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "coordinator/legs/leg.h"
#include "coordinator/legs/owner_table.h"

namespace terrace::legs {

// Immutable. A node's leg is held by an aliasing pointer to its NodeSession, so that a session lives as long as an
// epoch or a supervisor needs it.
struct Epoch {
  OwnerTable owners;
  std::vector<std::shared_ptr<Leg>> legs;  // [owners.n_legs()]; 0 is the host
  // [owners.n_legs()] the epoch number that each leg last acknowledged: what its batches name. A loss changes only what
  // the coordinator does with the lost leg's experts, so survivors go on with the number they know.
  std::vector<std::uint64_t> acknowledged;
};

// Every leg has acknowledged the table's own number.
std::shared_ptr<const Epoch> make_epoch(OwnerTable owners, std::vector<std::shared_ptr<Leg>> legs);

}  // namespace terrace::legs
