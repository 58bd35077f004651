#include "kernels/cpu/isa.h"

namespace terrace::kernels {
namespace {
constexpr Isa kIsas[] = {Isa::kScalar, Isa::kAvx2};
}

const char* name(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
  }
  return "unknown";
}

std::vector<Isa> CpuFeatures::isas() const {
  std::vector<Isa> found;
  for (Isa isa : kIsas)
    if (has(isa)) found.push_back(isa);
  return found;
}

std::string CpuFeatures::describe() const {
  std::string text;
  for (Isa isa : isas()) text += text.empty() ? name(isa) : std::string(" ") + name(isa);
  return text;
}

CpuFeatures detect_cpu_features() {
  CpuFeatures features;
#if defined(__x86_64__)
  __builtin_cpu_init();
  features.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
                  __builtin_cpu_supports("bmi2");
#endif
  return features;
}

}  // namespace terrace::kernels
