// CardMultiplier over the kernels of kernels/cuda: rows in, quantised once for each class, products out.
#pragma once

#include <functional>
#include <memory>

#include "kernels/card/expert_card.h"
#include "kernels/cuda/device/card.h"
#include "kernels/cuda/experts/plan.h"

namespace terrace::kernels::cuda {

// kUnsupported: a type without a kernel.
Result<ProductShape> shape_of(const CardProduct& product);

class CudaMultiplier final : public CardMultiplier {
 public:
  // As CudaExecutor::make().
  static Result<std::unique_ptr<CudaMultiplier>> make(const Card& card, std::byte* workspace,
                                                      const WorkspaceBytes& bytes, std::function<void()> give_back);
  ~CudaMultiplier() override;

  Status run(std::span<const CardProduct> products, const float* x, std::size_t n_rows, Parallel& parallel) override;

 private:
  CudaMultiplier(Stream stream, PinnedBuffer in, PinnedBuffer back, std::byte* workspace, const WorkspaceBytes& bytes,
                 std::function<void()> give_back);
  // Rows [first, first + n).
  Status run_part(std::span<const CardProduct> products, std::span<const ProductShape> shapes, const float* x,
                  std::size_t first, std::uint32_t n, Parallel& parallel);
  Status launch(std::span<const CardProduct> products, std::span<const ProductShape> shapes, const ProductsLayout& at,
                std::uint32_t n);

  Stream stream_;
  PinnedBuffer in_, back_;
  std::byte* const workspace_;
  const WorkspaceBytes bytes_;
  const std::function<void()> give_back_;
};

}  // namespace terrace::kernels::cuda
