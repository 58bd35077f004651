// The gate that every table passes: each operation over many shapes and hard inputs, equal to the scalar table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cpu/ops/ops.h"

namespace terrace::test {

// One line for each operation that gives other bits than the reference's, with the first shape at which it does.
// `operation`: only the check that this operation is part of; empty: all.
std::vector<std::string> compare_tables(const kernels::Ops& reference, const kernels::Ops& candidate,
                                        std::uint32_t seed, std::string_view operation = {});

}  // namespace terrace::test
