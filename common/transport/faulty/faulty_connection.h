// A connection with faults planted into its frames. Only for common/transport/faulty.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/aligned_buffer.h"
#include "common/transport/faulty/fault_script.h"
#include "common/transport/faulty/wake.h"
#include "common/transport/forwarding_connection.h"
#include "common/transport/send_queue.h"

namespace terrace::transport {

class FaultyConnection final : public ForwardingConnection {
 public:
  // kIo: the process has no descriptor left.
  static Result<std::unique_ptr<Connection>> wrap(std::unique_ptr<Connection> inner, std::shared_ptr<FaultState> state,
                                                  const FaultClock& clock, std::size_t max_open_sends);

  Result<SendTicket> send(std::span<const Part> parts) override;
  std::size_t poll(std::span<Event> out) override;
  void release(std::span<const std::byte> frame) override;
  int wait_fd() override;
  short wait_events() override;
  void close() override;
  const Error& close_reason() const override { return reason_; }

 private:
  using TimePoint = FaultClock::TimePoint;
  enum class State : std::uint8_t { kOpen, kClosed, kReported };
  enum class Progress : std::uint8_t { kWaiting, kWithInner, kEnded };

  // A frame between send() and its kSent.
  struct Outgoing {
    std::vector<Part> parts;  // the caller's, or one: `changed`
    AlignedBuffer changed;    // what leaves instead
    TimePoint due;
    std::uint64_t number = 0;  // in its direction, for messages
    Progress progress = Progress::kWaiting;
    bool cut_behind = false;  // the link ends once it has left
  };
  // A frame between the inner connection and poll().
  struct Incoming {
    std::span<const std::byte> inner;  // as it came; the inner connection's until release()
    std::span<const std::byte> frame;  // as it is delivered: `inner` or `changed`
    AlignedBuffer changed;
    TimePoint due;
  };
  // A changed frame that the caller holds.
  struct Lent {
    std::span<const std::byte> inner;
    AlignedBuffer changed;
  };

  FaultyConnection(std::unique_ptr<Connection> inner, std::shared_ptr<FaultState> state, const FaultClock& clock,
                   std::size_t max_open_sends, Wake wake);

  Verdict judge(Direction direction);
  TimePoint due_time(Direction direction, const Verdict& verdict);
  void forward();
  void end_oldest_forwarded();
  std::size_t report_sent(std::span<Event> out);
  std::size_t read_inner(std::size_t most);
  void take(const Event& event);
  void take_frame(std::span<const std::byte> frame);
  std::size_t deliver(std::span<Event> out);
  std::size_t report_closed(std::span<Event> out);

  void cut(Direction direction, std::uint64_t frame);
  void follow_cut_everywhere();
  void close_because(Error reason);
  bool holds_something() const;
  std::optional<std::chrono::nanoseconds> time_to_next() const;

  std::shared_ptr<FaultState> faults_;
  const FaultClock& clock_;
  const std::size_t max_open_sends_;
  const std::uint64_t cuts_before_;  // everywhere, before this connection was made
  Wake wake_;

  State state_ = State::kOpen;
  std::optional<Error> inner_closed_;  // not told yet: frames before it are held
  Error reason_{ErrorCode::kInternal, "the connection is open"};
  SendTicket last_ticket_ = 0;
  std::deque<Outgoing> outgoing_;  // rising tickets, the last is last_ticket_
  std::deque<Incoming> incoming_;
  std::vector<Lent> lent_;
  std::array<TimePoint, kDirections> last_due_{};  // by Direction
  std::array<bool, kDirections> stalled_{};
  std::array<bool, kDirections> starved_{};
  bool cutting_ = false;  // the link ends once an outgoing frame's first bytes have left
};

}  // namespace terrace::transport
