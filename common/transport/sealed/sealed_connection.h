// A connection whose ends prove themselves and whose frames are sealed. Only for common/transport/sealed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/security/aead.h"
#include "common/transport/connection.h"
#include "common/transport/receive_pool.h"
#include "common/transport/sealed/handshake.h"
#include "common/transport/sealed/sealed.h"
#include "common/transport/send_queue.h"

namespace terrace::transport {

class SealedConnection final : public Connection {
 public:
  // Open sends of the inner connection beside those of the layers above: both words of a handshake.
  static constexpr std::size_t kHandshakeSends = 2;

  // most_frames: that are sealed or opened, each way.
  SealedConnection(std::unique_ptr<Connection> inner, std::unique_ptr<Handshake> handshake, std::size_t max_open_sends,
                   std::uint64_t most_frames = kMostSealedFrames);

  Result<SendTicket> send(std::span<const Part> parts) override;
  std::size_t poll(std::span<Event> out) override;
  void set_largest_frame(std::uint64_t bytes) override { inner_->set_largest_frame(bytes); }
  void release(std::span<const std::byte> frame) override;
  int wait_fd() override { return state_ == State::kReported ? -1 : inner_->wait_fd(); }
  short wait_events() override;
  void close() override;
  const Error& close_reason() const override { return reason_; }
  UnfinishedFrame unfinished() const override;
  TransportStats stats() const override { return inner_->stats(); }
  ConnectionSecurity security() const override { return security_; }
  bool near_its_end() const override;
  void set_pace(std::uint64_t bytes_per_second) override { inner_->set_pace(bytes_per_second); }
  std::optional<SentProgress> sent_progress() const override { return inner_->sent_progress(); }
  std::string peer_name() const override { return inner_->peer_name(); }

 private:
  enum class State : std::uint8_t { kOpen, kClosed, kReported };
  enum class Phase : std::uint8_t {
    kHandshake,
    kProven,   // frames pass
    kGivenUp,  // the node hung up on a coordinator that has not proven itself: only its words still pass
  };
  void say(std::span<const Part> words);
  void take_words(std::span<const std::byte> frame);
  Status start_sealing();
  void hand_on();
  bool hand_on_next();
  std::span<const std::byte> seal(SendTicket ticket);
  std::size_t read(std::span<Event> out);
  bool take(Event& event);
  bool take_frame(Event& event);
  Status open(std::span<std::byte> frame);
  Status check_header(std::span<const std::byte> frame) const;
  void end_oldest_send();
  std::size_t report_closed(std::span<Event> out);
  void close_because(Error reason);
  bool sealing() const { return sealer_.has_value(); }

  // What the inner connection reads comes before it, so that it ends first.
  ReceivePool pool_;                      // of sealed frames
  std::unique_ptr<Handshake> handshake_;  // null once it is over and its words have left
  std::unique_ptr<Connection> inner_;

  const std::uint64_t most_frames_;
  State state_ = State::kOpen;
  Phase phase_ = Phase::kHandshake;
  Error reason_{ErrorCode::kInternal, "the connection is open"};
  ConnectionSecurity security_;
  std::optional<security::Sealer> sealer_;
  std::optional<security::Opener> opener_;
  std::uint64_t n_sealed_ = 0;  // frames: the number of the next one
  std::uint64_t n_opened_ = 0;

  SendQueue sends_;
  SendTicket handed_on_ = 0;  // to the inner connection
  // Of pool_, empty where the caller's own parts travel; [max_open_sends], by ticket modulo their number.
  std::vector<std::span<const std::byte>> in_flight_;
  std::uint64_t bytes_in_flight_ = 0;  // sealed
  std::size_t words_unsent_ = 0;       // of the handshake, with the inner connection
  std::uint64_t words_received_ = 0;
};

}  // namespace terrace::transport
