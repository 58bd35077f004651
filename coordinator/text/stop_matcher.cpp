#include "coordinator/text/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "common/base/utf8.h"

namespace terrace::text {
namespace {

// The longest stop string that `text` ends with; null: none.
const std::string* complete_stop(std::string_view text, const std::vector<std::string>& stops) {
  const std::string* longest = nullptr;
  for (const std::string& stop : stops)
    if (text.ends_with(stop) && (longest == nullptr || stop.size() > longest->size())) longest = &stop;
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

void StopMatcher::reserve(std::size_t longest_piece) {
  std::size_t longest_stop = 0;
  for (const std::string& stop : stops_) longest_stop = std::max(longest_stop, stop.size());
  held_.reserve(longest_stop + longest_piece);
}

StopMatcher::Output StopMatcher::push(std::string_view piece) {
  held_.erase(0, std::exchange(given_, 0));
  const std::size_t n_held = held_.size();
  held_ += piece;
  const std::string_view text = held_;
  for (std::size_t end = n_held + 1; end <= text.size(); ++end) {
    if (const std::string* stop = complete_stop(text.substr(0, end), stops_)) {
      given_ = text.size();
      return {text.substr(0, end - stop->size()), true, *stop};
    }
  }
  given_ = text.size() - begun_stop(text, stops_);
  return {text.substr(0, given_), false, {}};
}

std::string_view StopMatcher::flush() {
  held_.erase(0, given_);
  given_ = held_.size();
  return held_;
}

}  // namespace terrace::text
