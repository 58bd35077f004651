#include "tier_node/session/epoch.h"

#include <fmt/core.h>

#include <algorithm>

namespace terrace::node {

Epoch::Epoch(std::uint64_t number, std::uint32_t n_layers, std::uint32_t n_experts, const std::vector<ShareItem>& items,
             std::vector<arena::SlabRef> slabs, bool new_slabs)
    : number_(number),
      n_experts_(n_experts),
      new_slabs_(new_slabs),
      table_(static_cast<std::size_t>(n_layers) * n_experts),
      slabs_(std::move(slabs)) {
  for (std::size_t i = 0; i < items.size(); ++i)
    table_[static_cast<std::size_t>(items[i].layer) * n_experts + items[i].expert] = {
        slabs_[i]->gate(), slabs_[i]->up(), slabs_[i]->down()};
}

std::string EpochBook::held() const {
  if (live_.empty()) return "holds none";
  std::string text;
  for (const EpochRef& epoch : live_) text += fmt::format("{}{}", text.empty() ? "holds " : ", ", epoch->number());
  return text;
}

Result<EpochRef> EpochBook::find(std::uint64_t number) const {
  for (const EpochRef& epoch : live_)
    if (epoch->number() == number) return epoch;
  return Error(ErrorCode::kStaleEpoch,
               fmt::format("epoch {} is {}; this node {}", number,
                           number <= announced_ && number > 0 ? "forgotten or not ready yet" : "unknown", held()));
}

Status EpochBook::announce(std::uint64_t number, bool new_slabs) {
  if (number <= announced_)
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("epoch {} does not follow epoch {}; epochs rise within a session, from 1", number, announced_));
  const auto with_new =
      std::count_if(live_.begin(), live_.end(), [](const EpochRef& epoch) { return epoch->brought_new_slabs(); });
  if (new_slabs && static_cast<std::size_t>(with_new) >= kMaxWithNewSlabs)
    return Error(ErrorCode::kBusy, fmt::format("epoch {} brings new slabs, but this node already {}, {} of which "
                                               "brought slabs; forget the oldest first",
                                               number, held(), with_new));
  announced_ = number;
  return {};
}

void EpochBook::add(EpochRef epoch) {
  const auto after = std::find_if(live_.begin(), live_.end(),
                                  [&](const EpochRef& other) { return other->number() > epoch->number(); });
  live_.insert(after, std::move(epoch));
}

Status EpochBook::forget(std::uint64_t number) {
  TERRACE_ASSIGN_OR_RETURN(const EpochRef epoch, find(number));
  live_.erase(std::find(live_.begin(), live_.end(), epoch));
  return {};
}

EpochRef EpochBook::newest() const { return live_.empty() ? nullptr : live_.back(); }

}  // namespace terrace::node
