// Follows a grammar for some tokens, as sampling does, and checks what its header promises.
#pragma once

#include <array>
#include <bit>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/check.h"
#include "common/base/function_ref.h"
#include "coordinator/sampler/grammar/grammar.h"

namespace terrace::fuzz {

// Every byte as a token, some longer ones, and token 0, which ends a text.
inline std::shared_ptr<const sampler::VocabularyTrie> byte_vocabulary() {
  static const auto trie = [] {
    std::array<char, 256> bytes;
    std::vector<std::string_view> tokens = {""};
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<char>(i);
      tokens.emplace_back(&bytes[i], 1);
    }
    for (const char* longer :
         {"ab", "\",\"", "\"}", "{\"", "\xc3\xa9", "\xe2\x82", "0123456789", "aaaaaaaaaaaaaaaaaaaa"})
      tokens.emplace_back(longer);
    const std::array<std::int32_t, 1> ends = {0};
    return std::make_shared<const sampler::VocabularyTrie>(sampler::VocabularyTrie::make(tokens, ends).value());
  }();
  return trie;
}

// Takes up to `n_tokens` tokens, chosen by `choice`; `on_end(text)` wherever the text may end. A limit that is passed
// on the way ends the walk.
inline void follow_grammar(const std::shared_ptr<const sampler::Grammar>& grammar, std::uint64_t choice, int n_tokens,
                           FunctionRef<void(const std::string&)> on_end) {
  const auto trie = byte_vocabulary();
  sampler::GrammarState state(grammar, trie);
  std::string text;
  for (int n = 0; n < n_tokens; ++n) {
    if (state.may_end()) on_end(text);
    const auto mask = state.allowed_tokens();
    if (!mask.ok()) {
      TERRACE_CHECK(mask.error().code() == ErrorCode::kOutOfMemory, mask.error().text().c_str());
      return;
    }
    TERRACE_CHECK(((*mask)[0] & 1) == (state.may_end() ? 1 : 0), "an end token is allowed just where the text may end");
    std::vector<std::int32_t> allowed;
    for (std::size_t word = 0; word < mask->size(); ++word)
      for (std::uint64_t bits = (*mask)[word]; bits != 0; bits &= bits - 1)
        allowed.push_back(static_cast<std::int32_t>(word * 64) + std::countr_zero(bits));
    if (allowed.empty()) return;
    choice = choice * 6364136223846793005u + 1442695040888963407u;
    const std::int32_t token = allowed[(choice >> 33) % allowed.size()];
    const Status accepted = state.accept(token);
    if (!accepted.ok()) {
      TERRACE_CHECK(accepted.error().code() == ErrorCode::kOutOfMemory, "a token of the mask is refused");
      return;
    }
    if (state.ended()) return;
    text += trie->bytes(token);
  }
}

}  // namespace terrace::fuzz
