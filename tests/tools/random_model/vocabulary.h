// A byte-level BPE vocabulary of any size: the 256 bytes, then words made up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace terrace::tools {

inline constexpr std::uint32_t kByteTokens = 256;

struct Vocabulary {
  std::vector<std::string> tokens;  // token b < 256 is byte b
  std::vector<std::string> merges;  // "left right"; merge i makes token 256 + i
};

// n_tokens >= kByteTokens. The words are all strings of letters by length, each a shorter word and a letter, the first
// letter perhaps a space; so none is a token that ends generation, which all hold a character that is no letter.
Vocabulary make_vocabulary(std::uint32_t n_tokens);

}  // namespace terrace::tools
