#include "tier_node/session/epoch.h"

#include <fmt/core.h>

#include <algorithm>

namespace terrace::node {

namespace {

constexpr std::size_t kMostNamed = 8;  // epochs in a text

}  // namespace

Epoch::Epoch(std::uint64_t number, std::vector<ShareItem> items, std::vector<arena::SlabRef> slabs, bool new_slabs)
    : number_(number), new_slabs_(new_slabs), items_(std::move(items)), slabs_(std::move(slabs)) {}

const arena::HeldSlab* Epoch::find(std::uint32_t layer, std::uint32_t expert) const {
  const ShareItem item{layer, expert};
  const auto found = std::lower_bound(items_.begin(), items_.end(), item);
  if (found == items_.end() || *found != item) return nullptr;
  return slabs_[static_cast<std::size_t>(found - items_.begin())].get();
}

kernels::SlabView Epoch::slab(std::uint32_t layer, std::uint32_t expert) const {
  const arena::HeldSlab* const slab = find(layer, expert);
  return slab == nullptr ? kernels::SlabView() : kernels::SlabView{slab->gate(), slab->up(), slab->down()};
}

bool Epoch::on_card(std::uint32_t layer, std::uint32_t expert) const {
  const arena::HeldSlab* const slab = find(layer, expert);
  return slab != nullptr && slab->on_card();
}

std::string EpochBook::held() const {
  if (live_.empty()) return "holds none";
  std::string text;
  for (std::size_t i = 0; i < std::min(live_.size(), kMostNamed); ++i)
    text += fmt::format("{}{}", text.empty() ? "holds " : ", ", live_[i]->number());
  if (live_.size() > kMostNamed) text += fmt::format(" and {} more", live_.size() - kMostNamed);
  return text;
}

EpochRef EpochBook::find_live(std::uint64_t number) const {
  const std::lock_guard lock(live_mutex_);
  for (const EpochRef& epoch : live_)
    if (epoch->number() == number) return epoch;
  return nullptr;
}

// What was live is dropped by the caller: with the last of it slabs may go.
void EpochBook::swap_live(std::vector<EpochRef>& next) {
  const std::lock_guard lock(live_mutex_);
  live_.swap(next);
}

Result<EpochRef> EpochBook::find(std::uint64_t number) const {
  for (const EpochRef& epoch : live_)
    if (epoch->number() == number) return epoch;
  return Error(ErrorCode::kStaleEpoch,
               fmt::format("epoch {} is {}; this node {}", number,
                           number <= announced_ && number > 0 ? "forgotten or not ready yet" : "unknown", held()));
}

Status EpochBook::check_room(std::uint64_t number, std::size_t n_items) const {
  if (live_.size() >= kMaxLive)
    return Error(ErrorCode::kBusy, fmt::format("epoch {} would be one more than the {} that may be live; this node {}; "
                                               "forget the oldest first",
                                               number, kMaxLive, held()));
  std::uint64_t items = n_items;
  for (const EpochRef& epoch : live_) items += epoch->n_slabs();
  if (items <= max_items_) return {};
  return Error(ErrorCode::kBusy, fmt::format("epoch {} and those live would have {} experts, {} is the most for this "
                                             "model; this node {}; forget the oldest first",
                                             number, items, max_items_, held()));
}

Status EpochBook::announce(std::uint64_t number, std::size_t n_items, bool new_slabs) {
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
  TERRACE_RETURN_IF_ERROR(check_room(number, n_items));
  announced_ = number;
  return {};
}

void EpochBook::add(EpochRef epoch) {
  std::vector<EpochRef> next = live_;
  const auto after =
      std::find_if(next.begin(), next.end(), [&](const EpochRef& other) { return other->number() > epoch->number(); });
  next.insert(after, std::move(epoch));
  swap_live(next);
}

Result<EpochRef> EpochBook::forget(std::uint64_t number) {
  TERRACE_ASSIGN_OR_RETURN(EpochRef epoch, find(number));
  std::vector<EpochRef> next = live_;
  next.erase(std::find(next.begin(), next.end(), epoch));
  swap_live(next);
  return epoch;
}

EpochRef EpochBook::newest() const { return live_.empty() ? nullptr : live_.back(); }

}  // namespace terrace::node
