// A coordinator's session with one node, from the first call to the goodbye: the control plane's calls in their order,
// the three lanes, the lease, the slabs, the canary. Its leg is what the dispatcher gets.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "common/base/function_ref.h"
#include "common/base/result.h"
#include "common/manifest/manifest.h"
#include "common/threads/background.h"
#include "common/threads/waiting.h"
#include "common/transport/connection.h"
#include "coordinator/legs/host_leg.h"
#include "coordinator/legs/lane.h"
#include "coordinator/legs/member.h"
#include "coordinator/legs/node_control.h"
#include "coordinator/legs/node_leg.h"
#include "coordinator/legs/owner_table.h"
#include "coordinator/legs/session_sizes.h"
#include "kernels/executor/executor.h"

namespace terrace::legs {

class SlabSender;

// The model as sessions need it; borrowed by every session, read from any thread.
struct SessionModel {
  const manifest::Manifest& manifest;
  std::string manifest_bytes;                          // manifest::serialize()
  const std::vector<kernels::ExpertKernels>& kernels;  // [n_layers], this machine's: the canary's truth
  SlabLookup lookup;                                   // every expert's bytes in our own file
  const kernels::Ops& ops;
};

struct NodeSessionOptions {
  std::string coordinator;            // our name, for the node's logs and status
  std::string link;                   // what data connections speak, as in check_node()
  std::uint32_t max_rows = 512;       // of a batch
  std::uint32_t range_rows = 256;     // rows of a prompt batch's row range
  std::uint32_t sockets = 1;          // wire::BatchLimits::sockets, as far as the node takes them
  Waiting waiting = Waiting::kBlock;  // of the step's thread for replies
  bool probe = false;                 // of a probe's model: the node makes its slabs itself (docs/wire.md 13)
  bool seal = false;                  // data connections: credentials are given, and --plain-data is not
  std::chrono::milliseconds connect_timeout{10'000};
  std::chrono::milliseconds liveness_timeout{10'000};
  std::chrono::milliseconds batch_timeout{120'000};
  std::chrono::milliseconds stall_timeout{60'000};  // a node that is alive and takes no slabs
  std::stop_token stop{};                           // ends open() and take_share() early (kPeerGone)
  // Of all sessions of this coordinator, whose links meet in its own card: bulk and weights are paced while it is live.
  // null: this session has one for itself.
  std::shared_ptr<transport::DecodeActivity> decode{};
  std::chrono::microseconds busy_poll{0};  // of the latency lane
  Parallel* parallel = nullptr;            // NodeLegOptions::parallel: the step's
  Background background{};                 // of the threads that send slabs
  // Bytes a second that the session before with the node had measured its link to take when it had its share; 0: none.
  std::uint64_t link_rate = 0;
  bool beside_steps = false;  // while the share is sent streams go on: it is no more than movement_share()
};

// Bytes are those of slabs as the file has them.
struct ShareProgress {
  std::uint64_t bytes_total = 0;  // of the share
  std::uint64_t bytes_ready = 0;  // as the node says: not checked
  std::uint64_t bytes_sent = 0;   // by us
};

// Slabs that move while streams go on take a quarter of what the link was measured to take (bytes a second), and more
// only where that would end later than they would alone, and kMovementSlack more (docs/adr/0018). Of a whole; a lane's
// pace has at most the four fifths that it has beside decode batches, so a share of more than 16 s ends later.
inline constexpr double kMovementShare = 0.25;
inline constexpr std::chrono::seconds kMovementSlack{4};
double movement_share(std::uint64_t bytes, std::uint64_t bytes_per_second);
// While they move the measure may fall to a tenth, or rise: whether the share of the rest is to be worked out anew,
// when it was by the measure `then`.
inline constexpr double kSameMeasure = 0.05;
bool is_another_measure(std::uint64_t now, std::uint64_t then);

// Asks the node what it is. kRefused: its protocol range, numerics version or link is not ours (`link`: "tcp", "ucx";
// empty: any will do), both named; else as describe().
Status check_node(NodeControl& node, const std::string& link);

// Built and used by one thread at a time, but for lease_lost() and abandon(); the lease is renewed by a thread of its
// own.
class NodeSession final : public Member {
 public:
  // Asks the node what it is, opens the session and its lanes. Errors name the node: kPeerGone, kDeadline (cannot be
  // reached), kRefused (protocol range, numerics version, a window too small for our batches), kCorrupt.
  static Result<std::unique_ptr<NodeSession>> open(std::unique_ptr<NodeControl> control,
                                                   transport::Transport& transport, const SessionModel& model,
                                                   const NodeSessionOptions& options);
  ~NodeSession() override;
  NodeSession(const NodeSession&) = delete;
  NodeSession& operator=(const NodeSession&) = delete;

  // Has the node set memory aside for what `owners` gives to `leg`, sends the slabs it lacks, waits until the epoch is
  // ready there, and compares a canary batch (one expert of each combination of types) with our own kernels.
  // kOutOfMemory: the node's numbers. kRefused: the canary's answer has other bits than ours (wrong() says so).
  Status take_share(const OwnerTable& owners, std::size_t leg, FunctionRef<void(const ShareProgress&)> on_progress);

  // The canary found other bits than ours: the node is wrong, not merely gone.
  bool wrong() const { return wrong_; }

  bool lease_lost() const override { return lease_lost_.load(std::memory_order_acquire); }
  // kCorrupt: it wants slabs for a share that it has.
  Status acknowledge(const OwnerTable& owners, std::size_t leg) override;
  Status forget(std::uint64_t epoch) override { return control_->forget(opened_.session, epoch); }
  // Nothing of the leg is touched: it is its step's. So no canary is among it (share_trial.h is one).
  Status take_further(const OwnerTable& owners, std::size_t leg, std::stop_token stop,
                      std::uint64_t& bytes_sent) override;
  Status give_back(const OwnerTable& owners, std::size_t leg) override;
  void abandon() override;
  // Bytes a second at which the node takes frames of the weights lane: the share's first slab is sent over and over,
  // `bytes` in all (a slab for each connection of the lane), and dropped there, since no epoch waits for it. After
  // take_share(); errors as the lane's.
  Result<double> measure_weights_rate(const OwnerTable& owners, std::size_t leg, std::uint64_t bytes);

  NodeLeg& leg() { return *leg_; }
  // Towards the node: what it was measured to take, and how bulk and weights are paced.
  const transport::LinkRate& link_rate() const { return rate_; }
  // What the node said of itself; of a session that is a probe.
  const ProbedNode& probed() const { return probed_; }
  // The node's own file is this model: slabs come from there, and only those that prove wrong from us.
  bool node_has_model() const { return opened_.has_model; }
  // Of the bulk lane, and of the weights lane: as asked for, or as many as the node takes.
  std::uint32_t sockets() const { return opened_.sockets; }

 private:
  NodeSession(std::unique_ptr<NodeControl> control, const SessionModel& model, const NodeSessionOptions& options);
  // While the result lives, options_.stop ends the calls of the control plane.
  std::stop_callback<std::function<void()>> cancel_when_stopped();
  Status open_session();
  Status open_lanes(transport::Transport& transport);
  Result<std::unique_ptr<Lane>> open_lane(transport::Transport& transport, wire::Lane lane, std::uint64_t window,
                                          std::uint32_t socket_index = 0);
  std::vector<Lane*> weights_lanes() const;
  Status reserve(std::span<const LayerExperts> share);
  // stop: of a further share, between slabs; none: of the first one, which is sent as one. Adds to bytes_sent.
  Status assign(const OwnerTable& owners, std::span<const LayerExperts> share,
                const std::optional<std::stop_token>& stop, std::uint64_t& bytes_sent,
                FunctionRef<void(const ShareProgress&)> on_progress);
  Status check_canary(std::uint64_t epoch, std::span<const LayerExperts> share);
  Status check_canary_expert(std::uint64_t epoch, std::uint32_t layer, std::uint16_t expert);
  Status send_slabs(SlabSender& sender, std::span<const LayerExperts> wanted, const std::stop_token& stop,
                    FunctionRef<void(std::uint64_t bytes)> on_sent);
  Status give_up(SlabSender& sender);
  void pace(std::uint64_t bytes);  // that are still to be sent
  Status in_background(FunctionRef<Status()> send) const;
  void keep_lease();
  void end_lease();

  std::unique_ptr<NodeControl> control_;
  const SessionModel& model_;
  NodeSessionOptions options_;
  SessionSizes sizes_;
  OpenedSession opened_;
  ProbedNode probed_;
  transport::LinkRate rate_;                    // outlives the lanes
  std::mutex weights_mutex_;                    // whoever sends, or closes the lane beside the thread that sends
  std::vector<std::unique_ptr<Lane>> weights_;  // the lane's connections
  std::unique_ptr<NodeLeg> leg_;

  bool wrong_ = false;
  std::uint32_t lease_ms_ = 0;  // 0: nothing is reserved yet
  std::atomic<bool> lease_lost_ = false;
  std::stop_source abandoned_;
  std::mutex lease_mutex_;
  std::condition_variable lease_changed_;
  bool closing_ = false;
  std::thread lease_thread_;
};

}  // namespace terrace::legs
