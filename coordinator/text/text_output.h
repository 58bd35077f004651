// A reply's tokens as text that is certain: whole characters, and nothing that may belong to a stop string.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "coordinator/text/stop_matcher.h"
#include "coordinator/text/stream_decoder.h"

namespace terrace::text {

// push() allocates nothing. Threads: one stream, one thread.
class TextOutput {
 public:
  // `tokenizer` is borrowed as long as the output lives. Errors as StopMatcher::make().
  static Result<TextOutput> make(const Tokenizer& tokenizer, const DecodeOptions& options,
                                 std::vector<std::string> stops);

  // The text that the token makes certain. Once it says `stopped` neither call may follow.
  StopMatcher::Output push(std::int32_t token) { return stops_.push(decoder_.push(token)); }
  // Ends the stream: what was held back. Its end may complete a stop string: U+FFFD is text too.
  // Both are valid until the next call.
  StopMatcher::Output finish();

 private:
  TextOutput(const Tokenizer& tokenizer, const DecodeOptions& options, StopMatcher stops);
  StreamDecoder decoder_;
  StopMatcher stops_;
  std::string rest_;  // what finish() gave
};

}  // namespace terrace::text
