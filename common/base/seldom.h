// Telling seldom what strangers can make happen all the time: a line for each would fill the disk and hide the rest.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace terrace {

// One thread at a time.
class Seldom {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Seldom(Clock::duration period = std::chrono::minutes(1)) : period_(period) {}

  // It happened. Nothing: it was told less than a period ago. Else how often it happened without being told since then.
  std::optional<std::uint64_t> happened(Clock::time_point now = Clock::now()) {
    if (told_ && now - *told_ < period_) {
      ++left_out_;
      return std::nullopt;
    }
    told_ = now;
    return std::exchange(left_out_, 0);
  }

 private:
  const Clock::duration period_;
  std::optional<Clock::time_point> told_;
  std::uint64_t left_out_ = 0;
};

// What the line ends with: nothing, or that so many were left out.
inline std::string and_left_out(std::uint64_t left_out) {
  return left_out == 0 ? "" : fmt::format(" ({} more like it were not logged since the last one)", left_out);
}

}  // namespace terrace
