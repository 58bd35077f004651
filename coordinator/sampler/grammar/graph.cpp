#include "coordinator/sampler/grammar/graph.h"

#include <algorithm>

namespace terrace::sampler::grammar {
namespace {

constexpr std::uint32_t kNone = ~std::uint32_t{0};

class Tarjan {
 public:
  explicit Tarjan(const Graph& next)
      : next_(next), order_(next.size(), kNone), low_(next.size(), kNone), component_(next.size(), kNone) {}

  std::vector<std::uint32_t> run() {
    for (std::uint32_t node = 0; node < next_.size(); ++node)
      if (order_[node] == kNone) visit(node);
    return std::move(component_);
  }

 private:
  struct Visit {
    std::uint32_t node;
    std::size_t edge;
  };

  void enter(std::uint32_t node) {
    order_[node] = low_[node] = n_entered_++;
    open_.push_back(node);
    visits_.push_back({node, 0});
  }

  void visit(std::uint32_t root) {
    enter(root);
    while (!visits_.empty()) {
      auto& [node, edge] = visits_.back();
      if (edge < next_[node].size()) {
        const std::uint32_t to = next_[node][edge++];
        if (order_[to] == kNone)
          enter(to);
        else if (component_[to] == kNone)
          low_[node] = std::min(low_[node], order_[to]);
      } else {
        leave();
      }
    }
  }

  void leave() {
    const std::uint32_t node = visits_.back().node;
    visits_.pop_back();
    if (!visits_.empty()) low_[visits_.back().node] = std::min(low_[visits_.back().node], low_[node]);
    if (low_[node] != order_[node]) return;
    std::uint32_t member = kNone;
    do {
      member = open_.back();
      open_.pop_back();
      component_[member] = n_components_;
    } while (member != node);
    ++n_components_;
  }

  const Graph& next_;
  std::vector<std::uint32_t> order_, low_, component_;
  std::vector<std::uint32_t> open_;  // entered, in no component yet
  std::vector<Visit> visits_;
  std::uint32_t n_entered_ = 0;
  std::uint32_t n_components_ = 0;
};

}  // namespace

std::vector<std::uint32_t> strong_components(const Graph& next) { return Tarjan(next).run(); }

}  // namespace terrace::sampler::grammar
