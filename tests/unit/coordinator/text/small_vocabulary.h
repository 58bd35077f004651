// A vocabulary small enough to read: the 256 bytes, a few merges, special tokens.
#pragma once

#include <string>

#include "coordinator/text/byte_alphabet.h"
#include "coordinator/text/vocabulary.h"

namespace terrace::text::test {

// Ids 0..255 are the bytes; then "he" 256, "ll" 257, "hell" 258, "hello" 259; then <|end|> 260 (control),
// <|endoftext|> 261 (control), <tool> 262 (user-defined), <unk> 263 (unknown).
inline Vocabulary small_vocabulary() {
  Vocabulary v;
  v.model = "gpt2";
  v.pre = "gpt-2";
  for (unsigned byte = 0; byte < 256; ++byte) v.tokens.push_back(alphabet_character(static_cast<std::uint8_t>(byte)));
  for (const char* text : {"he", "ll", "hell", "hello"}) v.tokens.emplace_back(text);
  v.merges = {"h e", "l l", "he ll", "hell o"};
  v.types.assign(v.tokens.size(), 1);
  for (const char* text : {"<|end|>", "<|endoftext|>", "<tool>", "<unk>"}) v.tokens.emplace_back(text);
  v.types.insert(v.types.end(), {3, 3, 4, 2});
  return v;
}

}  // namespace terrace::text::test
