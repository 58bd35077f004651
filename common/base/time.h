// Times of the steady clock as numbers, for counters and reports.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace terrace {

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

inline double ms_between(std::chrono::steady_clock::time_point begin, std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

// Whole microseconds; one that ends before it begins counts as none.
inline std::uint64_t us_of(std::chrono::steady_clock::duration duration) {
  return static_cast<std::uint64_t>(
      std::max<std::int64_t>(std::chrono::duration_cast<std::chrono::microseconds>(duration).count(), 0));
}

}  // namespace terrace
