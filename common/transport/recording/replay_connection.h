// One recorded connection with one end played. Only for common/transport/recording.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/aligned_buffer.h"
#include "common/transport/connection.h"
#include "common/transport/event_fd.h"
#include "common/transport/recording/replay_log.h"
#include "common/transport/send_queue.h"

namespace terrace::transport {

class ReplayConnection final : public Connection {
 public:
  // kIo: the process has no descriptor left.
  static Result<std::unique_ptr<Connection>> create(std::shared_ptr<ReplayLog> log, std::uint32_t connection,
                                                    PlayedEnd played, std::size_t max_open_sends);

  Result<SendTicket> send(std::span<const Part> parts) override;
  std::size_t poll(std::span<Event> out) override;
  void set_largest_frame(std::uint64_t) override {}  // recorded frames were allowed then
  void release(std::span<const std::byte> frame) override;
  int wait_fd() override { return state_ == State::kReported ? -1 : event_.fd(); }
  short wait_events() override;
  void close() override;
  const Error& close_reason() const override { return reason_; }
  UnfinishedFrame unfinished() const override { return {}; }
  TransportStats stats() const override { return stats_; }
  ConnectionSecurity security() const override;
  std::string peer_name() const override;

 private:
  enum class State : std::uint8_t { kOpen, kClosed, kReported };

  ReplayConnection(std::shared_ptr<ReplayLog> log, std::uint32_t connection, PlayedEnd played,
                   std::size_t max_open_sends, EventFd event);
  void take_live(std::span<const std::byte> bytes);
  const wire::Frame* counterpart(const wire::Frame& live);
  bool may_play(const PlayedFrame& next) const;
  AlignedBuffer as_today(const wire::Frame& recorded) const;
  bool has_credit(const wire::Frame& frame) const;
  void use_credit(const wire::Frame& frame);
  bool ready() const;

  std::shared_ptr<ReplayLog> log_;
  const std::uint32_t connection_;
  const ConnectionScript script_;
  EventFd event_;
  SendQueue sends_;
  State state_ = State::kOpen;
  Error reason_{ErrorCode::kInternal, "the connection is open"};
  TransportStats stats_;

  std::size_t next_played_ = 0;
  std::size_t n_live_ = 0;     // compared frames that came
  std::vector<bool> matched_;  // [script_.live]
  std::size_t n_matched_ = 0;
  std::map<std::uint64_t, std::uint64_t> sequence_today_;  // of live batches, by the recorded one
  std::deque<AlignedBuffer> answers_;                      // pongs
  std::vector<AlignedBuffer> lent_;
  std::uint64_t credit_frames_ = 0, credit_bytes_ = 0;  // from a live node
};

}  // namespace terrace::transport
