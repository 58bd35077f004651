// The data plane: one I/O thread that accepts connections, checks who they are, decodes batches, keeps credit, and
// sends what the compute thread hands back. It waits for nobody, and computes small decode batches itself while the
// compute thread has nothing to do (Parts::computes_here): handing one over and back would cost two wake-ups of
// threads, more than many a batch takes to compute. A ping is late by one such batch at the most. Connections of the
// weights lanes are handed to a thread of their own once they have said hello (WeightsThread), so that none of their
// bytes is read in front of a batch.
//
// A connection that breaks a rule ends its session with an error that says which; every other goes on. Rules and
// answers: docs/wire.md.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/log.h"
#include "common/base/parallel.h"
#include "common/base/result.h"
#include "common/threads/waiting.h"
#include "common/transport/connection.h"
#include "common/transport/pacing.h"
#include "kernels/cpu/ops/ops.h"
#include "tier_node/service/compute_thread.h"
#include "tier_node/service/peer_loop.h"
#include "tier_node/service/wakefulness.h"
#include "tier_node/service/weights_thread.h"
#include "tier_node/service/work_queue.h"
#include "tier_node/session/session_table.h"
#include "tier_node/session/slab_loader.h"

namespace terrace::node {

class DataServer final : public CompletionSink, private PeerLoop {
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
    // How the thread of the weights lanes runs; nothing: there is none, and their frames are read with all others, as
    // they have to be where connections share what moves their bytes (ucx).
    std::optional<Background> weights = Background();
    MakePairExecutor make_executor = make_pair_executor;  // of each runner
  };

  // Listens on `address` (HOST:PORT) and starts the threads. A connection takes frames of a hello's size until it has
  // said hello, then those of its session (transport_options.largest_frame is not used). Errors as Transport::listen,
  // ExpertCard::make_executor() and start_thread().
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
  // Handles completions of what the I/O thread computes itself, at once.
  class Here final : public CompletionSink {
   public:
    explicit Here(DataServer& server) : server_(server) {}
    void post(Completion completion) override { server_.on_completion(completion); }

   private:
    DataServer& server_;
  };

  DataServer(const Parts& parts, std::unique_ptr<transport::Listener> listener, int event_fd,
             std::unique_ptr<WeightsThread> weights, const DataServerOptions& options);
  Status start_threads(CardExecutors card);

  int listening_fd() override;
  bool on_listening() override;
  TimePoint next_time() const override;
  void on_wake() override { take_completions(); }
  bool end_turn() override;
  void on_stop() override;
  bool stays_awake() override { return wakefulness_.awake(now()); }
  void make_room_for_stranger();
  void hand_over_weights();

  Status on_hello(Peer& peer, const wire::Frame& frame) override;
  Status on_batch(Peer& peer, const wire::Frame& frame, std::span<const std::byte> bytes) override;
  Status check_batch(const Peer& peer, const wire::BatchView& batch) const;
  Status check_replies(const Peer& peer, const wire::BatchView& batch);
  Result<EpochRef> find_share(const Peer& peer, const wire::BatchView& batch) const;
  void on_cancel(Peer& peer, std::uint64_t sequence) override;
  void cancel_works(Peer& peer) override;
  void after_poll(Peer& peer) override;

  bool compute_here();
  void take_completions();
  void on_completion(Completion& completion);
  void return_credit(Work& work, Peer& peer);
  void finish_work(Work& work);
  Work& new_work();

  const Parts parts_;
  std::unique_ptr<transport::Listener> listener_;  // null when stopping
  const std::uint16_t port_;
  const bool computes_here_;
  Here here_{*this};

  FramePool frames_;
  WorkQueue queue_;
  transport::DecodeActivity decode_;  // of all sessions: their links meet in this machine's card
  Wakefulness wakefulness_;           // of the I/O thread, by the decode batches that it computes itself

  // The I/O thread's.
  std::uint64_t next_peer_ = 1;
  TimePoint accept_after_ = TimePoint::min();  // the process has no descriptor left until then, maybe
  std::vector<std::unique_ptr<Work>> all_works_;
  std::vector<Work*> free_works_;
  std::vector<Completion> handled_completions_;
  std::vector<std::uint32_t> range_pairs_;  // of the batch being looked at

  std::mutex completions_mutex_;  // guards the next one, which is bounded by the credit of the lanes
  std::vector<Completion> completions_;

  const std::unique_ptr<WeightsThread> weights_;  // null: none
  std::unique_ptr<ComputeThread> compute_;
  std::thread io_thread_;
};

}  // namespace terrace::node
