// Token ids to text as they come, never half a character.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "coordinator/text/tokenizer.h"

namespace terrace::text {

// What push() and flush() give, joined, is the decoded text with U+FFFD for each maximal ill-formed subpart: always
// UTF-8, and the same however long the stream was held. Room for any token is set aside at the start: no call
// allocates. Threads: one stream, one thread.
class StreamDecoder {
 public:
  // `tokenizer` is borrowed as long as the decoder lives.
  StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options);

  // The most bytes that one call gives.
  std::size_t longest_piece() const { return shown_.capacity(); }

  // The text that `id` completes; empty while a character is unfinished. Valid until the next call or the decoder's
  // end. `id` must be a token.
  std::string_view push(std::int32_t id);
  // Ends the stream: U+FFFD if a character is unfinished. The decoder may then begin another stream.
  std::string_view flush();

 private:
  const Tokenizer* tokenizer_;
  DecodeOptions options_;
  std::string held_;   // a cut character, at most 3 bytes between calls
  std::string shown_;  // what the last call gave
};

}  // namespace terrace::text
