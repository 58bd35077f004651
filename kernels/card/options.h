// --gpu, --gpu-optional and --vram, the same in every program that computes experts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/options.h"
#include "common/base/result.h"
#include "common/base/units.h"

namespace terrace::kernels {

struct CardRequest {
  std::vector<std::string> gpu;   // numbers of cards, also several in one text: "0,1"; empty: no card
  std::vector<std::string> vram;  // sizes, of each; one: of all; empty: nine tenths of what is free, half where it is
                                  // the host's memory
  bool optional = false;          // what computes without a card that cannot be used is the rest

  bool any() const { return !gpu.empty(); }
};

// A card that is asked for.
struct CardOrder {
  std::uint32_t index = 0;                    // as the driver counts
  std::optional<std::uint64_t> budget_bytes;  // of its memory; empty: as above
};

// most: a coordinator takes several cards, a node one (tier_node/app/card.h refuses more, and says what to do).
enum class MostCards : std::uint8_t { kOne, kSeveral };
void add_card_options(OptionTable& table, CardRequest* request, MostCards most);
// The cards in the order of --gpu. kInvalidArgument: what is no number or no size, a card that is named twice, memory
// of no card or for another number of cards, or no card that could be missing.
Result<std::vector<CardOrder>> read_orders(const CardRequest& request);
// What of `ram`, a budget for this machine's memory, cards leave: all of it, or where a card's memory is the host's
// what their budgets leave, `vram` bytes together. kOutOfMemory: nothing; the text has both numbers.
Result<std::uint64_t> ram_beside_cards(std::uint64_t ram, std::uint64_t vram);

}  // namespace terrace::kernels
