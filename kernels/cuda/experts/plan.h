// Where things lie in an executor's workspace on the card, and how large a slice it holds. Plain C++ from shapes alone,
// so it is tested without a card.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/result.h"
#include "common/base/tensor_type.h"
#include "kernels/card/expert_card.h"
#include "kernels/card/slices.h"
#include "kernels/executor/executor.h"

namespace terrace::kernels::cuda {

// What a program takes of a card where nobody says how much: nine tenths of what is free, for graphs and the driver,
// the display and whoever comes later need the rest; half where that is the host's memory as well, which has experts
// and a cache of its own to hold.
std::uint64_t default_budget_bytes(std::uint64_t free_bytes, bool integrated);

// A layer's experts as the kernels see them.
struct ExpertForm {
  ExpertShape shape;
  ActivationClass gate_class = ActivationClass::kF32;
  ActivationClass up_class = ActivationClass::kF32;
  ActivationClass down_class = ActivationClass::kF32;
  bool operator==(const ExpertForm&) const = default;
};

// A slice in numbers.
struct SliceSize {
  std::uint32_t rows = 0;
  std::uint32_t pairs = 0;
  std::uint32_t pairs_of_row = 0;
  bool operator==(const SliceSize&) const = default;
};

// Offsets in bytes, each a multiple of 256. First what is copied to the card in one piece (pinned memory has the same
// layout), then what lies between the kernels, last what is copied back in one piece.
struct SliceLayout {
  std::uint64_t gate_rows = 0;                                    // [rows] as they came
  std::uint64_t up_rows = 0;                                      // the same where the classes are equal
  std::uint64_t gate_groups = 0, up_groups = 0, down_groups = 0;  // GemvGroup [pairs]: an expert may have one pair
  std::uint64_t x_rows = 0;                                       // u32 [pairs]: row of each pair
  std::uint64_t slots = 0;                                        // i32 [rows, pairs_of_row]: pairs of each row, -1
  std::uint64_t weights = 0;                                      // f32 [rows, pairs_of_row]
  std::uint64_t in_bytes = 0;                                     // up to here

  std::uint64_t gate_x = 0, up_x = 0;  // card rows [rows]
  std::uint64_t gate = 0, up = 0;      // f32 [pairs, ff]
  std::uint64_t h = 0;                 // card rows [pairs]
  std::uint64_t out = 0;               // f32 [pairs, d_model]

  std::uint64_t sums = 0;    // i64 [rows, d_model]
  std::uint64_t failed = 0;  // u8 [rows]
  std::uint64_t end = 0;

  std::uint64_t back_bytes() const { return end - sums; }
};
SliceLayout lay_out(const ExpertForm& form, const SliceSize& size);

struct WorkspaceBytes {
  std::uint64_t card = 0;
  std::uint64_t pinned = 0;  // half of it for each direction
};
// The largest slices that fit. Outputs of single pairs (to_slots) come back as f32 [pairs, d_model] instead of sums.
// kOutOfMemory: not even one pair does; the text gives both sizes.
Result<SliceLimits> slice_limits(const ExpertForm& form, const WorkspaceBytes& bytes, bool to_slots);

// ---- dense products -------------------------------------------------------------------------------------------------

struct ProductShape {
  ActivationClass activation = ActivationClass::kF32;  // of the weight type
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
};

// As SliceLayout: x comes in one piece, all products go back in one.
struct ProductsLayout {
  std::uint64_t x = 0;  // f32 [n_rows, cols]
  std::uint64_t x_bytes = 0;
  std::array<std::uint64_t, kActivationClasses> card_rows{};    // [n_rows] of each class that some product wants
  std::array<std::uint64_t, CardMultiplier::kMaxProducts> y{};  // f32 [n_rows, rows] of each
  std::uint64_t y_begin = 0;
  std::uint64_t end = 0;
};
ProductsLayout lay_out(std::span<const ProductShape> products, std::uint32_t n_rows);
// The most rows, n_rows at the most, that fit at once. kOutOfMemory: not even one does; the text gives both sizes.
Result<std::uint32_t> rows_at_once(std::span<const ProductShape> products, std::size_t n_rows,
                                   const WorkspaceBytes& bytes);

}  // namespace terrace::kernels::cuda
