#include "coordinator/text/text_output.h"

#include <utility>

namespace terrace::text {

Result<TextOutput> TextOutput::make(const Tokenizer& tokenizer, const DecodeOptions& options,
                                    std::vector<std::string> stops) {
  TERRACE_ASSIGN_OR_RETURN(StopMatcher matcher, StopMatcher::make(std::move(stops)));
  return TextOutput(tokenizer, options, std::move(matcher));
}

TextOutput::TextOutput(const Tokenizer& tokenizer, const DecodeOptions& options, StopMatcher stops)
    : decoder_(tokenizer, options), stops_(std::move(stops)) {
  stops_.reserve(decoder_.longest_piece());
}

StopMatcher::Output TextOutput::finish() {
  const StopMatcher::Output last = stops_.push(decoder_.flush());
  if (last.stopped) return last;
  rest_ = last.text;
  rest_ += stops_.flush();
  return {rest_, false, {}};
}

}  // namespace terrace::text
