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

  // Sets room aside for pieces of so many bytes: push() allocates nothing for those.
  void reserve(std::size_t longest_piece);

  struct Output {
    std::string_view text;  // safe to show; ends before the stop string; valid until the next call
    bool stopped = false;   // a stop string is complete: the stream is over, push() must not be called again
    std::string_view stop;  // which; valid as long as the matcher
  };
  Output push(std::string_view piece);
  // Ends the stream without a stop string: the text that was held back, valid until the next call. The matcher may then
  // begin another stream.
  std::string_view flush();

 private:
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}
  std::vector<std::string> stops_;
  std::string held_;       // what the last call gave, and behind it what is held back
  std::size_t given_ = 0;  // bytes of held_ that were given
};

}  // namespace terrace::text
