// What a trunk is made with besides the file; the same for every architecture.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kernels/card/expert_card.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/ops/ops.h"
#include "kernels/executor/executor.h"

namespace terrace::arch {

struct TrunkOptions {
  std::uint32_t context = 0;  // positions a stream can hold; 0: the model's own, which is also the most
  kernels::KvType kv = kernels::KvType::kF16;
  std::uint32_t max_rows = 512;  // of one step, 1..65,536
  std::uint32_t max_streams = 1;
  std::uint64_t cache_bytes = 0;    // keys and values of all streams, in whole blocks; 0: what the machine gives
  std::optional<kernels::Isa> isa;  // exactly this one (flag --isa), else the widest of each kernel
  kernels::Activations activations = kernels::Activations::kQuantised;
  int shift = 24;  // SHIFT of the model's manifest (docs/numerics.md 5)
  // Where the dense products of ModelInfo are computed, and the part of its slab memory for their weights, of
  // card_bytes() at least; null: here. Both are borrowed.
  kernels::ExpertCard* card = nullptr;
  std::span<std::byte> card_memory = {};
  // Set: the card computes the whole trunk, and its part of the memory is of trunk_bytes().
  std::optional<kernels::CardTrunkLimits> on_card = std::nullopt;
};

}  // namespace terrace::arch
