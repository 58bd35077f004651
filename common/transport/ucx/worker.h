// A UCP worker and the endpoints on it. Only for common/transport/ucx.
//
// Threads  One at a time; the callbacks of UCX come inside progress() and the calls that send.
#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "common/transport/event_fd.h"
#include "common/transport/ucx/context.h"
#include "common/transport/ucx/messages.h"

namespace terrace::transport {

// What of a connection hears of messages. Called by UCX: neither closes an endpoint nor destroys the channel.
class Channel {
 public:
  virtual ~Channel() = default;
  struct Message {
    MessageHeader header;
    void* data = nullptr;
    std::size_t bytes = 0;
    bool rendezvous = false;  // `data` stands for bytes that are still to be fetched
  };
  // As an active message's handler: UCS_INPROGRESS keeps `data` of a rendezvous.
  virtual ucs_status_t on_frame(const Message& message) = 0;
  virtual void on_credit(const MessageHeader& header) = 0;
  virtual void on_goodbye(const MessageHeader& header) = 0;
  virtual void on_lost(ucs_status_t why) = 0;
};

// One end of a connection of UCX. Its address stays, until UCX knows nothing of it any more.
struct Endpoint {
  ucp_ep_h handle = nullptr;
  Channel* channel = nullptr;  // null: nobody cares any more
  bool lost = false;
  // Of one that leaves:
  MessageHeader goodbye;
  std::array<ucs_status_ptr_t, 2> farewell{};  // requests: the goodbye, the flush behind it
  ucs_status_ptr_t closing = nullptr;          // the request
  bool is_closing = false;
  std::chrono::steady_clock::time_point give_up_at;
};

// Whether `request`, null or of UCX, has ended. One that has is freed and set to null.
bool has_ended(ucs_status_ptr_t& request);

class Worker {
 public:
  // kIo: no port of the range is free, no descriptor is left, UCX refuses.
  static Result<std::shared_ptr<Worker>> create(std::shared_ptr<Context> context, const UcxOptions& options);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  ucp_worker_h handle() const { return handle_; }
  // What the other end connects to.
  std::span<const std::byte> address() const { return address_; }

  // Messages with the token that this gives go to `channel`, until forget(). kIo: no randomness. kBusy: too many.
  Result<std::uint64_t> remember(Channel* channel);
  void forget(std::uint64_t token);
  // Some channel's owner calls progress().
  bool has_channels() const;

  // Connects; what goes wrong later comes as on_lost(). kPeerGone: UCX does not take the address.
  Result<Endpoint*> open(std::span<const std::byte> address, Channel* channel);
  // Says goodbye, sends what is queued, closes: within a second, in later calls of progress(). The caller has no
  // request open on it.
  void leave(Endpoint* endpoint, const MessageHeader& goodbye);
  // Closes now. Callbacks of open requests come in later calls of progress(). Says goodbye where that can still leave:
  // of an endpoint that is closed by force the other one hears nothing while this worker goes on.
  void cut(Endpoint* endpoint, const MessageHeader& goodbye);

  // Moves bytes both ways, without blocking, for all channels.
  void progress();
  // The same until `done`, at most so long. False: it took longer, by the clock and by rounds of up to 1 ms each: a
  // process that was stopped meanwhile has not tried for as long as the clock says.
  template <class Done>
  bool progress_until(Done done, std::chrono::milliseconds patience) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    auto rounds = patience.count();
    for (progress(); !done(); progress()) {
      if (--rounds < 0 && std::chrono::steady_clock::now() > deadline) return false;
      wait_a_moment();
    }
    return true;
  }
  // Readable when progress() has something to do.
  int armed_fd();
  // The same without arming: may be waited for with others.
  int event_fd() const { return event_fd_; }
  // Always readable.
  int ready_fd() const { return ready_.fd(); }
  // Memory that UCX may still write to: kept as long as the worker.
  void keep(std::shared_ptr<void> memory) { kept_.push_back(std::move(memory)); }

 private:
  Worker(std::shared_ptr<Context> context, ucp_worker_h handle, EventFd ready)
      : context_(std::move(context)), handle_(handle), ready_(std::move(ready)) {}
  struct Entry {
    std::uint64_t token = 0;
    Channel* channel = nullptr;
  };
  using Handler = ucs_status_t (*)(void*, const void*, std::size_t, void*, std::size_t, const ucp_am_recv_param_t*);
  Status set_up();
  Status set_handler(MessageId id, Handler handler);
  Channel* find(const void* header, std::size_t header_bytes, MessageHeader& out) const;
  static ucs_status_t handle_frame(void* worker, const void* header, std::size_t header_bytes, void* data,
                                   std::size_t bytes, const ucp_am_recv_param_t* param);
  template <void (Channel::*told)(const MessageHeader&)>
  static ucs_status_t handle_short(void* worker, const void* header, std::size_t header_bytes, void*, std::size_t,
                                   const ucp_am_recv_param_t*);
  static void handle_lost(void* endpoint, ucp_ep_h, ucs_status_t why);
  static void say_goodbye(Endpoint& endpoint, const MessageHeader& goodbye);
  void start_closing(Endpoint& endpoint);
  bool has_left(Endpoint& endpoint, std::chrono::steady_clock::time_point now);
  void tend_leaving();
  void wait_a_moment();

  std::shared_ptr<Context> context_;
  std::vector<std::shared_ptr<void>> kept_;
  ucp_worker_h handle_;
  EventFd ready_;
  int event_fd_ = -1;  // the worker's
  std::vector<std::byte> address_;
  std::vector<Entry> channels_;  // by the low 16 bits of the token
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::vector<Endpoint*> leaving_;  // of these
};

}  // namespace terrace::transport
