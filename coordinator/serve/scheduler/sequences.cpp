#include "coordinator/serve/scheduler/sequences.h"

#include <algorithm>
#include <utility>

namespace terrace::serve {

std::uint32_t common_prefix(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  return static_cast<std::uint32_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

RestingSequences::RestingSequences(arch::Trunk& trunk, std::uint64_t budget) : trunk_(trunk), budget_(budget) {}

const Sequence* RestingSequences::of_slot(std::uint32_t slot) const {
  const auto found = std::ranges::find(sequences_, slot, &Sequence::slot);
  return found == sequences_.end() ? nullptr : &*found;
}

void RestingSequences::add(Sequence sequence) {
  for (std::size_t i = sequences_.size(); i-- > 0;)
    if (common_prefix(sequences_[i].tokens, sequence.tokens) == sequences_[i].tokens.size()) forget(i);
  trunk_.cache().set_resting(sequence.stream, true);
  sequence.last_used = ++uses_;
  sequences_.push_back(std::move(sequence));
  while (trunk_.cache().bytes_resting() > budget_ && evict()) {
  }
}

void RestingSequences::leave_slot(std::uint32_t slot) {
  for (Sequence& sequence : sequences_)
    if (sequence.slot == slot) sequence.slot.reset();
}

void RestingSequences::forget_slot(std::uint32_t slot) {
  for (std::size_t i = sequences_.size(); i-- > 0;)
    if (sequences_[i].slot == slot) forget(i);
}

void RestingSequences::forget_since(std::uint64_t step) {
  for (std::size_t i = sequences_.size(); i-- > 0;) {
    const std::uint32_t certain = trunk_.forget_since(sequences_[i].stream, step);
    sequences_[i].tokens.resize(certain);
    if (certain == 0) forget(i);
  }
}

bool RestingSequences::evict() {
  if (sequences_.empty()) return false;
  forget(static_cast<std::size_t>(std::ranges::min_element(sequences_, {}, &Sequence::last_used) - sequences_.begin()));
  ++evictions_;
  return true;
}

std::optional<RestingSequences::Match> RestingSequences::find(std::span<const std::int32_t> tokens,
                                                              std::uint32_t most) const {
  std::optional<Match> best;
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    const std::uint32_t common = std::min(most, common_prefix(tokens, sequences_[i].tokens));
    if (common == 0 || (best && common < best->common)) continue;
    if (best && common == best->common && sequences_[i].last_used < sequences_[best->index].last_used) continue;
    best = {i, common};
  }
  return best;
}

void RestingSequences::touch(std::size_t index) { sequences_[index].last_used = ++uses_; }

void RestingSequences::forget(std::size_t index) {
  trunk_.close_stream(sequences_[index].stream);
  sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(index));
}

}  // namespace terrace::serve
