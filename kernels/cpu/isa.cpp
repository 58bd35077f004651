#include "kernels/cpu/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace terrace::kernels {
namespace {

// Bits as in Intel's Software Developer's Manual, volume 2A, CPUID, and volume 1, 13.3 (XCR0).
constexpr std::uint32_t bit(int index) { return std::uint32_t{1} << index; }
constexpr std::uint32_t kFma = bit(12), kOsXsave = bit(27), kAvx = bit(28), kF16c = bit(29);  // leaf 1, ECX
constexpr std::uint32_t kAvx2 = bit(5), kBmi2 = bit(8);                                       // leaf 7, EBX
constexpr std::uint32_t kAvx512F = bit(16), kAvx512Dq = bit(17), kAvx512Bw = bit(30), kAvx512Vl = bit(31);
constexpr std::uint32_t kAvx512Vnni = bit(11);                             // leaf 7, ECX
constexpr std::uint64_t kYmmSaved = bit(1) | bit(2);                       // XCR0
constexpr std::uint64_t kZmmSaved = kYmmSaved | bit(5) | bit(6) | bit(7);  // opmasks, ZMM0..15 upper halves, ZMM16..31

template <class Word>
bool all_set(Word word, Word bits) {
  return (word & bits) == bits;
}

#if defined(__x86_64__)
X86Answers ask_cpu() {
  X86Answers answers;
  std::uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) answers.leaf1_ecx = ecx;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    answers.leaf7_ebx = ebx;
    answers.leaf7_ecx = ecx;
  }
  if (all_set(answers.leaf1_ecx, kOsXsave)) {  // else XGETBV is no instruction
    std::uint32_t low = 0, high = 0;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    answers.xcr0 = std::uint64_t{high} << 32 | low;
  }
  return answers;
}
#endif

}  // namespace

const char* name(Isa isa) {
  for (const auto& [text, named] : kIsaNames)
    if (named == isa) return text.data();
  return "unknown";
}

bool CpuFeatures::has(Isa isa) const {
  switch (isa) {
    case Isa::kScalar:
      return true;
    case Isa::kAvx2:
      return avx2;
    case Isa::kAvx512Vnni:
      return avx512_vnni;
  }
  return false;
}

std::vector<Isa> CpuFeatures::isas() const {
  std::vector<Isa> found;
  for (const auto& [text, isa] : kIsaNames)
    if (has(isa)) found.push_back(isa);
  return found;
}

std::string CpuFeatures::describe() const {
  std::string text;
  for (Isa isa : isas()) text += text.empty() ? name(isa) : std::string(" ") + name(isa);
  return text;
}

CpuFeatures features_of(const X86Answers& answers) {
  CpuFeatures features;
  features.avx2 = all_set(answers.leaf1_ecx, kFma | kOsXsave | kAvx | kF16c) &&
                  all_set(answers.leaf7_ebx, kAvx2 | kBmi2) && all_set(answers.xcr0, kYmmSaved);
  features.avx512_vnni = features.avx2 && all_set(answers.leaf7_ebx, kAvx512F | kAvx512Dq | kAvx512Bw | kAvx512Vl) &&
                         all_set(answers.leaf7_ecx, kAvx512Vnni) && all_set(answers.xcr0, kZmmSaved);
  return features;
}

CpuFeatures detect_cpu_features() {
#if defined(__x86_64__)
  return features_of(ask_cpu());
#else
  return {};
#endif
}

}  // namespace terrace::kernels
