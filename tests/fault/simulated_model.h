// The model of the simulations in this folder, and what its layers give.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "coordinator/legs/dispatcher.h"
#include "coordinator/legs/host_leg.h"
#include "tests/unit/coordinator/legs/test_model.h"

namespace terrace::legs::test {

inline const TestModel& simulated_model() {
  static const TestModel made;
  return made;
}

// A dispatcher over that model. All is borrowed but the epoch.
inline std::unique_ptr<Dispatcher> simulated_dispatcher(std::shared_ptr<const Epoch> first, Parallel& parallel,
                                                        Backstop& backstop, LegBoard& board, StepClock& clock) {
  return std::make_unique<Dispatcher>(DispatcherParts{.epoch = std::move(first),
                                                      .kernels = simulated_model().kernels,
                                                      .top_k = kTopK,
                                                      .parallel = parallel,
                                                      .ops = simulated_model().ops,
                                                      .backstop = &backstop,
                                                      .board = &board,
                                                      .clock = &clock});
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
