// What replays need beside the data plane: a control plane that answers as the recorded node did, and a node that
// stands where the recorded one stood.
#pragma once

#include <string>
#include <vector>

#include "common/transport/recording/replay.h"
#include "coordinator/legs/node_control.h"
#include "tests/unit/tier_node/support/node_parts.h"

namespace terrace::test {

// The calls of a session, each answered yes; slabs are wanted as the share lists them.
class RecordedControl final : public legs::NodeControl {
 public:
  static transport::ReplayIdentity identity() { return {77}; }

  const std::string& address() const override { return address_; }
  Result<legs::NodeDescription> describe() override {
    return legs::NodeDescription{
        "recorded", wire::kProtocolMin, wire::kProtocolMax, wire::kNumericsVersion, 7, "scalar", ""};
  }
  Result<legs::NodeStatus> status() override { return Error(ErrorCode::kUnsupported, "a recording has no status"); }
  Result<legs::NodeEstimate> estimate(const manifest::Manifest&, const wire::BatchLimits&, std::uint64_t,
                                      std::uint64_t) override {
    return Error(ErrorCode::kUnsupported, "a recording gives no estimate");
  }
  Result<legs::OpenedSession> open_session(const legs::SessionRequest&) override {
    legs::OpenedSession opened;
    opened.protocol = wire::kProtocolMax;
    opened.session = identity().session;
    opened.boot_id = 7;
    opened.data_port = 1;
    opened.largest_frame = std::uint64_t{64} << 20;
    return opened;
  }
  Result<std::uint32_t> reserve(std::uint64_t, const legs::ReservationBytes&) override { return 10'000u; }
  Status heartbeat(std::uint64_t) override { return {}; }
  Status assign(std::uint64_t, std::uint64_t, std::span<const legs::LayerExperts> share,
                FunctionRef<Status(const legs::AssignProgress&)> on_progress) override {
    legs::AssignProgress progress;
    progress.wanted.assign(share.begin(), share.end());
    TERRACE_RETURN_IF_ERROR(on_progress(progress));
    progress.wanted.clear();
    progress.ready = true;
    return on_progress(progress);
  }
  Status forget(std::uint64_t, std::uint64_t) override { return {}; }
  Status close_session(std::uint64_t) override { return {}; }

 private:
  std::string address_ = "127.0.0.1:1";
};

// A node with its own copy of the tiny model and the first node's share ready as epoch 1.
class StandInNode {
 public:
  // The batches that the recorded session was opened for, and the node's limits then.
  StandInNode(std::uint32_t max_rows, std::uint32_t max_ranges, const node::LimitOptions& limits)
      : node_(model_, settings(limits)) {
    node::OpenRequest request = node_.open_request();
    request.limits = {max_rows, max_rows * model_.manifest.top_k, max_ranges, std::uint64_t{64} << 20};
    session_ = node::test::must(node_.sessions().open(request)).session;
    node::test::must(node_.sessions().reserve(*session_, {model_.all_slab_bytes(), 0, 0}, node::test::kGoOn));
    std::vector<node::ShareItem> share;
    for (const std::uint32_t layer : {0u, 1u})
      for (const std::uint32_t expert : {1u, 2u, 3u, 4u}) share.push_back({layer, expert});
    node_.assign(session_, 1, share);
  }
  transport::ReplayIdentity identity() const { return {session_->id()}; }
  void serve(transport::Transport& transport) { node_.serve_as_it_is(transport, "127.0.0.1:0"); }

 private:
  static node::test::NodeSettings settings(const node::LimitOptions& limits) {
    node::test::NodeSettings settings;
    settings.sessions.limits = limits;
    return settings;
  }

  node::test::TinyModel model_;
  node::test::NodeParts node_;
  node::SessionRef session_;
};

}  // namespace terrace::test
