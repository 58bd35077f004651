// How far long work is, as text.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace terrace::terminal {

struct ProgressState {
  std::uint64_t done = 0;   // bytes
  std::uint64_t total = 0;  // bytes; at least done. 0: not known yet
  std::chrono::nanoseconds elapsed{0};
};

// "box1:9000: 1.2G of 5.3G, 23%, 118M/s, 35s left". Rate and time left are left out while they would be a guess: in the
// first second, and where nothing is done.
std::string progress_text(std::string_view what, const ProgressState& state);

// The beginning of a text that takes at most `columns` of a terminal; a character that is not ASCII counts as two.
std::string_view fit(std::string_view text, std::size_t columns);

}  // namespace terrace::terminal
