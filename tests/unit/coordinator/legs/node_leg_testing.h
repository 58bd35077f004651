// A leg over two lanes to a scripted node, for the tests of node legs.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/legs/node_leg.h"
#include "tests/unit/coordinator/legs/fake_node.h"
#include "tests/unit/coordinator/legs/transports.h"

namespace terrace::legs::node_leg_testing {

using namespace std::chrono_literals;
using test::FakeNode;
using test::kEpoch;
using test::kWidth;
using test::local_sums;
using test::mind_manners;
using test::Peer;
using test::Reply;
using test::Sums;
using test::TestBatch;

inline const test::TestModel& model() {
  static const test::TestModel made;
  return made;
}

class NodeLegTest : public test::OverTransports {
 protected:
  // The leg of a node that follows `script`; its name is box1:9000.
  NodeLeg& start(FakeNode::Script script) {
    node_ = std::make_unique<FakeNode>(*transport_, std::move(script));
    options_.name = "box1:9000";
    options_.limits = model().limits();
    auto latency = open_lane(wire::Lane::kLatency);  // the node's peer 0
    leg_ = std::make_unique<NodeLeg>(options_, std::move(latency), open_lane(wire::Lane::kBulk));
    return *leg_;
  }
  std::unique_ptr<Lane> open_lane(wire::Lane which) {
    LaneOptions options;
    options.node = "box1:9000";
    options.data_address = node_->address();
    options.lane = which;
    options.session = 5;
    options.largest_frame = std::uint64_t{1} << 24;
    options.receive_window = receive_window_;
    options.liveness_timeout = liveness_timeout_;
    auto lane = Lane::open(*transport_, options);
    TERRACE_CHECK(lane.ok(), "a lane opens");
    return std::move(*lane);
  }

  // A node that computes, with its replies bent on the way.
  FakeNode::Script bent(std::function<void(std::vector<Reply>&)> bend, wire::Welcome welcome = test::ample_welcome()) {
    return [this, bend = std::move(bend), welcome](Peer& peer, const wire::Frame& frame) {
      if (mind_manners(peer, frame, welcome)) return;
      std::vector<Reply> replies = brain_.replies(frame);
      bend(replies);
      for (const Reply& reply : replies) reply.send(peer);
    };
  }
  FakeNode::Script honest() {
    return bent([](std::vector<Reply>&) {});
  }

  TestBatch batch(std::uint32_t layer, std::uint32_t n_rows, std::uint32_t range_rows = 1000, std::uint32_t n_owned = 8,
                  Priority priority = Priority::kDecode) {
    return TestBatch(model(), layer, n_rows, range_rows, n_owned, priority, rng_);
  }
  void expect_exact(NodeLeg& leg, const TestBatch& batch) {
    const auto ticket = leg.submit(batch.batch);
    ASSERT_TRUE(ticket.ok()) << ticket.error().text();
    expect_collected(leg, *ticket, batch);
  }
  void expect_collected(NodeLeg& leg, Ticket ticket, const TestBatch& batch) {
    Sums sums(batch.batch.n_rows);
    const Status collected = leg.collect(ticket, sums.view(), sums.failed);
    ASSERT_TRUE(collected.ok()) << collected.error().text();
    EXPECT_EQ(sums, local_sums(model(), batch.batch)) << "seed " << test::kSeed;
  }
  Status collect(NodeLeg& leg, Ticket ticket, std::size_t n_rows) {
    Sums sums(n_rows);
    return leg.collect(ticket, sums.view(), sums.failed);
  }

  terrace::test::Rng rng_{test::kSeed};
  test::NodeBrain brain_{model()};
  NodeLegOptions options_;
  std::uint64_t receive_window_ = std::uint64_t{1} << 26;
  std::chrono::milliseconds liveness_timeout_{10'000};
  std::unique_ptr<FakeNode> node_;
  std::unique_ptr<NodeLeg> leg_;
};

inline void expect_error(const Error& error, ErrorCode code, const std::string& part) {
  EXPECT_EQ(name(error.code()), std::string(name(code))) << error.text();
  EXPECT_EQ(error.text().find("box1:9000"), 0u) << error.text();
  EXPECT_EQ(error.text().find("box1:9000", 1), std::string::npos) << "named twice: " << error.text();
  EXPECT_NE(error.text().find(part), std::string::npos) << error.text();
}

// While it lives the node takes no bytes: its thread is here.
class TakesNoBytes {
 public:
  explicit TakesNoBytes(FakeNode& node)
      : thread_([this, &node] {
          node.run([this](auto&) {
            begun_.set_value();
            over_.get_future().wait();
          });
        }) {
    begun_.get_future().wait();
  }
  ~TakesNoBytes() {
    over_.set_value();
    thread_.join();
  }

 private:
  std::promise<void> begun_, over_;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace terrace::legs::node_leg_testing
