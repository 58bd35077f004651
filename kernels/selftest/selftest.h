// Whether this machine computes what the contract says (docs/numerics.md 10): checksums of EXP and SILU, and one
// expert of every weight type, on every ISA that the machine has, against the scalar reference by ==. Nodes run it
// before they serve; `terrace selftest` prints it.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "kernels/cpu/isa.h"

namespace terrace::kernels {

struct SelftestRow {
  std::string what;  // "EXP", "SILU", or the weight type: "Q4_K"
  Isa isa = Isa::kScalar;
  std::string kernel_name;  // of a weight type
  bool ok = false;
};

// Grouped by `what`, ISAs narrow to wide. Fixed data; less than a second on one thread.
std::vector<SelftestRow> run_selftest(const CpuFeatures& cpu);

// kInternal: names what differs, and on which ISA.
Status check(const std::vector<SelftestRow>& rows);

}  // namespace terrace::kernels
