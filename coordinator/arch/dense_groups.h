// A trunk's dense matrices in the order in which a step multiplies with them: for whoever measures these products
// alone.
#pragma once

#include <vector>

#include "coordinator/arch/parts/matrix.h"

namespace terrace::arch {

// Matrices that meet the same rows, in one run of the Multiplier. Borrow the file's mapping.
using DenseGroup = std::vector<Matrix>;

struct DenseGroups {
  std::vector<std::vector<DenseGroup>> layers;  // [n_layers] groups of a layer, the router's included
  DenseGroup head;                              // once a step that wants logits
};

}  // namespace terrace::arch
