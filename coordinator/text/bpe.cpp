#include "coordinator/text/bpe.h"

#include <algorithm>
#include <limits>

namespace terrace::text {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

constexpr auto later = [](const auto& a, const auto& b) { return a.order > b.order; };

}  // namespace

void Bpe::add_merge(std::int32_t left, std::int32_t right, std::int32_t result) {
  merges_.try_emplace(pair_of(left, right), Merge{next_rank_++, result});
}

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  auto& symbols = scratch.symbols_;
  auto& heap = scratch.heap_;
  symbols.clear();
  heap.clear();
  for (const char c : piece) {
    const std::int32_t id = byte_ids_[static_cast<std::uint8_t>(c)];
    if (id == kNoToken) continue;
    const auto at = static_cast<std::uint32_t>(symbols.size());
    if (at > 0) symbols.back().next = at;
    symbols.push_back({id, at > 0 ? at - 1 : kNone, kNone});
  }
  if (symbols.empty()) return;

  for (std::uint32_t left = 0; left + 1 < symbols.size(); ++left) consider(left, scratch);
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, later);
    const Scratch::Candidate candidate = heap.back();
    heap.pop_back();
    merge(candidate, scratch);
  }
  for (std::uint32_t at = 0; at != kNone; at = symbols[at].next) ids.push_back(symbols[at].id);
}

// Puts the pair that begins at `left` on the heap, if there is a merge for it.
void Bpe::consider(std::uint32_t left, Scratch& scratch) const {
  const Scratch::Symbol& symbol = scratch.symbols_[left];
  const std::int32_t right_id = scratch.symbols_[symbol.next].id;
  const auto found = merges_.find(pair_of(symbol.id, right_id));
  if (found == merges_.end()) return;
  scratch.heap_.push_back({static_cast<std::uint64_t>(found->second.rank) << 32 | left, symbol.id, right_id});
  std::ranges::push_heap(scratch.heap_, later);
}

// Merges the candidate's pair, unless one of its symbols has changed since it was put on the heap.
void Bpe::merge(const Scratch::Candidate& candidate, Scratch& scratch) const {
  auto& symbols = scratch.symbols_;
  const auto at = static_cast<std::uint32_t>(candidate.order);
  Scratch::Symbol& left = symbols[at];
  if (left.id != candidate.left_id || left.next == kNone) return;
  Scratch::Symbol& right = symbols[left.next];
  if (right.id != candidate.right_id) return;

  left.id = merges_.find(pair_of(left.id, right.id))->second.result;
  left.next = right.next;
  right.id = kNoToken;
  if (left.next != kNone) {
    symbols[left.next].previous = at;
    consider(at, scratch);
  }
  if (left.previous != kNone) consider(left.previous, scratch);
}

}  // namespace terrace::text
