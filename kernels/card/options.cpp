#include "kernels/card/options.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "common/base/program_options.h"
#include "common/base/split_list.h"

namespace terrace::kernels {
namespace {

constexpr OptionRange kCardNumbers{0, 255};
constexpr OptionRange kVramSizes{kLeastVram, kMostRam};

// Of "0,1" and "2": 0, 1, 2.
template <class T>
Result<std::vector<T>> read_list(std::string_view flag, const std::vector<std::string>& texts, OptionRange range) {
  std::vector<T> values;
  for (const std::string& text : texts) {
    for (const std::string_view item : split_list(text)) {
      T value{};
      const Status set = set_target(&value, range, {std::string(item)});
      if (!set.ok()) return Error(set.error().code(), fmt::format("{}: {}", flag, set.error().text()));
      values.push_back(value);
    }
  }
  return values;
}

Error usage(std::string text) { return Error(ErrorCode::kInvalidArgument, std::move(text)); }

}  // namespace

void add_card_options(OptionTable& table, CardRequest* request, MostCards most) {
  const bool one = most == MostCards::kOne;
  table
      .add(
          "gpu", &request->gpu,
          one ? "hold weights on this NVIDIA card, and compute with them there; one card a node"
              : "hold weights on these NVIDIA cards, and compute with them there: 0, or 0,1; the trunk is on the first")
      .value_name("N,...")
      .default_text("none");
  table.add("gpu-optional", &request->optional,
            "without a card that can be used there, say so and compute on the rest");
  table
      .add("vram", &request->vram,
           one ? "memory to take of the card: weights, and a quarter, 256M at most, to compute in"
               : "memory to take of each card, one size or one for each: weights, and a quarter, 256M at most, to "
                 "compute in")
      .value_name("SIZE,...")
      .default_text("nine tenths of what is free there at start; half where it is the host's memory");
}

Result<std::vector<CardOrder>> read_orders(const CardRequest& request) {
  TERRACE_ASSIGN_OR_RETURN(const auto cards, read_list<std::uint32_t>("--gpu", request.gpu, kCardNumbers));
  TERRACE_ASSIGN_OR_RETURN(const auto sizes, read_list<Bytes>("--vram", request.vram, kVramSizes));
  if (cards.empty() && request.optional) return usage("--gpu-optional speaks of a card; say which one: --gpu 0");
  if (cards.empty() && !sizes.empty())
    return usage(
        fmt::format("--vram {} is memory of a card; say which one: --gpu 0", format_size_exact(sizes.front())));
  if (sizes.size() > 1 && sizes.size() != cards.size())
    return usage(fmt::format("--vram has {} sizes and --gpu {} card{}; give one size for each card, or one for all",
                             sizes.size(), cards.size(), cards.size() == 1 ? "" : "s"));
  std::vector<CardOrder> orders;
  for (std::size_t i = 0; i < cards.size(); ++i) {
    if (std::ranges::count(cards, cards[i]) > 1) return usage(fmt::format("--gpu: card {} is named twice", cards[i]));
    CardOrder order{cards[i], {}};
    if (!sizes.empty()) order.budget_bytes = sizes[sizes.size() == 1 ? 0 : i].value;
    orders.push_back(order);
  }
  return orders;
}

Result<std::uint64_t> ram_beside_cards(std::uint64_t ram, std::uint64_t vram) {
  if (vram < ram) return ram - vram;
  return Error(
      ErrorCode::kOutOfMemory,
      fmt::format("the card's memory is this machine's: --ram {} is for both, and the card takes {} of it; give "
                  "more --ram or less --vram",
                  format_size(ram), format_size(vram)));
}

}  // namespace terrace::kernels
