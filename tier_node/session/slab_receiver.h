// Takes the pieces of slabs that come over the weights lane: copies them to where the slab will lie, hashes them, and
// verifies every slab before it can be used.
//
// Threads  As many as were asked for, named terrace-hash-N. A slab's pieces are all dealt with by one of them, in the
//          order in which they came; several slabs that are under way at once keep several threads busy. They stand
//          behind what computes. Callers never wait for any.
// Memory   Lists that keep what they grew to: no allocation for a piece after warm-up. A slab has its memory and its
//          hash made when its first piece comes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "common/base/result.h"
#include "common/threads/background.h"
#include "common/wire/messages.h"
#include "tier_node/session/assignment.h"
#include "tier_node/session/session.h"

namespace terrace::node {

// Whose memory a piece's frame lies in.
class PieceOwner {
 public:
  virtual ~PieceOwner() = default;
  // Nothing reads the frame any more. By one of the receiver's threads.
  virtual void piece_done(std::uint64_t peer, std::span<const std::byte> frame) = 0;
};

// A piece and the frame that it came in, which is borrowed until owner->piece_done(peer, frame).
struct ReceivedPiece {
  SessionRef session;
  wire::SlabPieceView view;  // its counts checked by the decoder only
  PieceOwner* owner = nullptr;
  std::uint64_t peer = 0;
  std::span<const std::byte> frame;
};

// What the manifest says of a slab, what it was found to be, and where it came from.
Error wrong_slab_hash(const ShareItem& item, const security::Sha256& found, const security::Sha256& expected,
                      const std::string& source);

class SlabReceiver {
 public:
  // For a node that may use so many CPUs. One thread hashes 1.2 to 1.5 GB/s with SHA instructions, a third of that
  // without; a link of 10 Gbit/s brings 1.25. So a quarter of the CPUs, but two from four on, or half of them; four at
  // the most leave the rest to computing.
  static unsigned threads_for(std::size_t cpus, bool sha_instructions);

  explicit SlabReceiver(unsigned threads);
  // Starts the threads, once, before any piece is received. Errors as start_thread().
  Status start(const Background& background);
  // Pieces that no thread has begun with are dropped, and not given back.
  ~SlabReceiver();
  SlabReceiver(const SlabReceiver&) = delete;
  SlabReceiver& operator=(const SlabReceiver&) = delete;

  // A piece that breaks the rules (docs/wire.md) or a slab with another hash ends the session with an error that names
  // layer and expert. Pieces are dropped while no assignment waits for any. Any thread.
  void receive(ReceivedPiece piece);

 private:
  struct Queue {
    std::mutex mutex;
    std::condition_variable posted;
    std::vector<ReceivedPiece> waiting;  // guarded
    std::vector<ReceivedPiece> taken;    // the thread's
    std::thread thread;
  };
  void loop(Queue& queue);
  static void take(ReceivedPiece& piece);
  static Status accept(const Session& session, Assignment& assignment, const wire::SlabPieceView& view);
  static Status check(const Session& session, const Assignment::Slot* slot, const wire::SlabPiece& piece);

  std::atomic<bool> stopping_ = false;
  std::vector<std::unique_ptr<Queue>> queues_;
  // Whoever looks at this process's threads finds them as they will be: behind others they begin late.
  std::latch ready_;
};

}  // namespace terrace::node
