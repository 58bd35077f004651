// Captured parts of steps, found by what a part depends on: so many at most, the latest used of them. What they take of
// a card is the driver's, beside the budget (docs/adr/0026).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/base/function_ref.h"
#include "common/base/result.h"

namespace terrace::kernels::cuda {

using ReplayKey = std::array<std::uint32_t, 7>;

// T: a graph. One owner thread.
template <class T>
class Replays {
 public:
  explicit Replays(std::size_t most) : most_(most) {}

  // Null: there is none. Valid until add().
  T* find(const ReplayKey& key) {
    const auto found = std::ranges::find(all_, key, &Replay::key);
    if (found == all_.end()) return nullptr;
    found->used = ++uses_;
    return &found->graph;
  }
  // In the place of the one that was not used for longest, where there are `most`: nothing of that one may run.
  T& add(const ReplayKey& key, T graph) {
    if (all_.size() >= most_) {
      Replay& oldest = *std::ranges::min_element(all_, {}, &Replay::used);
      oldest = {key, ++uses_, std::move(graph)};
      return oldest.graph;
    }
    return all_.emplace_back(Replay{key, ++uses_, std::move(graph)}).graph;
  }
  // Drops the one that was not used for longest, of which nothing may run; false: there is none.
  bool drop_oldest() {
    if (all_.empty()) return false;
    std::swap(*std::ranges::min_element(all_, {}, &Replay::used), all_.back());
    all_.pop_back();
    return true;
  }
  std::size_t size() const { return all_.size(); }

 private:
  struct Replay {
    ReplayKey key;
    std::uint64_t used;
    T graph;
  };
  const std::size_t most_;
  std::uint64_t uses_ = 0;
  std::vector<Replay> all_;
};

// `make`, again with one replay fewer as long as it runs out of memory and there is one. `wait` returns when no replay
// runs: memory of one that does is not free when it is dropped, so that all would go for nothing. Errors: wait's, and
// make's last one.
template <class T>
Status make_in_place_of_oldest(Replays<T>& replays, FunctionRef<Status()> make, FunctionRef<Status()> wait) {
  while (true) {
    Status made = make();
    if (made.ok() || made.error().code() != ErrorCode::kOutOfMemory || replays.size() == 0) return made;
    TERRACE_RETURN_IF_ERROR(wait());
    replays.drop_oldest();
  }
}

}  // namespace terrace::kernels::cuda
