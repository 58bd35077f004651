// CardMultiplier over the kernels of kernels/cuda: rows in, quantised once for each class, products out. What decoding
// asks for, again and again the same matrices with one or two rows, is captured once and replayed.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <tuple>
#include <vector>

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
  // What a captured part depends on; the matrices stay where they are.
  struct Replay {
    // Type, weights, rows and columns of each product.
    using Matrix = std::tuple<TensorType, const std::byte*, std::uint32_t, std::uint32_t>;
    std::array<Matrix, kMaxProducts> matrices{};
    std::uint32_t n = 0;
    Graph graph;
  };
  CudaMultiplier(Stream stream, PinnedBuffer in, PinnedBuffer back, std::byte* workspace, const WorkspaceBytes& bytes,
                 std::function<void()> give_back);
  // Rows [first, first + n).
  Status run_part(std::span<const CardProduct> products, std::span<const ProductShape> shapes, const float* x,
                  std::size_t first, std::uint32_t n, Parallel& parallel);
  Status queue(std::span<const CardProduct> products, std::span<const ProductShape> shapes, const ProductsLayout& at,
               std::uint32_t n);
  Status replay(std::span<const CardProduct> products, std::span<const ProductShape> shapes, const ProductsLayout& at,
                std::uint32_t n);
  Status launch(std::span<const CardProduct> products, std::span<const ProductShape> shapes, const ProductsLayout& at,
                std::uint32_t n);

  Stream stream_;
  PinnedBuffer in_, back_;
  std::byte* const workspace_;
  const WorkspaceBytes bytes_;
  const std::function<void()> give_back_;
  std::vector<Replay> replays_;
};

}  // namespace terrace::kernels::cuda
