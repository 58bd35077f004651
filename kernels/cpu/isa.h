// Which instruction sets kernels are written for, and which of them a machine has.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace terrace::kernels {

// Narrow to wide within one architecture. The names are those of the flag --isa.
enum class Isa { kScalar, kAvx2 };

const char* name(Isa isa);  // "scalar", "avx2"

// What this machine (and the operating system's saving of registers) allows.
struct CpuFeatures {
  bool avx2 = false;  // AVX2, FMA, F16C and BMI2 together: what files compiled for avx2 may use

  bool has(Isa isa) const { return isa == Isa::kScalar || (isa == Isa::kAvx2 && avx2); }
  std::vector<Isa> isas() const;  // all it has, narrow to wide
  std::string describe() const;   // "scalar avx2"
};
CpuFeatures detect_cpu_features();

}  // namespace terrace::kernels
