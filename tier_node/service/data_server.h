// The data plane: one I/O thread that accepts connections, checks who they are, decodes frames, keeps credit, and
// sends what the compute thread and the slab receiver hand back. It waits for nobody, and computes small decode batches
// itself while the compute thread has nothing to do (Parts::computes_here): handing one over and back would cost two
// wake-ups of threads, more than many a batch takes to compute. A ping is late by one such batch at the most.
//
// A connection that breaks a rule ends its session with an error that says which; every other goes on. Rules and
// answers: docs/wire.md.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/base/log.h"
#include "common/base/parallel.h"
#include "common/base/result.h"
#include "common/base/seldom.h"
#include "common/threads/waiting.h"
#include "common/transport/connection.h"
#include "common/transport/pacing.h"
#include "kernels/cpu/ops/ops.h"
#include "tier_node/service/compute_thread.h"
#include "tier_node/service/peer.h"
#include "tier_node/service/wakefulness.h"
#include "tier_node/service/work_queue.h"
#include "tier_node/session/session_table.h"
#include "tier_node/session/slab_loader.h"

namespace terrace::node {

struct DataServerOptions {
  std::chrono::milliseconds hello_timeout{5'000};  // for connections that say nothing
  FrameTimeLimit frame_time;                       // after hello, for frames that have begun to come
  std::size_t max_strangers = 64;                  // without a session, those that linger too; the oldest makes room
  std::chrono::milliseconds linger{1'000};         // to send the last words to a connection that ends
  std::chrono::milliseconds stop_grace{2'000};     // the same when the server stops
};

class DataServer final : public CompletionSink, private PieceOwner {
 public:
  // What it works with; all borrowed, all outlive it. `parallel` is used by its compute thread alone.
  struct Parts {
    transport::Transport& transport;  // proves who connects: common/transport/sealed with data_keys(sessions)
    SessionTable& sessions;
    SlabLoader& loader;
    Parallel& parallel;
    const kernels::Ops& ops;
    Logger log;
    Waiting waiting = Waiting::kSpinThenPark;  // kBlock: one core
    kernels::ExpertCard* card = nullptr;       // where the sessions' card store lies; null: none
    // The I/O thread computes small decode batches. Always where one thread computes and waits block (one core): both
    // threads need that core. Never with a card, whose work one thread gives.
    bool computes_here = false;
    MakePairExecutor make_executor = make_pair_executor;  // of each runner
  };

  // Listens on `address` (HOST:PORT) and starts both threads. A connection takes frames of a hello's size until it has
  // said hello, then those of its session (transport_options.largest_frame is not used). Errors as Transport::listen
  // and ExpertCard::make_executor().
  static Result<std::unique_ptr<DataServer>> start(const Parts& parts, const std::string& address,
                                                   const transport::Options& transport_options,
                                                   const DataServerOptions& options);
  // Says goodbye to every connection, within the grace, and waits for the batch in hand.
  ~DataServer() override;
  DataServer(const DataServer&) = delete;
  DataServer& operator=(const DataServer&) = delete;

  // Keeps the compute thread on these CPUs: it is the pool's worker 0. Once, directly after the start. kIo.
  Status pin_compute_thread(const CpuSet& cpus) { return compute_->pin(cpus); }

  std::uint16_t port() const { return port_; }
  // A session has ended: look. Any thread.
  void wake();
  // The compute thread.
  void post(Completion completion) override;

 private:
  // A frame that the receiver is done with.
  struct Returned {
    std::uint64_t peer = 0;
    std::span<const std::byte> frame;
  };

  // What the wait found, of what it waited for.
  struct Ready {
    bool listener = false;
    bool event = false;  // wake()
  };

  // Handles completions of what the I/O thread computes itself, at once.
  class Here final : public CompletionSink {
   public:
    explicit Here(DataServer& server) : server_(server) {}
    void post(Completion completion) override { server_.on_completion(completion); }

   private:
    DataServer& server_;
  };

  DataServer(const Parts& parts, CardExecutors card, std::unique_ptr<transport::Listener> listener, int event_fd,
             const DataServerOptions& options);

  void loop();
  Ready wait(bool more_to_do);
  bool wait_for_any(bool more_to_do);
  int next_timeout_ms() const;
  void begin_stop();

  bool accept_some();
  void make_room_for_stranger();
  Peer* find(std::uint64_t id);
  bool serve_some();
  static bool is_first(const Peer& peer);
  static bool has_something(Peer& peer);
  bool serve(Peer& peer);
  void check_deadline(Peer& peer);
  void follow_session(Peer& peer);
  // Of a session's connection each; of strangers', who can come as often as they like, one now and then.
  void log_end(const Peer& peer, const Error& why);
  void end_peer(Peer& peer, const Error* why);
  void fail(Peer& peer, const Error& error);
  void cancel_works(Peer& peer);
  void on_closed(Peer& peer);
  void end_if_abandoned(const Peer& peer, bool goodbye);

  void on_frame(Peer& peer, std::span<const std::byte> bytes);
  Status dispatch(Peer& peer, const wire::Frame& frame, std::span<const std::byte> bytes);
  Status on_hello(Peer& peer, const wire::Frame& frame);
  Status on_batch(Peer& peer, const wire::Frame& frame, std::span<const std::byte> bytes);
  Status check_batch(const Peer& peer, const wire::BatchView& batch) const;
  Status check_replies(const Peer& peer, const wire::BatchView& batch);
  Result<EpochRef> find_share(const Peer& peer, const wire::BatchView& batch) const;
  Status on_slab(Peer& peer, const wire::Frame& frame, std::span<const std::byte> bytes);
  void piece_done(std::uint64_t peer, std::span<const std::byte> frame) override;
  void on_cancel(Peer& peer, std::uint64_t sequence);

  bool compute_here();
  void take_handed_back();
  void on_completion(Completion& completion);
  void return_credit(Work& work, Peer& peer);
  void finish_work(Work& work);
  Work& new_work();

  const Parts parts_;
  const DataServerOptions options_;
  std::unique_ptr<transport::Listener> listener_;  // null when stopping
  const int event_fd_;
  const std::uint16_t port_;
  const bool computes_here_;
  Here here_{*this};
  std::atomic<bool> stop_requested_ = false;

  FramePool frames_;
  WorkQueue queue_;
  transport::DecodeActivity decode_;  // of all sessions: their links meet in this machine's card
  Wakefulness wakefulness_;           // of the I/O thread, by the decode batches that it computes itself

  // The I/O thread's.
  std::vector<std::unique_ptr<Peer>> peers_;
  std::uint64_t next_peer_ = 1;
  std::uint64_t last_served_ = 0;  // of those that take turns
  bool stopping_ = false;
  Seldom strangers_;
  TimePoint accept_after_ = TimePoint::min();  // the process has no descriptor left until then, maybe
  std::vector<std::unique_ptr<Work>> all_works_;
  std::vector<Work*> free_works_;
  std::vector<Completion> handled_completions_;
  std::vector<Returned> handled_returns_;
  std::vector<pollfd> poll_fds_;
  std::vector<std::uint32_t> range_pairs_;  // of the batch being looked at

  std::mutex handed_back_mutex_;  // guards the next two; they are bounded by the credit of all lanes
  std::vector<Completion> completions_;
  std::vector<Returned> returns_;

  std::unique_ptr<ComputeThread> compute_;
  std::thread io_thread_;
};

}  // namespace terrace::node
