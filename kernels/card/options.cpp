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
      .default_text("nine tenths of what is free there at start; half where it is the host's memory");
}

Status check(const CardRequest& request) {
  if (request.optional && !request.gpu)
    return Error(ErrorCode::kInvalidArgument, "--gpu-optional speaks of a card; say which one: --gpu 0");
  if (!request.vram || request.gpu) return {};
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("--vram {} is memory of a card; say which one: --gpu 0", format_size_exact(*request.vram)));
}

Result<std::uint64_t> ram_beside_card(std::uint64_t ram, bool integrated, std::uint64_t vram) {
  if (!integrated) return ram;
  if (vram < ram) return ram - vram;
  return Error(
      ErrorCode::kOutOfMemory,
      fmt::format("the card's memory is this machine's: --ram {} is for both, and the card takes {} of it; give "
                  "more --ram or less --vram",
                  format_size(ram), format_size(vram)));
}

bool goes_on_without(const CardRequest& request, const Error& why) {
  return request.optional && why.code() == ErrorCode::kUnsupported;
}

Error no_card_error(const Error& why) {
  if (why.code() != ErrorCode::kUnsupported) return why;
  return Error(why.code(), why.text() + "; leave out --gpu to compute on the CPU");
}

std::string without_card_text(const CardRequest& request, const Error& why) {
  return fmt::format("--gpu {}: {}; the CPU computes (--gpu-optional)", request.gpu.value_or(0), why.text());
}

}  // namespace terrace::kernels
