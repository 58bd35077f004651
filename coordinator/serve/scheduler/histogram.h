// Counts of values by size, as Prometheus wants them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace terrace::serve {

// Bounds rise by a factor of about 2 from `kFirst`: the last bucket has no bound. Copies are small. No locks.
class Histogram {
 public:
  static constexpr std::size_t kBounds = 24;

  // first: the least bound, in the unit of the values (100e-6 for seconds: up to 839 s; 1 for counts: up to 8,388,608).
  explicit Histogram(double first) : first_(first) {}

  void add(double value);

  double bound(std::size_t i) const { return first_ * static_cast<double>(std::uint64_t{1} << i); }  // i < kBounds
  // [kBounds + 1] values in (bound(i - 1), bound(i)]; the last: above all bounds. Not cumulative.
  std::span<const std::uint64_t> counts() const { return counts_; }
  std::uint64_t count() const { return count_; }
  double sum() const { return sum_; }

 private:
  double first_;
  std::array<std::uint64_t, kBounds + 1> counts_{};
  std::uint64_t count_ = 0;
  double sum_ = 0;
};

}  // namespace terrace::serve
