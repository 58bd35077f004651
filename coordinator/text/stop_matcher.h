// Stop strings over text that comes in pieces.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.h"

namespace terrace::text {

// Finds the first stop string to be complete, whatever pieces the text comes in; of several that end at one byte the
// longest. Text that may still turn out to begin a stop string is held back. Threads: one stream, one thread.
class StopMatcher {
 public:
  // Without stops all text passes. kInvalidArgument: an empty stop string, or one that is not UTF-8 (it could never
  // be found).
  static Result<StopMatcher> make(std::vector<std::string> stops);

  struct Output {
    std::string text;      // safe to show; ends before the stop string
    bool stopped = false;  // a stop string is complete: the stream is over, push() must not be called again
  };
  Output push(std::string_view piece);
  // Ends the stream without a stop string: the text that was held back. The matcher may then begin another stream.
  std::string flush();

 private:
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}
  std::vector<std::string> stops_;
  std::string held_;  // shorter than the longest stop string between calls
};

}  // namespace terrace::text
