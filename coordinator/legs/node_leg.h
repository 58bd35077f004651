// A tier node as a leg: batches out over the latency or bulk lane, packed sums back, range by range.
//
// A batch for which the node has given no credit waits here and goes out from progress() or collect(). Replies that
// come before collect() stay in the receive buffers, uncopied; submit() takes no batch whose replies would not fit
// there beside those of the open ones (kBusy). Only rows that have a pair on this node travel.
//
// A node that is gone, silent, late or wrong is lost for good: both lanes are closed, every open ticket and every later
// submit() gives the one error that told. An error of the node about one batch is that batch's alone.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/threads/waiting.h"
#include "common/wire/messages.h"
#include "coordinator/legs/lane.h"
#include "coordinator/legs/leg.h"

namespace terrace::legs {

struct NodeLegOptions {
  std::string name;           // the string given to --node
  wire::BatchLimits limits;   // what this session may send; its max_ranges bounds the replies of a batch
  std::uint64_t experts = 0;  // slabs the node owns
  std::chrono::milliseconds batch_timeout{120'000};  // a node that is alive and still does not answer
  Waiting waiting = Waiting::kBlock;                 // collect()'s, for replies
};

class NodeLeg final : public Leg {
 public:
  // Takes the two lanes of an opened session.
  NodeLeg(const NodeLegOptions& options, std::unique_ptr<Lane> latency, std::unique_ptr<Lane> bulk);
  ~NodeLeg() override;

  const std::string& name() const override { return options_.name; }
  LegKind kind() const override { return LegKind::kNode; }
  LegState state() const override { return !lost_ ? LegState::kOk : wrong_ ? LegState::kWrong : LegState::kLost; }
  void put_out(const Error& why) override;
  std::uint64_t experts() const override { return options_.experts; }
  void set_experts(std::uint64_t experts) { options_.experts = experts; }
  void add_weight_bytes_sent(std::uint64_t bytes) { counters_.weight_bytes_sent += bytes; }
  // All counters but the weights begin at 0 again: greetings and canaries are no work of a step.
  void restart_counters();

  Result<Ticket> submit(const LegBatch& batch) override;
  Status collect(Ticket ticket, kernels::SumsView sums, std::span<std::uint8_t> failed) override;
  Status collect_slots(Ticket ticket, std::span<float> slots, std::span<std::uint8_t> failed) override;
  void progress() override;
  LegCounters counters() const override;

  // Goodbye to the node.
  void close();

 private:
  struct OpenBatch;
  struct OpenLane;

  OpenBatch& free_batch();
  OpenBatch* find(Ticket ticket);
  void fill(OpenBatch& open, const LegBatch& batch);
  void compact_rows(OpenBatch& open, const LegBatch& batch);
  void compact_pairs(OpenBatch& open, const LegBatch& batch);
  Status check_room(const OpenBatch& open, const OpenLane& lane) const;
  void send_waiting(OpenLane& lane);
  Status poll(OpenLane& lane);
  void poll_or_lose(OpenLane& lane);  // poll(), and the node is lost where that fails
  Result<bool> take_answer(OpenLane& lane, const wire::Frame& frame, std::span<const std::byte> bytes);
  Status check_reply(const OpenBatch& open, const wire::ReplyView& reply) const;
  Status add_replies(OpenBatch& open, kernels::SumsView sums, std::span<std::uint8_t> failed);
  Status await_replies(OpenBatch& open);
  void copy_slots(const OpenBatch& open, std::span<float> slots, std::span<std::uint8_t> failed);
  Status wait_for(OpenBatch& open);
  Error not_answered(const OpenBatch& open) const;
  Status lost(const Error& error);
  void end(OpenBatch& open);
  transport::TransportStats stats() const;  // of both lanes

  NodeLegOptions options_;
  std::vector<std::unique_ptr<OpenBatch>> batches_;  // grows to the most that were open at once; outlives the lanes,
                                                     // which borrow from it
  std::unique_ptr<OpenLane> latency_;
  std::unique_ptr<OpenLane> bulk_;
  Ticket next_ticket_ = 1;
  std::optional<Error> lost_;  // why
  bool wrong_ = false;         // lost for computing wrong

  LegCounters counters_;
  transport::TransportStats stats_before_;  // what restart_counters() found
};

}  // namespace terrace::legs
