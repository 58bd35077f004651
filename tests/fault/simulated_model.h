// The model of the simulations in this folder, and what its layers give.
#pragma once

#include <cstdint>
#include <vector>

#include "coordinator/legs/dispatcher.h"
#include "coordinator/legs/host_leg.h"
#include "tests/unit/coordinator/legs/test_model.h"

namespace terrace::legs::test {

inline const TestModel& simulated_model() {
  static const TestModel made;
  return made;
}

inline Sums sums_without_nodes(const Routed& routed) {
  static const OwnerTable all(1, {"host"}, simulated_model().n_layers(), kExperts,
                              std::vector<std::uint16_t>(simulated_model().n_layers() * kExperts, 0));
  Serial serial;
  HostLeg host(all, simulated_model().lookup(), simulated_model().kernels, serial, simulated_model().ops);
  Dispatcher alone(all, {&host}, simulated_model().kernels, kTopK, serial, simulated_model().ops);
  Sums sums(routed.view.n_rows);
  TERRACE_CHECK(alone.submit(routed.view).ok() && alone.collect(sums.view(), sums.failed).ok(), "the host alone");
  return sums;
}

}  // namespace terrace::legs::test
