// A whole generation over two nodes in this process: model, host leg, sessions over real gRPC, lanes over any
// transport. What fault tests run again and again with another fault each time.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/transport/connection.h"
#include "coordinator/legs/node_session.h"
#include "coordinator/legs/step_clock.h"
#include "tests/e2e/support/gate_parts.h"
#include "tests/e2e/support/node_in_process.h"

namespace terrace::test {

// What the coordinator allows a node.
struct Patience {
  std::chrono::milliseconds connect{10'000};
  std::chrono::milliseconds liveness{10'000};
  std::chrono::milliseconds batch{60'000};
  std::chrono::milliseconds progress{60'000};  // with taking its share
};
inline constexpr Patience kAmple;
// For faults that only a limit ends.
inline constexpr Patience kShort{.connect = std::chrono::milliseconds(2000),
                                 .liveness = std::chrono::milliseconds(600),
                                 .batch = std::chrono::milliseconds(1200),
                                 .progress = std::chrono::milliseconds(1200)};

// A hundredth of the time that passes: on the busiest machine no batch is late, so none is hedged and no node is passed
// over, and the frames of a generation are the same ones each time.
class UnhurriedClock final : public legs::StepClock {
 public:
  TimePoint now() override { return begin_ + (std::chrono::steady_clock::now() - begin_) / 100; }
  void wait(std::span<pollfd> entries, TimePoint until) override {
    legs::steady_clock().wait(
        entries, std::min(begin_ + (until - begin_) * 100, std::chrono::steady_clock::now() + kLongestWait));
  }

 private:
  const TimePoint begin_ = std::chrono::steady_clock::now();
};

// One coordinator's way to a node.
struct NodeLink {
  NodeInProcess& node;
  transport::Transport& transport;  // below the proofs of both ends, unless
  Patience patience = kAmple;
  std::string address{};  // where the coordinator meets it; empty: the node's own
  bool proves = false;    // it does that itself
};

class FaultWorld {
 public:
  static constexpr std::uint32_t kBatch = 8;   // the prompt takes two: the bulk lane's batches follow each other
  static constexpr std::uint32_t kRanges = 2;  // of a batch

  // clock: what says when a batch is late, borrowed; null: the steady one.
  explicit FaultWorld(legs::StepClock* clock = nullptr);

  // Opens both sessions, shares the experts out (the host keeps some), runs the prompt and generates. An error is the
  // one that a user would see: of a node that failed before the first step. "a step failed: ..." must never be.
  Result<GateRun> generate(const NodeLink& first, const NodeLink& second) const;
  // The same with another control plane for the first node.
  Result<GateRun> generate(std::unique_ptr<legs::NodeControl> first, transport::Transport& transport,
                           const NodeLink& second) const;
  // Without nodes: what every run that ends well must give.
  const GateRun& expected() const { return expected_; }

 private:
  Result<std::unique_ptr<legs::NodeSession>> open(const NodeLink& link, const legs::SessionModel& model) const;
  Result<GateRun> run(legs::NodeSession& first, const std::string& a, const NodeLink& second,
                      const legs::SessionModel& model) const;

  legs::StepClock* const clock_;
  GateModel model_;
  std::vector<std::int32_t> prompt_;
  GateRun expected_;
};

// A node's settings here: small windows, and no time for last words that nobody reads.
node::LimitOptions small_limits();
node::DataServerOptions brief_farewell();

// What a lease does with sessions whose coordinator was lost; its seconds are not waited for. False: memory or sessions
// are still held a good while later.
bool ends_clean(NodeInProcess& node);

}  // namespace terrace::test
