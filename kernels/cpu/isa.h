// Which instruction sets kernels are written for, and which of them a machine has.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.h"

namespace terrace::kernels {

// Narrow to wide within one architecture.
enum class Isa { kScalar, kAvx2, kAvx512Vnni };

// All of them, narrow to wide, by the names of the flag --isa.
inline const std::initializer_list<std::pair<std::string_view, Isa>> kIsaNames = {
    {"scalar", Isa::kScalar}, {"avx2", Isa::kAvx2}, {"avx512-vnni", Isa::kAvx512Vnni}};

const char* name(Isa isa);  // "scalar", "avx2", "avx512-vnni"

// What this machine allows: the CPU has the instructions, and the operating system saves their registers.
struct CpuFeatures {
  bool avx2 = false;         // AVX2, FMA, F16C and BMI2 together: what files compiled for avx2 may use
  bool avx512_vnni = false;  // those, and AVX-512 F, BW, DQ, VL and VNNI: what files compiled for it may use

  bool has(Isa isa) const;
  std::vector<Isa> isas() const;  // all it has, narrow to wide
  std::string describe() const;   // "scalar avx2"
};
CpuFeatures detect_cpu_features();

// What an x86 CPU answers, so that a test can ask about other machines than its own.
struct X86Answers {
  std::uint32_t leaf1_ecx = 0;  // CPUID
  std::uint32_t leaf7_ebx = 0;
  std::uint32_t leaf7_ecx = 0;
  std::uint64_t xcr0 = 0;  // XGETBV: which registers the system saves; 0 where it has not switched that on
};
CpuFeatures features_of(const X86Answers& answers);

}  // namespace terrace::kernels
