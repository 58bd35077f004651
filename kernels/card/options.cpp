#include "kernels/card/options.h"

#include <fmt/core.h>

#include "common/base/program_options.h"

namespace terrace::kernels {

void add_card_options(OptionTable& table, CardRequest* request) {
  table.add("gpu", &request->gpu, "hold weights on this NVIDIA card, and compute with them there: 0, 1, ...")
      .range(0, 255)
      .default_text("none");
  table.add("gpu-optional", &request->optional, "without a card that can be used there, say so and compute on the CPU");
  table.add("vram", &request->vram, "memory to take of that card: weights, and a quarter, 256M at most, to compute in")
      .value_name("SIZE")
      .range(kLeastVram, kMostRam)
      .default_text("nine tenths of what is free there at start");
}

Status check(const CardRequest& request) {
  if (request.optional && !request.gpu)
    return Error(ErrorCode::kInvalidArgument, "--gpu-optional speaks of a card; say which one: --gpu 0");
  if (!request.vram || request.gpu) return {};
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("--vram {} is memory of a card; say which one: --gpu 0", format_size_exact(*request.vram)));
}

bool goes_on_without(const CardRequest& request, const Error& why) {
  return request.optional && why.code() == ErrorCode::kUnsupported;
}

std::string without_card_text(const CardRequest& request, const Error& why) {
  return fmt::format("--gpu {}: {}; the CPU computes (--gpu-optional)", request.gpu.value_or(0), why.text());
}

}  // namespace terrace::kernels
