// Work that is cut into independent items, and who runs them. Kernels take a Parallel from their caller and never
// start threads; common/threads implements it with a pool.
#pragma once

#include <cstddef>

#include "common/base/function_ref.h"

namespace terrace {

class Parallel {
 public:
  virtual ~Parallel() = default;

  // How many workers may run items at once, the caller of run() among them. >= 1, fixed.
  virtual std::size_t n_workers() const = 0;

  // Calls fn(item, worker) once for each item in [0, n_items) and returns when all are done. worker < n_workers()
  // and no two calls with one worker number overlap, so it may index scratch memory. Items run in any order on any
  // worker: results must not depend on it. fn must not throw and must not call run(). One run() at a time.
  virtual void run(std::size_t n_items, FunctionRef<void(std::size_t item, std::size_t worker)> fn) = 0;

  // The same, but items are handed out in rising order: all lower items have begun, on whatever worker, before fn is
  // called for one. So an item may wait for what lower items do, as long as the lowest waits for nobody.
  virtual void run_in_order(std::size_t n_items, FunctionRef<void(std::size_t item, std::size_t worker)> fn) = 0;
};

// Everything on the calling thread, in rising order.
class Serial final : public Parallel {
 public:
  std::size_t n_workers() const override { return 1; }
  void run(std::size_t n_items, FunctionRef<void(std::size_t, std::size_t)> fn) override { run_in_order(n_items, fn); }
  void run_in_order(std::size_t n_items, FunctionRef<void(std::size_t, std::size_t)> fn) override {
    for (std::size_t item = 0; item < n_items; ++item) fn(item, 0);
  }
};

}  // namespace terrace
