// The same of a card: one expert of every weight type that it computes, against the scalar reference by ==.
#pragma once

#include "common/base/result.h"
#include "kernels/card/expert_card.h"

namespace terrace::kernels {

// Uses one executor, one writer and the first bytes of slab memory, which must be free. kInternal: the card failed, or
// gives other bits than the contract; names card and type.
Status check_card(ExpertCard& card);

}  // namespace terrace::kernels
