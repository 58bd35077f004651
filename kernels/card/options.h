// --gpu, --gpu-optional and --vram, the same in every program that computes experts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/options.h"
#include "common/base/result.h"
#include "common/base/units.h"

namespace terrace::kernels {

struct CardRequest {
  std::optional<std::uint32_t> gpu;  // empty: no card
  std::optional<Bytes> vram;         // of it; empty: nine tenths of what is free, half where it is the host's memory
  bool optional = false;             // without a card that can be used the CPU computes
};

void add_card_options(OptionTable& table, CardRequest* request);
// kInvalidArgument: memory of no card, or no card that could be missing.
Status check(const CardRequest& request);
// Whether a program goes on without the card that could not be opened: it was asked to, and this machine has no card,
// no driver, or one that this build has no kernels for. A card that is too small or whose number is wrong is an error.
bool goes_on_without(const CardRequest& request, const Error& why);
// Otherwise the error with what to do about it: a program without a card is one without --gpu.
Error no_card_error(const Error& why);
// The line to tell where it goes on.
std::string without_card_text(const CardRequest& request, const Error& why);

// What of `ram`, a budget for this machine's memory, a card leaves: all of it, or where the card's memory is the
// host's (`integrated`) what its `vram` bytes leave. kOutOfMemory: nothing; the text has both numbers.
Result<std::uint64_t> ram_beside_card(std::uint64_t ram, bool integrated, std::uint64_t vram);

}  // namespace terrace::kernels
