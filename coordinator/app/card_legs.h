// The cards of a run as legs. Their memory was taken when the placement was made; here it is filled.
#pragma once

#include <memory>
#include <vector>

#include "common/base/parallel.h"
#include "common/base/result.h"
#include "coordinator/app/placement.h"
#include "coordinator/legs/card_leg.h"
#include "coordinator/legs/leg.h"
#include "coordinator/terminal/notes.h"
#include "kernels/card/open_cards.h"
#include "kernels/executor/executor.h"

namespace terrace::app {

struct CardLegsInput {
  const Placement& placement;  // but for what follows, which may have been moved out of it
  const kernels::OpenedCards& cards;
  const std::vector<kernels::ExpertKernels>& kernels;  // [n_layers]
  int shift = 24;                                      // of the model
  legs::SlabPartReader read;                           // where experts come from
  Parallel& parallel;                                  // that reads them
};

// One leg for each card, in their order, with its experts loaded; `notes` are told what lies where, what is missing,
// and how fast it came. Each card proves first that its kernels give the right bits. The cards outlive the legs.
Result<std::vector<std::shared_ptr<legs::Leg>>> open_card_legs(const CardLegsInput& input, terminal::Notes& notes);

}  // namespace terrace::app
