#include "coordinator/sampler/grammar/token_masks.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace terrace::sampler::grammar {
namespace {

constexpr SetId kNoSet = ~SetId{0};
// With more stacks than so many, one walk with all of them is cheaper than one for each.
constexpr std::size_t kMaxGroups = 8;

void add_token(std::span<std::uint64_t> mask, std::int32_t token) {
  const auto id = static_cast<std::size_t>(token);
  mask[id / 64] |= std::uint64_t{1} << id % 64;
}

bool has_token(std::span<const std::uint64_t> mask, std::int32_t token) {
  const auto id = static_cast<std::size_t>(token);
  return (mask[id / 64] >> id % 64 & 1) != 0;
}

bool same_stack(const StateSets::Place& a, const StateSets::Place& b) { return a.stack == b.stack; }

std::size_t count_stacks(std::span<const StateSets::Place> places) {
  std::size_t n = places.empty() ? 0 : 1;
  for (std::size_t i = 1; i < places.size(); ++i) n += same_stack(places[i - 1], places[i]) ? 0 : 1;
  return n;
}

}  // namespace

TokenMasks::TokenMasks(const VocabularyTrie& vocabulary, StateSets& sets)
    : vocabulary_(vocabulary),
      sets_(sets),
      mask_(vocabulary.mask_words()),
      mask_of_(kNoSet),
      scratch_(vocabulary.mask_words()) {}

std::span<std::uint64_t> TokenMasks::find(SetId set) {
  if (set == mask_of_) return mask_;
  mask_of_ = kNoSet;
  std::ranges::fill(mask_, 0);
  const auto found = sets_.places(set);
  places_.assign(found.begin(), found.end());  // walking finds new sets, which moves the old ones
  if (count_stacks(places_) > kMaxGroups) {
    for (const Part& part : vocabulary_.parts())
      walk(part, 0, static_cast<std::uint32_t>(part.nodes.size()), set, mask_, nullptr);
  } else {
    for (auto begin = places_.begin(); begin != places_.end();) {
      const auto end = std::find_if_not(begin, places_.end(), [&](const auto& p) { return same_stack(p, *begin); });
      add_group({begin, end}, mask_);
      begin = end;
    }
  }
  for (const auto& [token, other] : vocabulary_.duplicates())
    if (has_token(mask_, token)) add_token(mask_, other);
  if (sets_.status().ok()) mask_of_ = set;
  return mask_;
}

// `places` have one stack.
void TokenMasks::add_group(std::span<const StateSets::Place> places, Mask mask) {
  const SetId returned = sets_.return_from(places.front().stack);
  for (std::size_t i = 0; i < vocabulary_.parts().size(); ++i) {
    const Part& part = vocabulary_.parts()[i];
    const Local& found = local(places, i);
    for (std::size_t word = 0; word < found.words.size(); ++word) mask[word] |= found.words[word];
    for (const std::int32_t token : found.tokens) add_token(mask, token);
    if (returned == StateSets::kDead) continue;
    for (const std::uint32_t node : found.leaves) walk(part, node + 1, part.nodes[node].end, returned, mask, nullptr);
  }
}

const TokenMasks::Local& TokenMasks::local(std::span<const StateSets::Place> places, std::size_t part) {
  const Part& trie = vocabulary_.parts()[part];
  clamped_.clear();
  for (const StateSets::Place& place : places)
    clamped_.push_back({StateSets::kUnknown, place.state, clamped_counter(place, trie.max_bytes)});
  const SetId set = sets_.set_of(clamped_);
  const std::uint64_t key = std::uint64_t{set} << 8 | part;
  const auto known = locals_.find(key);
  if (known != locals_.end()) return known->second;

  Local found = walk_local(set, trie);
  const std::size_t bytes =
      sizeof(Local) + found.words.size() * 8 + (found.tokens.size() + found.leaves.size()) * sizeof(std::uint32_t);
  if (locals_bytes_ + bytes > kMaxBytes) {
    locals_.clear();
    locals_bytes_ = 0;
  }
  locals_bytes_ += bytes;
  return locals_.emplace(key, std::move(found)).first->second;
}

TokenMasks::Local TokenMasks::walk_local(SetId set, const Part& part) {
  Local found;
  std::ranges::fill(scratch_, 0);
  walk(part, 0, static_cast<std::uint32_t>(part.nodes.size()), set, scratch_, &found.leaves);
  found.leaves.shrink_to_fit();
  std::size_t n = 0;
  for (const std::uint64_t word : scratch_) n += static_cast<std::size_t>(std::popcount(word));
  if (n * 2 > scratch_.size()) {
    found.words = scratch_;
    return found;
  }
  found.tokens.reserve(n);
  for (std::size_t word = 0; word < scratch_.size(); ++word)
    for (std::uint64_t bits = scratch_[word]; bits != 0; bits &= bits - 1)
      found.tokens.push_back(static_cast<std::int32_t>(word * 64) + std::countr_zero(bits));
  return found;
}

// Adds the tokens of nodes [begin, end), which are whole subtrees, whose last bytes may follow in `set`.
void TokenMasks::walk(const Part& part, std::uint32_t begin, std::uint32_t end, SetId set, Mask mask,
                      std::vector<std::uint32_t>* leaves) {
  levels_.assign(1, {set, end});
  const VocabularyTrie::Node* const nodes = part.nodes.data();
  for (std::uint32_t i = begin; i < end;) {
    while (levels_.back().end <= i) levels_.pop_back();
    const VocabularyTrie::Node node = nodes[i];
    const SetId next = sets_.step(levels_.back().set, static_cast<std::uint8_t>(node.byte));
    if (next == StateSets::kDead) {
      i = node.end;
      continue;
    }
    if (node.token != VocabularyTrie::kNoToken) add_token(mask, node.token);
    ++i;
    if (node.end == i) continue;
    levels_.push_back({next, node.end});
    if (leaves != nullptr && sets_.leaves_unknown(next)) leaves->push_back(i - 1);
  }
}

// A token of n bytes ends at most n rounds of a loop, so it cannot tell counters apart that are further from where
// something changes: from max, where no round may begin, and from min, where the loop may be left.
std::uint32_t TokenMasks::clamped_counter(const StateSets::Place& place, std::size_t max_bytes) const {
  const std::uint32_t index = sets_.automaton().loop_of(place.state);
  if (index == kNoLoop) return place.counter;
  const Loop& loop = sets_.automaton().loop(index);
  if (loop.max != kUnlimited && loop.max - place.counter <= max_bytes) return place.counter;
  if (place.counter >= loop.min) return loop.min;
  return loop.min - place.counter > max_bytes ? 0 : place.counter;
}

}  // namespace terrace::sampler::grammar
