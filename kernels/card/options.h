// --gpu and --vram, the same in every program that computes experts.
#pragma once

#include <cstdint>
#include <optional>

#include "common/base/options.h"
#include "common/base/result.h"
#include "common/base/units.h"

namespace terrace::kernels {

struct CardRequest {
  std::optional<std::uint32_t> gpu;  // empty: no card
  std::optional<Bytes> vram;         // of it; empty: nine tenths of what is free, half where it is the host's memory
};

void add_card_options(OptionTable& table, CardRequest* request);
// kInvalidArgument: memory of no card.
Status check(const CardRequest& request);

// What of `ram`, a budget for this machine's memory, a card leaves: all of it, or where the card's memory is the
// host's (`integrated`) what its `vram` bytes leave. kOutOfMemory: nothing; the text has both numbers.
Result<std::uint64_t> ram_beside_card(std::uint64_t ram, bool integrated, std::uint64_t vram);

}  // namespace terrace::kernels
