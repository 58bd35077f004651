#include "kernels/cpu/isa.h"

#include <gtest/gtest.h>

#include <string>

namespace terrace::kernels {
namespace isa_test {

// A Xeon of 2023: every bit that is asked for, with all registers saved.
constexpr X86Answers kNewest{.leaf1_ecx = 1u << 12 | 1u << 27 | 1u << 28 | 1u << 29,
                             .leaf7_ebx = 1u << 5 | 1u << 8 | 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31,
                             .leaf7_ecx = 1u << 11,
                             .xcr0 = 0xe7};

TEST(CpuFeatures, ACpuWithAllOfIt_HasEveryX86Isa) {
  EXPECT_EQ(features_of(kNewest).describe(), "scalar avx2 avx512-vnni");
  EXPECT_EQ(features_of({}).describe(), "scalar");
}

// Each of AVX-512 F, DQ, BW, VL, VNNI, and the three register states of XCR0.
TEST(CpuFeatures, AnythingOfAvx512Missing_LeavesAvx2) {
  for (const int bit : {16, 17, 30, 31}) {
    X86Answers answers = kNewest;
    answers.leaf7_ebx &= ~(1u << bit);
    EXPECT_EQ(features_of(answers).describe(), "scalar avx2") << "leaf 7 EBX bit " << bit;
  }
  X86Answers no_vnni = kNewest;
  no_vnni.leaf7_ecx = 0;
  EXPECT_EQ(features_of(no_vnni).describe(), "scalar avx2");
  for (const int bit : {5, 6, 7}) {
    X86Answers answers = kNewest;
    answers.xcr0 &= ~(1ull << bit);
    EXPECT_EQ(features_of(answers).describe(), "scalar avx2") << "XCR0 bit " << bit;
  }
}

TEST(CpuFeatures, AnythingOfAvx2Missing_LeavesScalar) {
  for (const int bit : {12, 27, 28, 29}) {
    X86Answers answers = kNewest;
    answers.leaf1_ecx &= ~(1u << bit);
    EXPECT_EQ(features_of(answers).describe(), "scalar") << "leaf 1 ECX bit " << bit;
  }
  for (const int bit : {5, 8}) {
    X86Answers answers = kNewest;
    answers.leaf7_ebx &= ~(1u << bit);
    EXPECT_EQ(features_of(answers).describe(), "scalar") << "leaf 7 EBX bit " << bit;
  }
  for (const int bit : {1, 2}) {
    X86Answers answers = kNewest;
    answers.xcr0 &= ~(1ull << bit);
    EXPECT_EQ(features_of(answers).describe(), "scalar") << "XCR0 bit " << bit;
  }
}

TEST(CpuFeatures, Detected_AgreeWithTheCompilersOwnQuestion) {
#if defined(__x86_64__)
  const CpuFeatures found = detect_cpu_features();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
                    __builtin_cpu_supports("bmi2");
  EXPECT_EQ(found.avx2, avx2);
  EXPECT_EQ(found.avx512_vnni, avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                                   __builtin_cpu_supports("avx512vnni"));
#endif
}

TEST(Isa, Names_AreThoseOfTheFlag) {
  for (const auto& [text, isa] : kIsaNames) EXPECT_EQ(std::string(name(isa)), text);
  EXPECT_STREQ(name(Isa::kAvx512Vnni), "avx512-vnni");
}

}  // namespace isa_test
}  // namespace terrace::kernels
