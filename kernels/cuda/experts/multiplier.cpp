#include "kernels/cuda/experts/multiplier.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cuda/activations/activations.h"
#include "kernels/cuda/dense/dense.h"
#include "kernels/cuda/expert_gemv/expert_gemv.h"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint32_t kMostReplayedRows = 2;
constexpr std::size_t kMostReplays = 1024;  // two products a layer, two sizes each, and the head (docs/adr/0026)

}  // namespace

Result<ProductShape> shape_of(const CardProduct& product) {
  if (has_gemv(product.type)) return ProductShape{gemv_activation(product.type), product.rows, product.cols};
  return Error(ErrorCode::kUnsupported, fmt::format("there is no card kernel for {}", info(product.type).name));
}

Result<std::unique_ptr<CudaMultiplier>> CudaMultiplier::make(const Card& card, std::byte* workspace,
                                                             const WorkspaceBytes& bytes,
                                                             std::function<void()> give_back) {
  TERRACE_ASSIGN_OR_RETURN(Stream stream, card.make_stream());
  TERRACE_ASSIGN_OR_RETURN(PinnedBuffer in, card.make_pinned(bytes.pinned / 2));
  TERRACE_ASSIGN_OR_RETURN(PinnedBuffer back, card.make_pinned(bytes.pinned / 2));
  return std::unique_ptr<CudaMultiplier>(
      new CudaMultiplier(std::move(stream), std::move(in), std::move(back), workspace, bytes, std::move(give_back)));
}

CudaMultiplier::CudaMultiplier(Stream stream, PinnedBuffer in, PinnedBuffer back, std::byte* workspace,
                               const WorkspaceBytes& bytes, std::function<void()> give_back)
    : stream_(std::move(stream)),
      in_(std::move(in)),
      back_(std::move(back)),
      workspace_(workspace),
      bytes_(bytes),
      give_back_(std::move(give_back)) {}

CudaMultiplier::~CudaMultiplier() {
  (void)stream_.synchronize();
  give_back_();
}

Status CudaMultiplier::run(std::span<const CardProduct> products, const float* x, std::size_t n_rows,
                           Parallel& parallel) {
  TERRACE_CHECK(!products.empty() && products.size() <= kMaxProducts, "as many products as one run takes");
  std::array<ProductShape, kMaxProducts> shapes;
  for (std::size_t i = 0; i < products.size(); ++i) {
    TERRACE_CHECK(products[i].cols == products[0].cols, "products of rows of one width");
    TERRACE_ASSIGN_OR_RETURN(shapes[i], shape_of(products[i]));
  }
  const std::span<const ProductShape> all = std::span(shapes).first(products.size());
  for (std::size_t first = 0; first < n_rows;) {
    TERRACE_ASSIGN_OR_RETURN(const std::uint32_t n, rows_at_once(all, n_rows - first, bytes_));
    TERRACE_RETURN_IF_ERROR(run_part(products, all, x, first, n, parallel));
    first += n;
  }
  return {};
}

Status CudaMultiplier::run_part(std::span<const CardProduct> products, std::span<const ProductShape> shapes,
                                const float* x, std::size_t first, std::uint32_t n, Parallel& parallel) {
  const std::size_t cols = products[0].cols;
  const ProductsLayout at = lay_out(shapes, n);
  // Few rows are copied sooner than workers wake.
  Serial serial;
  Parallel& copying = n <= kMostReplayedRows ? static_cast<Parallel&>(serial) : parallel;
  copying.run(n, [&](std::size_t row, std::size_t) {
    std::memcpy(in_.data() + row * cols * sizeof(float), x + (first + row) * cols, cols * sizeof(float));
  });
  TERRACE_RETURN_IF_ERROR(n <= kMostReplayedRows ? replay(products, shapes, at, n) : queue(products, shapes, at, n));
  TERRACE_RETURN_IF_ERROR(stream_.synchronize());
  copying.run(n * products.size(), [&](std::size_t item, std::size_t) {
    const std::size_t i = item % products.size(), row = item / products.size();
    const std::size_t bytes = products[i].rows * sizeof(float);
    std::memcpy(products[i].y + (first + row) * products[i].rows, back_.data() + (at.y[i] - at.y_begin) + row * bytes,
                bytes);
  });
  return {};
}

Status CudaMultiplier::queue(std::span<const CardProduct> products, std::span<const ProductShape> shapes,
                             const ProductsLayout& at, std::uint32_t n) {
  TERRACE_RETURN_IF_ERROR(stream_.copy_to_card(workspace_ + at.x, in_.data(), at.x_bytes));
  TERRACE_RETURN_IF_ERROR(launch(products, shapes, at, n));
  return stream_.copy_to_host(back_.data(), workspace_ + at.y_begin, at.end - at.y_begin);
}

Status CudaMultiplier::replay(std::span<const CardProduct> products, std::span<const ProductShape> shapes,
                              const ProductsLayout& at, std::uint32_t n) {
  std::array<Replay::Matrix, kMaxProducts> matrices{};
  for (std::size_t i = 0; i < products.size(); ++i)
    matrices[i] = {products[i].type, products[i].w, products[i].rows, products[i].cols};
  const auto found = std::find_if(replays_.begin(), replays_.end(),
                                  [&](const Replay& r) { return r.n == n && r.matrices == matrices; });
  if (found != replays_.end()) return found->graph.launch(stream_);
  if (replays_.size() >= kMostReplays) return queue(products, shapes, at, n);
  Result<Graph> graph = Graph::capture(stream_, [&] { return queue(products, shapes, at, n); });
  if (!graph.ok() && graph.error().code() == ErrorCode::kOutOfMemory) return queue(products, shapes, at, n);
  if (!graph.ok()) return graph.error();
  replays_.push_back({matrices, n, std::move(*graph)});
  return replays_.back().graph.launch(stream_);
}

Status CudaMultiplier::launch(std::span<const CardProduct> products, std::span<const ProductShape> shapes,
                              const ProductsLayout& at, std::uint32_t n) {
  const std::uint32_t cols = products[0].cols;
  std::array<bool, kActivationClasses> made{};
  for (std::size_t i = 0; i < products.size(); ++i) {
    const auto form = static_cast<std::size_t>(shapes[i].activation);
    if (std::exchange(made[form], true)) continue;
    TERRACE_RETURN_IF_ERROR(
        quantize_card_rows(stream_, {shapes[i].activation, reinterpret_cast<const float*>(workspace_ + at.x), cols, n,
                                     cols, workspace_ + at.card_rows[form], card_row_bytes(products[i].type, cols)}));
  }
  for (std::size_t i = 0; i < products.size(); ++i) {
    const CardProduct& product = products[i];
    DenseArgs args;
    args.type = product.type;
    args.w = product.w;
    args.weight_rows = product.rows;
    args.cols = cols;
    args.x = workspace_ + at.card_rows[static_cast<std::size_t>(shapes[i].activation)];
    args.x_stride = card_row_bytes(product.type, cols);
    args.n_rows = n;
    args.y = reinterpret_cast<float*>(workspace_ + at.y[i]);
    args.y_stride = product.rows;
    TERRACE_RETURN_IF_ERROR(dense(stream_, args));
  }
  return {};
}

}  // namespace terrace::kernels::cuda
