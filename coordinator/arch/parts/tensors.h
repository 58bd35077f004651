// Finds an architecture's tensors in a file: named, of the expected shape, of a type that this build computes with.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/gguf/file.h"
#include "coordinator/arch/parts/matrix.h"
#include "coordinator/arch/trunk_options.h"
#include "kernels/cpu/isa.h"

namespace terrace::arch {

// Errors name the file, the tensor, its offset, and found against expected:
//   kNotFound     no such tensor
//   kCorrupt      another shape, or rows that are no whole blocks
//   kUnsupported  a type without a kernel (for the forced ISA), or a companion tensor that would change the result
class TensorBinder {
 public:
  // What the kernels are chosen by comes from `options`. Borrows the file.
  TensorBinder(const gguf::File& file, const TrunkOptions& options);

  // The tensor `name` of exactly this shape, in the file's order (row length first).
  Result<const gguf::TensorInfo*> find(std::string_view name, std::initializer_list<std::uint64_t> shape) const;
  // A matrix [rows, cols] named "<stem>.weight". A "<stem>.bias" or "<stem>.scale" beside it is refused by name.
  Result<Matrix> matrix(std::string_view stem, std::uint64_t cols, std::uint64_t rows) const;
  // A vector of n values in F32, named "<stem>.weight".
  Result<const float*> vector(std::string_view stem, std::uint64_t n) const;
  // One matrix an expert, named "<stem>.weight": checks as matrix() does, and gives bytes of one expert.
  Result<std::uint64_t> expert_bytes(std::string_view stem, std::uint64_t cols, std::uint64_t rows,
                                     std::uint64_t n_experts) const;
  // Gate and up of one expert together: "<block>ffn_gate_exps" and "<block>ffn_up_exps", each [d_model, ff, n_experts],
  // or both in one stack "<block>ffn_gate_up_exps" of twice the rows. Where they lie is common/manifest's affair.
  Result<std::uint64_t> gate_and_up_bytes(const std::string& block, std::uint64_t d_model, std::uint64_t ff,
                                          std::uint64_t n_experts) const;
  // kUnsupported: the tensor is there.
  Status absent(std::string_view name) const;

 private:
  Status no_companions(std::string_view stem) const;
  Result<kernels::WeightKernels> kernels_for(const gguf::TensorInfo& tensor) const;

  const gguf::File& file_;
  kernels::CpuFeatures cpu_;
  std::optional<kernels::Isa> isa_;
  kernels::Activations activations_;
};

}  // namespace terrace::arch
