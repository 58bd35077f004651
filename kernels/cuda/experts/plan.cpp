#include "kernels/cuda/experts/plan.h"

#include <fmt/core.h>

#include <algorithm>

#include "kernels/cuda/expert_gemv/gemv_group.h"
#include "kernels/cuda/weights/card_rows.h"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint64_t kAlignment = 256;
// A slice's rows: kernels for more are no faster, and the step's thread adds the first slice's sums while the second is
// computed.
constexpr std::uint32_t kMostRows = 512;
constexpr std::uint32_t kPairsARow = 8;  // as models choose; a slice has fewer rows where a row has more
constexpr std::uint32_t kMostPairsOfRow = 32;

// Takes pieces one behind the other.
class Pen {
 public:
  std::uint64_t take(std::uint64_t bytes) {
    const std::uint64_t begin = at_;
    at_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return begin;
  }
  std::uint64_t at() const { return at_; }

 private:
  std::uint64_t at_ = 0;
};

std::uint64_t card_row(ActivationClass activation, std::uint32_t cols) {
  return card_row_layout(block_values(activation), cols).bytes;
}

SliceSize largest(std::uint32_t rows) { return {rows, rows * kPairsARow, kMostPairsOfRow}; }

bool fits(const ExpertForm& form, const SliceSize& size, const WorkspaceBytes& bytes, bool to_slots) {
  const SliceLayout at = lay_out(form, size);
  const std::uint64_t back =
      to_slots ? std::uint64_t{size.pairs} * form.shape.d_model * sizeof(float) + size.rows : at.back_bytes();
  return at.end <= bytes.card && at.in_bytes <= bytes.pinned / 2 && back <= bytes.pinned / 2;
}

}  // namespace

std::uint64_t default_budget_bytes(std::uint64_t free_bytes, bool integrated) {
  return integrated ? free_bytes / 2 : free_bytes / 10 * 9;
}

SliceLayout lay_out(const ExpertForm& form, const SliceSize& size) {
  const ExpertShape& shape = form.shape;
  const std::uint64_t rows = size.rows, pairs = size.pairs, slots = rows * size.pairs_of_row;
  Pen pen;
  SliceLayout at;
  at.gate_rows = at.up_rows = pen.take(rows * row_bytes(form.gate_class, shape.d_model));
  if (form.up_class != form.gate_class) at.up_rows = pen.take(rows * row_bytes(form.up_class, shape.d_model));
  at.gate_groups = pen.take(pairs * sizeof(GemvGroup));
  at.up_groups = pen.take(pairs * sizeof(GemvGroup));
  at.down_groups = pen.take(pairs * sizeof(GemvGroup));
  at.x_rows = pen.take(pairs * sizeof(std::uint32_t));
  at.slots = pen.take(slots * sizeof(std::int32_t));
  at.weights = pen.take(slots * sizeof(float));
  at.in_bytes = pen.at();
  at.gate_x = at.up_x = pen.take(rows * card_row(form.gate_class, shape.d_model));
  if (form.up_class != form.gate_class) at.up_x = pen.take(rows * card_row(form.up_class, shape.d_model));
  at.gate = pen.take(pairs * shape.ff * sizeof(float));
  at.up = pen.take(pairs * shape.ff * sizeof(float));
  at.h = pen.take(pairs * card_row(form.down_class, shape.ff));
  at.out = pen.take(pairs * shape.d_model * sizeof(float));
  at.sums = pen.take(rows * shape.d_model * sizeof(std::int64_t));
  at.failed = pen.take(rows);
  at.end = pen.at();
  return at;
}

ProductsLayout lay_out(std::span<const ProductShape> products, std::uint32_t n_rows) {
  Pen pen;
  ProductsLayout at;
  const std::uint32_t cols = products.front().cols;
  at.x_bytes = std::uint64_t{n_rows} * cols * sizeof(float);
  at.x = pen.take(at.x_bytes);
  std::array<bool, kActivationClasses> made{};
  for (const ProductShape& product : products) {
    const auto form = static_cast<std::size_t>(product.activation);
    if (made[form]) continue;
    made[form] = true;
    at.card_rows[form] = pen.take(std::uint64_t{n_rows} * card_row(product.activation, cols));
  }
  at.y_begin = pen.at();
  for (std::size_t i = 0; i < products.size(); ++i)
    at.y[i] = pen.take(std::uint64_t{n_rows} * products[i].rows * sizeof(float));
  at.end = pen.at();
  return at;
}

Result<std::uint32_t> rows_at_once(std::span<const ProductShape> products, std::size_t n_rows,
                                   const WorkspaceBytes& bytes) {
  ProductsLayout at;
  for (std::size_t rows = std::min<std::size_t>(n_rows, kMostRows); rows > 0; rows /= 2) {
    at = lay_out(products, static_cast<std::uint32_t>(rows));
    const std::uint64_t half = bytes.pinned / 2;
    if (at.end <= bytes.card && at.x_bytes <= half && at.end - at.y_begin <= half)
      return static_cast<std::uint32_t>(rows);
  }
  return Error(
      ErrorCode::kOutOfMemory,
      fmt::format("dense products of one row need {} bytes of a card's workspace of {}; give the card a larger "
                  "--vram",
                  at.end, bytes.card));
}

Result<SliceLimits> slice_limits(const ExpertForm& form, const WorkspaceBytes& bytes, bool to_slots) {
  for (std::uint32_t rows = kMostRows; rows > 0; rows /= 2)
    if (const SliceSize size = largest(rows); fits(form, size, bytes, to_slots))
      return SliceLimits{size.rows, size.pairs, size.pairs_of_row};
  return Error(ErrorCode::kOutOfMemory,
               fmt::format("one row of experts of width {} x {} needs {} bytes of a card's workspace of {}; give the "
                           "card a larger --vram",
                           form.shape.d_model, form.shape.ff, lay_out(form, largest(1)).end, bytes.card));
}

}  // namespace terrace::kernels::cuda
