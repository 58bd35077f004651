// One connection over UCX. Only for common/transport/ucx.
#pragma once

#include <memory>
#include <string>

#include "common/transport/connection.h"
#include "common/transport/ucx/inbox.h"
#include "common/transport/ucx/outbox.h"
#include "common/transport/ucx/worker.h"
#include "common/wire/frame.h"

namespace terrace::transport {

class UcxConnection final : public Connection, private Channel {
 public:
  enum class Role : std::uint8_t { kClient, kServer };
  // Of the connection that sets this one up: one frame each way.
  static Options options_of_setup();

  // `setup` is a connection of tcp, fresh. kIo, kBusy: Worker::remember().
  static Result<std::unique_ptr<Connection>> create(Role role, std::shared_ptr<Worker> worker,
                                                    std::unique_ptr<Connection> setup, const Options& options);
  ~UcxConnection() override;

  Result<SendTicket> send(std::span<const Part> parts) override;
  std::size_t poll(std::span<Event> out) override;
  void set_largest_frame(std::uint64_t bytes) override;
  void release(std::span<const std::byte> frame) override;
  int wait_fd() override;
  short wait_events() override;
  void close() override;
  const Error& close_reason() const override { return reason_; }
  UnfinishedFrame unfinished() const override;
  TransportStats stats() const override;
  std::string peer_name() const override { return peer_name_; }

 private:
  enum class State : std::uint8_t { kSettingUp, kOpen, kClosed, kReported };
  UcxConnection(Role role, std::shared_ptr<Worker> worker, std::unique_ptr<Connection> setup, const Options& options);
  Status introduce();
  void set_up();
  Status meet(std::span<const std::byte> frame);
  void move();
  std::size_t take_frames(std::span<Event> out);
  void look_for_the_end();
  bool has_something() const;
  void give_credit();
  std::size_t report_closed(std::span<Event> out);
  void close_because(Error reason);
  void part();

  ucs_status_t on_frame(const Message& message) override;
  void on_credit(const MessageHeader& header) override;
  void on_goodbye(const MessageHeader& header) override;
  void on_lost(ucs_status_t why) override;

  const Role role_;
  std::shared_ptr<Worker> worker_;
  wire::FrameBuilder introduction_;
  std::unique_ptr<Connection> setup_;  // null once both ends have said where they are
  std::string peer_name_;
  std::uint64_t token_ = 0;       // of this end
  Endpoint* endpoint_ = nullptr;  // the worker's; null before kOpen and once it is closing
  std::shared_ptr<Inbox> inbox_;
  std::unique_ptr<Outbox> outbox_;
  State state_ = State::kSettingUp;
  bool peer_left_ = false;
  std::uint64_t peer_frames_ = 0;  // that it has sent, once it has left
  std::optional<Error> lost_;
  std::uint64_t bytes_received_ = 0;
  Error reason_{ErrorCode::kInternal, "the connection is open"};
};

}  // namespace terrace::transport
