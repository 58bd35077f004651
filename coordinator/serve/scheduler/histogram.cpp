#include "coordinator/serve/scheduler/histogram.h"

namespace terrace::serve {

void Histogram::add(double value) {
  std::size_t i = 0;
  while (i < kBounds && value > bound(i)) ++i;
  ++counts_[i];
  ++count_;
  sum_ += value;
}

}  // namespace terrace::serve
