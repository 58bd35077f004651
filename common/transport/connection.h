// One connection that carries whole frames (common/wire) in order, and how connections are made. Implementations:
// loopback (one process, no sockets) and tcp; faulty plants faults into any of them. All pass
// tests/contract.
//
// Threads  One owner thread at a time calls everything of a connection (it may be handed over between calls); there
//          are no callbacks and no hidden threads. wait_fd() may be polled together with other descriptors.
// Memory   Received frames lie in buffers of receive_pool.h, at most `Options::largest_frame` each and
//          `Options::receive_window` together, that are kept: no allocation after warm-up. When the window is full the
//          connection stops reading until release(); it never stops sending.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "common/base/result.h"
#include "common/security/cipher.h"

namespace terrace::transport {

using SendTicket = std::uint64_t;  // rising from 1 per connection

struct Event {
  enum class Kind : std::uint8_t {
    kSent,      // the parts of send() with this ticket are the caller's again
    kReceived,  // a whole frame: in place, 16-byte aligned, valid until release(frame)
    kClosed,    // why is close_reason(); the last event of a connection, after a kSent for every open ticket
  };
  Kind kind = Kind::kSent;
  SendTicket ticket = 0;
  std::span<const std::byte> frame;
};

struct TransportStats {
  std::uint64_t bytes_sent = 0;  // frames' bytes handed to the link, headers included
  std::uint64_t bytes_received = 0;
  std::uint64_t frames_sent = 0;
  std::uint64_t frames_received = 0;
  // Of the bytes received, those that were moved again before poll() gave them.
  std::uint64_t bytes_copied = 0;
};

// What the peer has confirmed, and for how long anything was on its way to it: cumulative. What held it up, of late.
struct SentProgress {
  std::uint64_t confirmed_bytes = 0;
  std::chrono::microseconds busy{0};
  std::chrono::microseconds receiver_limited{0};  // of `busy`: the peer's window was full
  std::uint64_t delivery_rate = 0;                // bytes a second, of the last round trips; 0: not known
  bool sender_limited = false;                    // that rate is low since this side had nothing to send
};

// A frame of which the peer has sent some bytes and not yet all.
struct UnfinishedFrame {
  std::uint64_t number = 0;  // frames that the connection received before it: tells one unfinished frame from the next
  std::uint64_t bytes = 0;   // that have come, or, unknown, all it has; 0: no frame is unfinished
  std::uint64_t frame_bytes = 0;  // of the whole frame; 0 until its header is here
};

// How much of it has come, for a sentence: "2500 bytes", "2500 of 9000 bytes", "not all 9000 bytes" (where that is not
// known).
std::string how_much(const UnfinishedFrame& frame);

struct LinkKey;  // common/transport/sealed/link_key.h

// What protects a connection's frames, and who the other end has proven to be (common/transport/sealed). Transports
// that prove nothing say nothing.
struct ConnectionSecurity {
  bool proven = false;        // the other end holds the session's key; the rest is valid then
  std::uint64_t session = 0;  // that the connection belongs to
  std::uint8_t lane = 0;
  std::uint32_t socket_index = 0;
  security::Cipher cipher = security::Cipher::kPlain;
  // By so much a frame is longer on the link than what send() takes and poll() gives.
  std::uint64_t seal_bytes = 0;
};

// Bytes of frames are those on the link, ConnectionSecurity::seal_bytes included.
struct Options {
  std::uint64_t largest_frame = std::uint64_t{64} << 20;    // a longer one from the peer closes the connection
  std::uint64_t receive_window = std::uint64_t{256} << 20;  // received and not yet released
  std::size_t max_open_sends = 256;                         // send() beyond it: kBusy
  std::size_t socket_buffer = 0;                            // SO_SNDBUF and SO_RCVBUF; 0: the system's
  // For so long the system looks at the device itself when nothing is there to be read (SO_BUSY_POLL); 0: never.
  // listen() and connect() fail (kIo) where it is not allowed: sysctl net.core.busy_read is less and the process has no
  // CAP_NET_ADMIN.
  std::chrono::microseconds busy_poll{0};
  // What connect() is to prove; borrowed during the call. Only common/transport/sealed can, every other one refuses.
  const LinkKey* key = nullptr;
};

// kInvalidArgument: a receive window that does not hold one largest frame, no open send. listen() and connect() ask.
Status check(const Options& options);

class Connection {
 public:
  virtual ~Connection() = default;
  // Queues one frame gathered from `parts` (header first, as wire::FrameBuilder gives it) and returns at once. The
  // list itself is copied, what it points to is borrowed until kSent. Never blocks. That the parts are one frame is not
  // checked here: the receiver finds out and closes.
  // kBusy: too many open sends, nothing was queued. kPeerGone: closed or lost. A queued frame may or may not have
  // arrived when kClosed comes: the caller recomputes, it does not guess.
  virtual Result<SendTicket> send(std::span<const std::span<const std::byte>> parts) = 0;
  // Moves bytes both ways without blocking, fills up to out.size() events, returns how many.
  virtual std::size_t poll(std::span<Event> out) = 0;
  // From now on a longer frame from the peer closes the connection: instead of Options::largest_frame, and like it no
  // more than the receive window. Frames that began to arrive before may still be as long as was allowed then. A
  // server lets strangers send no more than a greeting until it knows them.
  virtual void set_largest_frame(std::uint64_t bytes) = 0;
  // Hands a received frame's memory back.
  virtual void release(std::span<const std::byte> frame) = 0;
  // Descriptor for ::poll(); wait for wait_events() (POLLIN unless the window is full, with POLLOUT while bytes are
  // queued or an event is ready). Order: poll() until it gives nothing, then wait; ask for both anew each time. -1
  // after kClosed.
  virtual int wait_fd() = 0;
  virtual short wait_events() = 0;
  // Bytes a second that leave from now on at most, in small pieces, so that what shares the link with them does not
  // wait behind them; 0: as fast as the link takes them. Does nothing where there is no link to share (loopback).
  virtual void set_pace(std::uint64_t bytes_per_second) { (void)bytes_per_second; }
  // None: the transport does not know, or the link has ended.
  virtual std::optional<SentProgress> sent_progress() const { return std::nullopt; }
  // Refuses new sends, gives up open ones and the link; kSent and kClosed come through poll(). Idempotent. Does not
  // block, but over UCX, which takes a few of its steps (at most seconds) until it has let go of what it still sends.
  virtual void close() = 0;
  // Valid after kClosed.
  virtual const Error& close_reason() const = 0;
  // What the last poll() left unfinished: a frame whose rest the peer owes. None while the rest waits for this side,
  // which has to poll() again or to release() what fills the window, and none after the end. Always none where frames
  // come whole (loopback). How long a peer may owe it is the owner's to say (docs/wire.md 7).
  virtual UnfinishedFrame unfinished() const = 0;
  virtual TransportStats stats() const = 0;
  virtual ConnectionSecurity security() const { return {}; }
  // It carries few more frames, either way, and then ends (a seal has a number for so many): its owner takes another
  // connection in its place before that. Never where frames have no numbers.
  virtual bool near_its_end() const { return false; }
  virtual std::string peer_name() const = 0;  // "127.0.0.1:50122"
};

// Accepts connections. One owner thread.
class Listener {
 public:
  virtual ~Listener() = default;
  // The next connection, or null when none waits. Errors of one connection are not errors of the listener. kBusy: one
  // waits, but the process or the system has no descriptor or no memory left for it. It stays, so that wait_fd()
  // remains readable: leave it out of the wait for a while. Any other Error means the listener itself is of no further
  // use.
  virtual Result<std::unique_ptr<Connection>> accept() = 0;
  virtual int wait_fd() = 0;                // POLLIN
  virtual std::string address() const = 0;  // "127.0.0.1:9001", the port as bound
  virtual std::uint16_t port() const = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  // `address` is HOST:PORT. kInvalidArgument, kIo (in use, not allowed), each naming the address.
  virtual Result<std::unique_ptr<Listener>> listen(const std::string& address, const Options& options) = 0;
  // Blocks until connected or `timeout` is over. kPeerGone, kDeadline, kInvalidArgument name the address.
  virtual Result<std::unique_ptr<Connection>> connect(const std::string& address, const Options& options,
                                                      std::chrono::milliseconds timeout) = 0;
  virtual const char* name() const = 0;  // "tcp", "loopback"
};

// Blocks until `connection` has something to say for poll(), or the time is over. False: over, or kClosed was given.
bool wait(Connection& connection, std::chrono::microseconds timeout);

}  // namespace terrace::transport
