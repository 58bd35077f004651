// ISAs for parametrised tests.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cpu/isa.h"

namespace terrace::test {

// Every ISA there is; a test skips, by name, what its machine lacks.
inline std::vector<kernels::Isa> every_isa() {
  std::vector<kernels::Isa> isas;
  for (const auto& [text, isa] : kernels::kIsaNames) isas.push_back(isa);
  return isas;
}

// The name as part of an identifier: "avx512_vnni".
inline std::string isa_identifier(kernels::Isa isa) {
  std::string text = kernels::name(isa);
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

}  // namespace terrace::test
