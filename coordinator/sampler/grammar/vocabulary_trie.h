// A vocabulary laid out for one question: which tokens may follow, when a grammar says which bytes may?
//
// Tokens stand in tries, in the order in which a depth-first walk visits them, each node with the index that follows
// its subtree: a byte that may not follow skips all tokens below it by one assignment. Tokens of similar length share a
// trie, since how far a walk can look ahead decides how long its result stays valid (grammar_state.cpp). Threads:
// immutable once made; one per tokenizer, shared by all streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.h"

namespace terrace::sampler {

class VocabularyTrie {
 public:
  static constexpr std::int32_t kNoToken = -1;
  // A token longer than this is never allowed: none of a real vocabulary is.
  static constexpr std::size_t kMaxTokenBytes = 1024;

  //   token_bytes  [vocab_size] what each token adds to the text, whole characters or not. Empty: a grammar never
  //   allows
  //                the token. Control tokens must be given so: text::Tokenizer::bytes(id, {.special = false})
  //   end_tokens   ids that end a generation (text::Tokenizer::stop_ids()): allowed where a grammar may end, whatever
  //                their bytes are, and nowhere else
  // Nothing is kept of the arguments. kInvalidArgument: no token, 2^24 bytes of tokens or more, an id out of range.
  static Result<VocabularyTrie> make(std::span<const std::string_view> token_bytes,
                                     std::span<const std::int32_t> end_tokens);

  std::size_t vocab_size() const { return begin_.size() - 1; }
  // Words of a mask: one bit a token, bit id % 64 of word id / 64.
  std::size_t mask_words() const { return (vocab_size() + 63) / 64; }
  std::span<const std::int32_t> end_tokens() const { return end_tokens_; }
  bool is_end_token(std::int32_t id) const;
  // What a token adds to the text; empty for those that are never allowed, and for end tokens. `id` must be in range.
  std::string_view bytes(std::int32_t id) const;

  struct Node {
    std::uint32_t byte : 8;  // the last byte of the node's prefix
    std::uint32_t end : 24;  // index of the node after this one's subtree
    std::int32_t token;      // the token with just this prefix, or kNoToken
  };
  // The tokens up to one length. nodes in depth-first order; the root has no node.
  struct Part {
    std::size_t max_bytes = 0;  // the longest token in it
    std::vector<Node> nodes;
  };
  std::span<const Part> parts() const { return parts_; }
  // Pairs {token in a trie, another one with the same bytes}: what holds for the first holds for the second.
  std::span<const std::pair<std::int32_t, std::int32_t>> duplicates() const { return duplicates_; }

 private:
  VocabularyTrie() = default;
  void build_parts();
  std::vector<Part> parts_;
  std::vector<std::pair<std::int32_t, std::int32_t>> duplicates_;
  std::vector<std::int32_t> end_tokens_;  // rising
  std::string all_bytes_;                 // of all tokens, one after the other
  std::vector<std::uint32_t> begin_;      // [vocab_size + 1] offsets into all_bytes_
};

}  // namespace terrace::sampler
