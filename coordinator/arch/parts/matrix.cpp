#include "coordinator/arch/parts/matrix.h"

#include <algorithm>
#include <memory>

#include "common/base/check.h"
#include "coordinator/arch/parts/rows.h"
#include "kernels/registry/registry.h"

namespace terrace::arch {
namespace {

// A chunk of weights stays in a core's second-level cache while tiles of activation rows pass over it. A single tile
// reads each weight once: there a chunk is as long as leaves items enough for every worker to end with the others.
constexpr std::size_t kChunkBytes = 64 * 1024;
constexpr std::size_t kChunkBytesOfOneTile = 256 * 1024;
constexpr std::size_t kMinChunkRows = 8;
// Activation rows of one kernel call: enough to reuse each unpacked weight, few enough to stay in the first level.
constexpr std::size_t kTileRows = 16;
// Items a worker, so that uneven workers end together.
constexpr std::size_t kItemsPerWorker = 4;

constexpr std::size_t ceil_div(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

// How one product is cut: items = chunks of weight rows x groups of activation rows.
struct Grid {
  std::size_t chunk_rows = 0;
  std::size_t n_chunks = 0;
  std::size_t group_rows = 0;
  std::size_t n_groups = 0;

  std::size_t n_items() const { return n_chunks * n_groups; }
};

Grid cut(const Matrix& matrix, std::size_t n_x, std::size_t n_workers) {
  const std::size_t wanted = n_workers == 1 ? 1 : n_workers * kItemsPerWorker;
  const std::size_t chunk_bytes = n_x > kTileRows ? kChunkBytes : kChunkBytesOfOneTile;
  const std::size_t most = std::max(kMinChunkRows, chunk_bytes / matrix.row_bytes);
  Grid grid;
  grid.chunk_rows = std::clamp(ceil_div(matrix.rows, wanted), kMinChunkRows, most);
  grid.n_chunks = ceil_div(matrix.rows, grid.chunk_rows);
  const std::size_t n_tiles = ceil_div(n_x, kTileRows);
  const std::size_t groups = std::clamp<std::size_t>(ceil_div(wanted, grid.n_chunks), 1, n_tiles);
  grid.group_rows = ceil_div(n_tiles, groups) * kTileRows;
  grid.n_groups = ceil_div(n_x, grid.group_rows);
  return grid;
}

struct Piece {
  std::size_t first_weight_row, n_weight_rows;
  std::size_t first_x, n_x;
};

Piece piece_of(const Grid& grid, std::size_t item, std::size_t n_weight_rows, std::size_t n_x) {
  Piece piece{};
  piece.first_weight_row = item / grid.n_groups * grid.chunk_rows;
  piece.n_weight_rows = std::min(grid.chunk_rows, n_weight_rows - piece.first_weight_row);
  piece.first_x = item % grid.n_groups * grid.group_rows;
  piece.n_x = std::min(grid.group_rows, n_x - piece.first_x);
  return piece;
}

void multiply(const Matrix& m, const std::byte* const* x, const Piece& piece, float* y) {
  const std::byte* w = m.row(piece.first_weight_row);
  for (std::size_t j = 0; j < piece.n_x; j += kTileRows) {
    const std::size_t first = piece.first_x + j;
    m.kernels.dot_rows(w, m.row_bytes, piece.n_weight_rows, x + first, std::min(kTileRows, piece.n_x - j), m.cols,
                       y + first * m.rows + piece.first_weight_row, m.rows);
  }
}

void multiply_dequantised(const Matrix& m, const std::byte* const* x, const Piece& piece, float* y, float* scratch) {
  std::array<const float*, kTileRows> rows;
  for (std::size_t j = 0; j < piece.n_x; j += kTileRows) {
    const std::size_t first = piece.first_x + j;
    const std::size_t n = std::min(kTileRows, piece.n_x - j);
    for (std::size_t i = 0; i < n; ++i) rows[i] = reinterpret_cast<const float*>(x[first + i]);
    kernels::dot_rows_dequantized(m.kernels, m.row(piece.first_weight_row), m.row_bytes, piece.n_weight_rows,
                                  rows.data(), n, m.cols, y + first * m.rows + piece.first_weight_row, m.rows, scratch);
  }
}

}  // namespace

void ActivationRows::set(const float* rows, std::size_t n_rows, std::size_t cols) {
  rows_ = rows;
  n_rows_ = n_rows;
  cols_ = cols;
  for (Form& form : forms_) form.made = false;
}

const std::byte* const* ActivationRows::in(ActivationClass activation) {
  Form& form = forms_[static_cast<std::size_t>(activation)];
  if (form.made) return form.rows.data();
  form.made = true;
  form.rows.resize(std::max(form.rows.size(), n_rows_));
  if (activation == ActivationClass::kF32) {
    for (std::size_t i = 0; i < n_rows_; ++i) form.rows[i] = reinterpret_cast<const std::byte*>(rows_ + i * cols_);
    return form.rows.data();
  }
  const std::size_t stride = row_bytes(activation, cols_);
  form.bytes.resize(std::max(form.bytes.size(), n_rows_ * stride));
  for_each_row(parallel_, n_rows_, [&](std::size_t i, std::size_t) {
    std::byte* row = form.bytes.data() + i * stride;
    ops_.quantize_row(activation, rows_ + i * cols_, cols_, row);
    form.rows[i] = row;
  });
  return form.rows.data();
}

Status copy_to_card(std::span<Matrix* const> matrices, kernels::ExpertCard& card, std::span<std::byte> memory) {
  constexpr std::size_t kAlignment = 256;
  TERRACE_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::CardWriter> writer, card.make_writer());
  for (Matrix* const matrix : matrices) {
    const std::size_t bytes = (matrix->bytes() + kAlignment - 1) / kAlignment * kAlignment;
    TERRACE_CHECK(bytes <= memory.size(), "card memory for every matrix");
    TERRACE_RETURN_IF_ERROR(writer->queue(memory.data(), {matrix->data, matrix->bytes()}));
    matrix->on_card = memory.data();
    memory = memory.subspan(bytes);
  }
  return writer->finish();
}

Multiplier::Multiplier(Parallel& parallel, kernels::CardMultiplier* card)
    : parallel_(parallel), dequantised_(parallel.n_workers()), card_(card) {}

void Multiplier::run(std::span<const Product> products, ActivationRows& x) {
  TERRACE_CHECK(products.size() <= kMaxProducts, "more products than one run takes");
  std::array<Product, kMaxProducts> parted;
  std::copy(products.begin(), products.end(), parted.begin());
  const auto end = parted.begin() + static_cast<std::ptrdiff_t>(products.size());
  const auto here = std::partition(parted.begin(), end, [&](const Product& product) {
    return card_ != nullptr && product.matrix->on_card != nullptr;
  });
  if (here != parted.begin()) run_on_card({parted.begin(), here}, x);
  if (here != end) run_here({here, end}, x);
}

void Multiplier::run_on_card(std::span<const Product> products, const ActivationRows& x) {
  if (!status_.ok() || x.n_rows() == 0) return;
  std::array<kernels::CardProduct, kMaxProducts> on_card;
  for (std::size_t p = 0; p < products.size(); ++p) {
    const Matrix& m = *products[p].matrix;
    TERRACE_CHECK(m.cols == x.cols(), "a matrix meets rows of its width");
    on_card[p] = {m.kernels.type, m.on_card, static_cast<std::uint32_t>(m.rows), static_cast<std::uint32_t>(m.cols),
                  products[p].y};
  }
  status_ = card_->run(std::span(on_card).first(products.size()), x.rows(), x.n_rows(), parallel_);
}

void Multiplier::run_here(std::span<const Product> products, ActivationRows& x) {
  std::array<Grid, kMaxProducts> grids;
  std::array<const std::byte* const*, kMaxProducts> rows;
  std::size_t n_items = 0;
  for (std::size_t p = 0; p < products.size(); ++p) {
    const Matrix& m = *products[p].matrix;
    TERRACE_CHECK(m.cols == x.cols(), "a matrix meets rows of its width");
    grids[p] = cut(m, x.n_rows(), parallel_.n_workers());
    rows[p] = x.in(m.activation);
    n_items += grids[p].n_items();
    if (!m.dequantises()) continue;
    for (auto& scratch : dequantised_) scratch.resize(std::max(scratch.size(), m.cols));
  }
  parallel_.run(n_items, [&](std::size_t item, std::size_t worker) {
    std::size_t p = 0;
    for (; item >= grids[p].n_items(); ++p) item -= grids[p].n_items();
    const Matrix& m = *products[p].matrix;
    const Piece piece = piece_of(grids[p], item, m.rows, x.n_rows());
    if (m.dequantises())
      multiply_dequantised(m, rows[p], piece, products[p].y, dequantised_[worker].data());
    else
      multiply(m, rows[p], piece, products[p].y);
  });
}

}  // namespace terrace::arch
