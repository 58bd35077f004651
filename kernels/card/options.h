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
  std::optional<Bytes> vram;         // of it; empty: nine tenths of what is free
};

void add_card_options(OptionTable& table, CardRequest* request);
// kInvalidArgument: memory of no card.
Status check(const CardRequest& request);

}  // namespace terrace::kernels
