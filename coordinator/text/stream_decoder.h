// Token ids to text as they come, never half a character.
#pragma once

#include <cstdint>
#include <string>

#include "coordinator/text/tokenizer.h"

namespace terrace::text {

// What push() and flush() give, joined, is the decoded text with U+FFFD for each maximal ill-formed subpart: always
// UTF-8, and the same however long the stream was held. Threads: one stream, one thread.
class StreamDecoder {
 public:
  // `tokenizer` is borrowed as long as the decoder lives.
  StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options) : tokenizer_(&tokenizer), options_(options) {}

  // The text that `id` completes; empty while a character is unfinished. `id` must be a token.
  std::string push(std::int32_t id);
  // Ends the stream: U+FFFD if a character is unfinished. The decoder may then begin another stream.
  std::string flush();

 private:
  const Tokenizer* tokenizer_;
  DecodeOptions options_;
  std::string held_;  // a cut character, at most 3 bytes between calls
};

}  // namespace terrace::text
