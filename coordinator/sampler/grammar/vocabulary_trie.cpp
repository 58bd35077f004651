#include "coordinator/sampler/grammar/vocabulary_trie.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace terrace::sampler {
namespace {

// The lengths up to which tokens share a trie. What is longer than the first two is a fiftieth of a usual vocabulary.
constexpr std::array<std::size_t, 3> kPartBytes = {8, 16, VocabularyTrie::kMaxTokenBytes};
constexpr std::size_t kMaxNodes = (std::size_t{1} << 24) - 1;  // Node::end has 24 bits

using Entry = std::pair<std::string_view, std::int32_t>;

// `entries` sorted, texts distinct.
VocabularyTrie::Part make_part(const std::vector<Entry>& entries) {
  VocabularyTrie::Part part;
  std::vector<std::uint32_t> path;  // nodes of the text before, by depth
  std::string_view before;
  const auto close = [&](std::size_t depth) {
    for (; path.size() > depth; path.pop_back())
      part.nodes[path.back()].end = static_cast<std::uint32_t>(part.nodes.size()) & kMaxNodes;
  };
  for (const auto& [text, id] : entries) {
    close(static_cast<std::size_t>(std::ranges::mismatch(before, text).in2 - text.begin()));
    for (std::size_t i = path.size(); i < text.size(); ++i) {
      path.push_back(static_cast<std::uint32_t>(part.nodes.size()));
      part.nodes.push_back({static_cast<std::uint8_t>(text[i]), 0, VocabularyTrie::kNoToken});
    }
    part.nodes[path.back()].token = id;
    part.max_bytes = std::max(part.max_bytes, text.size());
    before = text;
  }
  close(0);
  return part;
}

}  // namespace

Result<VocabularyTrie> VocabularyTrie::make(std::span<const std::string_view> token_bytes,
                                            std::span<const std::int32_t> end_tokens) {
  std::size_t n_bytes = 0;
  for (const std::string_view text : token_bytes) n_bytes += text.size();
  if (token_bytes.empty() || n_bytes > kMaxNodes)
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("a vocabulary of {} tokens with {} bytes cannot be constrained; allowed are 1 token or more "
                    "and {} bytes",
                    token_bytes.size(), n_bytes, kMaxNodes));
  for (const std::int32_t id : end_tokens)
    if (id < 0 || static_cast<std::size_t>(id) >= token_bytes.size())
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("end token {} is beyond the vocabulary of {} tokens", id, token_bytes.size()));

  VocabularyTrie trie;
  trie.end_tokens_.assign(end_tokens.begin(), end_tokens.end());
  auto& ends = trie.end_tokens_;
  std::ranges::sort(ends);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());

  trie.all_bytes_.reserve(n_bytes);
  trie.begin_.reserve(token_bytes.size() + 1);
  trie.begin_.push_back(0);
  for (std::size_t id = 0; id < token_bytes.size(); ++id) {
    if (token_bytes[id].size() <= kMaxTokenBytes && !trie.is_end_token(static_cast<std::int32_t>(id)))
      trie.all_bytes_ += token_bytes[id];
    trie.begin_.push_back(static_cast<std::uint32_t>(trie.all_bytes_.size()));
  }
  trie.build_parts();
  return trie;
}

void VocabularyTrie::build_parts() {
  std::array<std::vector<Entry>, kPartBytes.size()> entries;
  for (std::size_t id = 0; id < vocab_size(); ++id) {
    const std::string_view text = bytes(static_cast<std::int32_t>(id));
    if (text.empty()) continue;
    const auto part = std::ranges::lower_bound(kPartBytes, text.size()) - kPartBytes.begin();
    entries[static_cast<std::size_t>(part)].emplace_back(text, static_cast<std::int32_t>(id));
  }
  for (std::vector<Entry>& part : entries) {
    std::ranges::sort(part);
    std::vector<Entry> distinct;
    for (const Entry& entry : part) {
      if (!distinct.empty() && distinct.back().first == entry.first)
        duplicates_.emplace_back(distinct.back().second, entry.second);
      else
        distinct.push_back(entry);
    }
    if (!distinct.empty()) parts_.push_back(make_part(distinct));
  }
}

bool VocabularyTrie::is_end_token(std::int32_t id) const { return std::ranges::binary_search(end_tokens_, id); }

std::string_view VocabularyTrie::bytes(std::int32_t id) const {
  const auto index = static_cast<std::size_t>(id);
  return std::string_view(all_bytes_).substr(begin_[index], begin_[index + 1] - begin_[index]);
}

}  // namespace terrace::sampler
