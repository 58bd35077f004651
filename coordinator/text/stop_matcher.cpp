#include "coordinator/text/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "common/base/utf8.h"

namespace terrace::text {
namespace {

// Bytes of the longest stop string that `text` ends with; 0: none.
std::size_t complete_stop(std::string_view text, const std::vector<std::string>& stops) {
  std::size_t longest = 0;
  for (const std::string& stop : stops)
    if (text.ends_with(stop)) longest = std::max(longest, stop.size());
  return longest;
}

// Bytes of the longest end of `text` that begins a stop string and is shorter than it.
std::size_t begun_stop(std::string_view text, const std::vector<std::string>& stops) {
  std::size_t longest = 0;
  for (const std::string& stop : stops) {
    for (std::size_t length = std::min(text.size(), stop.size() - 1); length > longest; --length)
      if (text.ends_with(std::string_view(stop).substr(0, length))) longest = length;
  }
  return longest;
}

}  // namespace

Result<StopMatcher> StopMatcher::make(std::vector<std::string> stops) {
  for (const std::string& stop : stops) {
    if (stop.empty()) return Error(ErrorCode::kInvalidArgument, "--stop: a stop string must not be empty");
    if (!is_utf8(stop))
      return Error(ErrorCode::kInvalidArgument, "--stop: a stop string is not UTF-8 and could never be found");
  }
  return StopMatcher(std::move(stops));
}

StopMatcher::Output StopMatcher::push(std::string_view piece) {
  const std::size_t n_held = held_.size();
  held_ += piece;
  const std::string_view text = held_;
  for (std::size_t end = n_held + 1; end <= text.size(); ++end) {
    if (const std::size_t stop = complete_stop(text.substr(0, end), stops_); stop > 0) {
      Output out{std::string(text.substr(0, end - stop)), true};
      held_.clear();
      return out;
    }
  }
  const std::size_t shown = text.size() - begun_stop(text, stops_);
  Output out{std::string(text.substr(0, shown)), false};
  held_.erase(0, shown);
  return out;
}

std::string StopMatcher::flush() { return std::exchange(held_, {}); }

}  // namespace terrace::text
