#include "kernels/card/open_cards.h"

#include <fmt/core.h>

#include <utility>

namespace terrace::kernels {
namespace {

// A program without a card is one without --gpu, or with fewer numbers there.
Error no_card_error(const CardOrder& order, bool alone, const Error& why) {
  if (why.code() != ErrorCode::kUnsupported) return why;
  if (alone) return Error(why.code(), why.text() + "; leave out --gpu to compute on the CPU");
  return Error(why.code(), fmt::format("--gpu {}: {}; leave out this number, or --gpu to compute on the CPU",
                                       order.index, why.text()));
}

// Where it goes on.
std::string missing_text(const CardOrder& order, bool alone, const Error& why) {
  return fmt::format("--gpu {}: {}; {} (--gpu-optional)", order.index, why.text(),
                     alone ? "the CPU computes" : "the rest computes");
}

}  // namespace

std::uint64_t OpenedCards::host_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& card : cards)
    if (card->facts().integrated) bytes += card->facts().budget_bytes;
  return bytes;
}

Result<OpenedCards> open_cards(const CardRequest& request, OpenCard open) {
  TERRACE_ASSIGN_OR_RETURN(const std::vector<CardOrder> orders, read_orders(request));
  OpenedCards opened;
  const bool alone = orders.size() == 1;
  for (const CardOrder& order : orders) {
    auto card = open(order.index, order.budget_bytes);
    if (card.ok())
      opened.cards.push_back(std::move(*card));
    else if (request.optional && card.error().code() == ErrorCode::kUnsupported)
      opened.missing.push_back(missing_text(order, alone, card.error()));
    else
      return no_card_error(order, alone, card.error());
  }
  return opened;
}

}  // namespace terrace::kernels
