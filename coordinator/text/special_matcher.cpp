#include "coordinator/text/special_matcher.h"

#include <algorithm>

namespace terrace::text {
namespace {

unsigned byte_at(const SpecialMatcher::Entry& entry, std::size_t i) {
  return static_cast<unsigned char>(entry.first[i]);
}

}  // namespace

SpecialMatcher::SpecialMatcher(std::vector<Entry> entries) : entries_(std::move(entries)) {
  std::ranges::sort(entries_);
  for (const Entry& entry : entries_) {
    if (first_characters_.empty() || first_characters_.back() != entry.first[0]) first_characters_ += entry.first[0];
  }
}

std::optional<SpecialMatcher::Match> SpecialMatcher::find(std::string_view text, std::size_t from) const {
  if (entries_.empty()) return std::nullopt;
  while ((from = text.find_first_of(first_characters_, from)) != std::string_view::npos) {
    if (const auto match = match_at(text, from)) return match;
    ++from;
  }
  return std::nullopt;
}

// Narrows the sorted entries to those that agree with the text byte by byte, remembering the last whole one.
std::optional<SpecialMatcher::Match> SpecialMatcher::match_at(std::string_view text, std::size_t begin) const {
  std::optional<Match> longest;
  auto low = entries_.begin();
  auto high = entries_.end();
  for (std::size_t depth = 0; begin + depth < text.size(); ++depth) {
    const unsigned wanted = static_cast<unsigned char>(text[begin + depth]);
    low = std::lower_bound(low, high, wanted, [depth](const Entry& entry, unsigned byte) {
      return entry.first.size() <= depth || byte_at(entry, depth) < byte;
    });
    high = std::upper_bound(low, high, wanted,
                            [depth](unsigned byte, const Entry& entry) { return byte < byte_at(entry, depth); });
    if (low == high) break;
    if (low->first.size() == depth + 1) longest = Match{begin, depth + 1, low->second};
  }
  return longest;
}

}  // namespace terrace::text
