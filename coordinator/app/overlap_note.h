// Whether a model's steps run in parts, and which, in a sentence: what docs/adr/0025 and 0026 make of the options.
#pragma once

#include <string>

#include "common/manifest/experts.h"
#include "coordinator/arch/trunk_options.h"

namespace terrace::app {

// Who owns experts.
struct ExpertOwners {
  bool nodes = false;     // some of them
  bool all_card = false;  // one card, of all
};

// Empty: there is nothing to say, for nobody computes beside the trunk.
std::string overlap_note(const arch::TrunkOptions& trunk, const manifest::ModelExperts& experts,
                         const ExpertOwners& owners);

}  // namespace terrace::app
