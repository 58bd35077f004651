// A tier node as a leg: batches out over the latency or bulk lane, packed sums back, range by range.
//
// A batch for which the node has given no credit waits here and goes out from progress() or collect(). Replies that
// come before collect() stay in the receive buffers, uncopied; submit() takes no batch whose replies would not fit
// there beside those of the open ones (kBusy). Only rows that have a pair on this node travel.
//
// A node that is gone, or silent beyond the hard limit, is lost; one that answers what was not asked is wrong. Either
// is for good: its lanes are closed, every open ticket and every later submit() gives the one error that told. An
// error of the node about one batch is that batch's alone. A node that is late is suspect until it answers again.
//
// An abandoned ticket's answers are dropped when they come. Rows that its connection has still to send are kept by
// LegBatch::rows_owner, or are copies; where a batch has neither, the connection is closed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/parallel.h"
#include "common/threads/waiting.h"
#include "common/wire/messages.h"
#include "coordinator/legs/lane.h"
#include "coordinator/legs/leg.h"
#include "coordinator/legs/soft_limit.h"

namespace terrace::legs {

struct NodeLegOptions {
  std::string name;           // the string given to --node
  wire::BatchLimits limits;   // what this session may send; its max_ranges bounds the replies of a batch
  std::uint64_t experts = 0;  // slabs the node owns
  // collect()'s, which nobody hedges (a canary): a node that is alive and still does not answer.
  std::chrono::milliseconds batch_timeout{120'000};
  // The soft limit as long as nothing was measured.
  std::chrono::milliseconds first_limit{2'000};
  Waiting waiting = Waiting::kBlock;            // collect()'s, for replies
  transport::DecodeActivity* decode = nullptr;  // borrowed: told of each decode batch; null: nobody asks
  // Borrowed: who unpacks a prompt's sums. take() and collect() of kRowsToShare rows and more are then of the thread
  // that may call its run(). null: the calling thread alone.
  Parallel* parallel = nullptr;
};

struct OpenBatch;

class NodeLeg final : public Leg {
 public:
  // Takes the lanes of an opened session, and the first one's clock. A bulk lane of several connections: a batch goes
  // by the one that owes the least, and is answered there.
  NodeLeg(const NodeLegOptions& options, std::unique_ptr<Lane> latency, std::vector<std::unique_ptr<Lane>> bulk);
  NodeLeg(const NodeLegOptions& options, std::unique_ptr<Lane> latency, std::unique_ptr<Lane> bulk);
  ~NodeLeg() override;

  const std::string& name() const override { return options_.name; }
  LegKind kind() const override { return LegKind::kNode; }
  LegState state() const override { return state_; }
  std::uint64_t experts() const override { return options_.experts; }
  void set_experts(std::uint64_t experts) { options_.experts = experts; }
  void add_weight_bytes_sent(std::uint64_t bytes) { counters_.weight_bytes_sent += bytes; }
  // All counters but the weights begin at 0 again: greetings and canaries are no work of a step. What they cost is
  // kept as a first measure for limits.
  void restart_counters();

  Result<Ticket> submit(const LegBatch& batch) override;
  Status collect(Ticket ticket, kernels::SumsView sums, std::span<std::uint8_t> failed) override;
  // Also finds out whether a silent node is still there, as long as anything is open.
  void progress() override;
  LegCounters counters() const override;

  bool by_range() const override { return true; }
  RangeState range_state(Ticket ticket, std::size_t range) const override;
  Status take(Ticket ticket, std::size_t range, kernels::SumsView sums, std::span<std::uint8_t> failed) override;
  void take_slots(Ticket ticket, std::span<float> slots, std::span<std::uint8_t> failed) override;
  Status ticket_status(Ticket ticket) const override;
  StepClock::TimePoint soft_limit(Ticket ticket) const override;
  void set_suspect(Ticket ticket) override;
  void abandon(Ticket ticket) override;
  void retire() override;
  void add_waits(std::vector<pollfd>& entries) override;
  const Error* why_out() const override { return out_ ? &*out_ : nullptr; }

  void put_out(LegState state, const Error& why) override { (void)out(state, why); }
  const SoftLimits& limits() const { return limits_; }

  // Goodbye to the node.
  void close();

 private:
  struct OpenLane;

  OpenBatch& free_batch();
  OpenBatch* find(Ticket ticket) const;
  OpenBatch& must_find(Ticket ticket) const;
  OpenLane& lane_of(const OpenBatch& open) const;
  std::size_t choose_lane(Priority priority) const;
  void set_limits(OpenBatch& open);
  Status check_room(const OpenBatch& open, const OpenLane& lane) const;
  void send_waiting(OpenLane& lane);
  Status poll(OpenLane& lane);
  void poll_or_lose(OpenLane& lane);  // poll(), and the node is out where that fails
  void look_for_life(OpenLane& lane);
  OpenBatch* find_sent(const OpenLane& lane, std::uint64_t sequence) const;
  Result<bool> take_answer(OpenLane& lane, const wire::Frame& frame, std::span<const std::byte> bytes);
  Result<bool> take_reply(OpenBatch& open, const wire::Frame& frame, std::span<const std::byte> bytes);
  Status check_reply(OpenBatch& open, const wire::ReplyView& reply) const;
  void take_busy(OpenBatch& open, std::uint32_t expected_us);
  void answered_whole(OpenBatch& open);
  void not_suspect();
  Status wait_for(OpenBatch& open);
  Error not_answered(const OpenBatch& open) const;
  Status out(LegState state, const Error& error);
  void release_replies(OpenBatch& open);
  void end(OpenBatch& open);
  void end_if_through(OpenBatch& open);
  transport::TransportStats stats() const;  // of all lanes

  NodeLegOptions options_;
  StepClock& clock_;
  SoftLimits limits_;
  std::vector<std::unique_ptr<OpenBatch>> batches_;  // grows to the most that were open at once; outlives the lanes,
                                                     // which borrow from it
  std::vector<std::unique_ptr<OpenLane>> lanes_;     // OpenBatch::lane
  Ticket next_ticket_ = 1;
  LegState state_ = LegState::kOk;
  std::optional<Error> out_;  // why it is lost or wrong

  LegCounters counters_;
  transport::TransportStats stats_before_;  // what restart_counters() found
};

}  // namespace terrace::legs
