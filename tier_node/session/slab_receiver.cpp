#include "tier_node/session/slab_receiver.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "common/manifest/slab.h"
#include "common/threads/start.h"

namespace terrace::node {
namespace {

constexpr std::size_t kCpusAThread = 4;
constexpr std::size_t kCpusAThreadWithoutSha = 2;
constexpr std::size_t kMostThreads = 4;

}  // namespace

Error wrong_slab_hash(const ShareItem& item, const security::Sha256& found, const security::Sha256& expected,
                      const std::string& source) {
  return Error(ErrorCode::kCorrupt,
               fmt::format("the slab of layer {}, expert {} from {} has the hash {}, the manifest says {}", item.layer,
                           item.expert, source, security::to_hex(found), security::to_hex(expected)));
}

unsigned SlabReceiver::threads_for(std::size_t cpus, bool sha_instructions) {
  const std::size_t least = cpus >= kCpusAThread ? 2 : 1;
  const std::size_t wanted = cpus / (sha_instructions ? kCpusAThread : kCpusAThreadWithoutSha);
  return static_cast<unsigned>(std::clamp(wanted, least, kMostThreads));
}

SlabReceiver::SlabReceiver(unsigned threads) : ready_(std::max(1u, threads)) {
  for (unsigned i = 0; i < std::max(1u, threads); ++i) queues_.push_back(std::make_unique<Queue>());
}

Status SlabReceiver::start(const Background& background) {
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    Queue& queue = *queues_[i];
    TERRACE_ASSIGN_OR_RETURN(queue.thread, start_thread(fmt::format("terrace-hash-{}", i), [this, background, &queue] {
                               const ThreadAffinity on_cpus = enter_background(background);
                               ready_.count_down();
                               loop(queue);
                             }));
  }
  ready_.wait();
  return {};
}

SlabReceiver::~SlabReceiver() {
  stopping_ = true;
  for (const auto& queue : queues_) {
    { const std::lock_guard lock(queue->mutex); }  // it waits, or looks at stopping_ before it does
    queue->posted.notify_one();
  }
  for (const auto& queue : queues_)
    if (queue->thread.joinable()) queue->thread.join();
}

// Neighbours, which come together, are spread over the threads.
void SlabReceiver::receive(ReceivedPiece piece) {
  const wire::SlabPiece& slab = piece.view.piece;
  Queue& queue = *queues_[(std::size_t{slab.layer} + slab.expert) % queues_.size()];
  {
    const std::lock_guard lock(queue.mutex);
    queue.waiting.push_back(std::move(piece));
  }
  queue.posted.notify_one();
}

void SlabReceiver::loop(Queue& queue) {
  while (true) {
    {
      std::unique_lock lock(queue.mutex);
      queue.posted.wait(lock, [&] { return stopping_ || !queue.waiting.empty(); });
      queue.taken.swap(queue.waiting);
    }
    for (ReceivedPiece& piece : queue.taken) {
      if (stopping_) return;
      take(piece);
    }
    queue.taken.clear();
    if (stopping_) return;
  }
}

void SlabReceiver::take(ReceivedPiece& piece) {
  Session& session = *piece.session;
  if (const AssignmentRef assignment = session.pending_assign(); assignment && !assignment->finished()) {
    const Status accepted = accept(session, *assignment, piece.view);
    if (accepted.ok()) {
      if (assignment->complete()) session.finish_assign(assignment);
    } else if (accepted.error().code() != ErrorCode::kRefused) {  // released while the piece was on its way
      session.end(accepted.error());
    }
  }
  piece.session.reset();
  piece.owner->piece_done(piece.peer, piece.frame);
}

Status SlabReceiver::check(const Session& session, const Assignment::Slot* slot, const wire::SlabPiece& piece) {
  const auto corrupt = [&](const std::string& why) {
    return Error(ErrorCode::kCorrupt,
                 fmt::format("slab piece of layer {}, expert {}: {}", piece.layer, piece.expert, why));
  };
  if (slot == nullptr || !slot->wanted.load(std::memory_order_acquire))
    return corrupt("this slab was not asked for, or is complete already");
  const std::uint64_t slab_bytes = session.model().layer(piece.layer).sizes.file_bytes();
  if (piece.slab_bytes != slab_bytes)
    return corrupt(fmt::format("says the slab has {} bytes, it has {}", piece.slab_bytes, slab_bytes));
  if (piece.offset != slot->received)
    return corrupt(fmt::format("begins at byte {}, {} is next; pieces come in order, without gap or overlap",
                               piece.offset, slot->received));
  return {};
}

Status SlabReceiver::accept(const Session& session, Assignment& assignment, const wire::SlabPieceView& view) {
  const wire::SlabPiece& piece = view.piece;
  Assignment::Slot* const slot = assignment.find({piece.layer, piece.expert});
  TERRACE_RETURN_IF_ERROR(check(session, slot, piece));
  const Model& model = session.model();
  if (!slot->filling) {
    TERRACE_ASSIGN_OR_RETURN(
        slot->filling, session.allocate_slab(model.slab_id(slot->item), model.layer(piece.layer).sizes, slot->on_card));
    slot->hasher.emplace(model.shape(piece.layer));
  }
  TERRACE_RETURN_IF_ERROR(slot->filling->write(piece.offset, view.data));
  slot->hasher->update(view.data);
  slot->received += view.data.size();
  if (slot->received < piece.slab_bytes) return {};

  const auto found = slot->hasher->finish();
  if (found != slot->filling->id()) return wrong_slab_hash(slot->item, found, slot->filling->id(), "the coordinator");
  assignment.slab_ready(*slot, arena::publish(std::move(slot->filling)));
  return {};
}

}  // namespace terrace::node
