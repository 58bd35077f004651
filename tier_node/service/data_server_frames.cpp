// What the data server does with each frame, and with what comes back from the other threads.
#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "tier_node/service/data_server.h"

namespace terrace::node {
namespace {

// Of a probe's decode batch: less than a slice of the executor has.
constexpr std::uint32_t kMostProbeDecodePairs = 64;

}  // namespace

Status DataServer::on_hello(Peer& peer, const wire::Frame& frame) {
  if (frame.header.type != wire::FrameType::kHello)
    return Error(ErrorCode::kRefused, fmt::format("the first frame is {}, not hello", wire::name(frame.header.type)));
  TERRACE_ASSIGN_OR_RETURN(const wire::Hello hello, wire::read_hello(frame));
  const transport::ConnectionSecurity link = peer.connection().security();
  if (!link.proven) return Error(ErrorCode::kRefused, "this connection has not proven that it belongs to a session");
  const wire::Lane lane = frame.header.lane;
  if (frame.header.session != link.session || lane != static_cast<wire::Lane>(link.lane) ||
      hello.socket_index != link.socket_index)
    return Error(ErrorCode::kRefused,
                 fmt::format("hello names session {:016x}, lane {}, socket {}; the connection was opened for {:016x}, "
                             "{}, {}",
                             frame.header.session, wire::name(lane), hello.socket_index, link.session,
                             wire::name(static_cast<wire::Lane>(link.lane)), link.socket_index));
  const auto session = parts_.sessions.find(link.session);
  if (!session.ok()) return Error(ErrorCode::kRefused, session.error().text());
  const std::uint32_t sockets = (*session)->limits().sockets(lane);
  if (hello.socket_index >= sockets)
    return Error(ErrorCode::kRefused, fmt::format("socket {} of lane {}: {} has {} of it, counted from 0",
                                                  hello.socket_index, wire::name(lane), (*session)->name(), sockets));
  if (hello.largest_frame < (*session)->limits().largest_peer_frame)
    return Error(ErrorCode::kRefused, fmt::format("hello takes frames of {} bytes, the session was opened with {}",
                                                  hello.largest_frame, (*session)->limits().largest_peer_frame));
  if (!peer.open(*session, lane))
    return Error(ErrorCode::kRefused, fmt::format("lane {} (socket {}) of {} is connected already", wire::name(lane),
                                                  hello.socket_index, (*session)->name()));
  return {};
}

Status DataServer::check_batch(const Peer& peer, const wire::BatchView& batch) const {
  const Model::Layer& layer = peer.session()->model().layer(batch.layer);
  if (!layer.has_experts)
    return Error(ErrorCode::kCorrupt,
                 fmt::format("batch {} is for layer {}, which has no experts", batch.sequence, batch.layer));
  if (batch.info.gate_class != layer.kernels.gate_class() || batch.info.up_class != layer.kernels.up_class())
    return Error(ErrorCode::kCorrupt,
                 fmt::format("batch {} of layer {} brings rows of {} and {}, gate and up need {} and {}",
                             batch.sequence, batch.layer, name(batch.info.gate_class), name(batch.info.up_class),
                             name(layer.kernels.gate_class()), name(layer.kernels.up_class())));
  return {};
}

// That the replies at their widest fit into what was set aside for them here, and each into the coordinator's largest
// frame: found out now, not after computing.
Status DataServer::check_replies(const Peer& peer, const wire::BatchView& batch) {
  const SessionLimits& limits = peer.session()->limits();
  const wire::BatchInfo& info = batch.info;
  const std::uint64_t slots = std::uint64_t{info.n_pairs} * info.d_model * sizeof(float);
  if (info.form == wire::ReplyForm::kSlots && slots > limits.reply_bytes)
    return Error(ErrorCode::kRefused,
                 fmt::format("batch {} asks for the slots of {} pairs, {} bytes; this node has {} for the replies to a "
                             "batch; ask for fewer pairs at once",
                             batch.sequence, info.n_pairs, slots, limits.reply_bytes));
  range_pairs_.assign(batch.ranges.size(), 0);
  const auto ends_after = [](std::uint32_t row, const wire::RowRange& range) {
    return row < range.first + range.count;
  };
  for (const wire::Pair& pair : batch.pairs) {
    const auto range = std::upper_bound(batch.ranges.begin(), batch.ranges.end(), pair.row, ends_after);
    ++range_pairs_[static_cast<std::size_t>(range - batch.ranges.begin())];
  }
  for (std::size_t i = 0; i < range_pairs_.size(); ++i) {
    const std::uint64_t bytes = wire::widest_reply_frame_bytes(
        info.form, std::min(batch.ranges[i].count, range_pairs_[i]), range_pairs_[i], info.d_model);
    if (bytes + wire::kSealBytes > limits.largest_peer_frame)
      return Error(ErrorCode::kRefused,
                   fmt::format("the reply to range {} of batch {} may need a frame of {} bytes, the coordinator takes "
                               "{}; cut batches into smaller ranges",
                               i, batch.sequence, bytes, limits.largest_peer_frame));
  }
  return {};
}

// The batch's epoch, which holds every expert that the batch names.
Result<EpochRef> DataServer::find_share(const Peer& peer, const wire::BatchView& batch) const {
  auto epoch = peer.session()->find_epoch(batch.epoch);
  if (!epoch.ok()) return epoch.error().in(fmt::format("batch {}", batch.sequence));
  std::optional<std::uint16_t> seen;  // pairs rise by expert
  for (const wire::Pair& pair : batch.pairs) {
    if (seen == pair.expert) continue;
    seen = pair.expert;
    if (!(*epoch)->holds(batch.layer, pair.expert))
      return Error(ErrorCode::kRefused,
                   fmt::format("batch {} names expert {} of layer {}, which is not in this node's share of epoch {}",
                               batch.sequence, pair.expert, batch.layer, batch.epoch));
  }
  return epoch;
}

Status DataServer::on_batch(Peer& peer, const wire::Frame& frame, std::span<const std::byte> bytes) {
  if (peer.lane() == wire::Lane::kWeights) return Error(ErrorCode::kRefused, "a batch came on the weights lane");
  TERRACE_RETURN_IF_ERROR(peer.take_credit(bytes.size(), frame.header.sequence));
  TERRACE_ASSIGN_OR_RETURN(const wire::BatchView batch, wire::read_batch(frame, peer.session()->limits().batch));
  TERRACE_RETURN_IF_ERROR(check_batch(peer, batch));
  auto epoch = find_share(peer, batch);
  if (epoch.ok())
    if (const Status fits = check_replies(peer, batch); !fits.ok()) epoch = fits.error();
  if (!epoch.ok()) {
    // The batch is in order, only this node cannot do it: an answer, not the end.
    peer.return_credit(bytes.size());
    peer.release(bytes);
    peer.send_error(batch.sequence, epoch.error());
    return {};
  }
  Work& work = new_work();
  work.peer = peer.id();
  work.session = peer.session();
  work.epoch = std::move(epoch).value();
  work.batch = batch;
  // A probe stands before no stream: what is more than a slice waits with the prompts and lets decode batches pass.
  if (peer.session()->is_probe() && batch.info.n_pairs > kMostProbeDecodePairs)
    work.batch.info.priority = wire::Priority::kPrompt;
  work.frame = bytes;
  work.owes_credit = true;
  work.arrived = std::chrono::steady_clock::now();
  if (work.batch.info.priority == wire::Priority::kDecode) decode_.seen(work.arrived);
  work.cancelled.store(false, std::memory_order_relaxed);
  peer.works().push_back(&work);
  queue_.push(work, computes_here_ ? WorkQueue::Wake::kLater : WorkQueue::Wake::kNow);
  return {};
}

void DataServer::on_cancel(Peer& peer, std::uint64_t sequence) {
  if (sequence == 0) return;
  if (Work* queued = queue_.remove(peer.id(), sequence)) return finish_work(*queued);
  for (Work* work : peer.works())
    if (work->batch.sequence == sequence) work->cancelled.store(true, std::memory_order_relaxed);
}

void DataServer::take_completions() {
  {
    const std::lock_guard lock(completions_mutex_);
    handled_completions_.swap(completions_);
  }
  for (Completion& completion : handled_completions_) on_completion(completion);
  handled_completions_.clear();
}

void DataServer::on_completion(Completion& completion) {
  Work& work = *completion.work;
  Peer* const peer = find(work.peer);
  const bool wanted = peer->state() == Peer::State::kOpen && !work.cancelled.load(std::memory_order_relaxed);
  if (completion.reply && wanted) {
    // The last reply says that the next batch may come; this one's memory is free before that can have arrived.
    if (completion.last) return_credit(work, *peer);
    if (work.batch.info.priority == wire::Priority::kDecode) decode_.sent(completion.reply->data.size());
    peer->send_reply(work, std::move(completion.reply));
  } else if (completion.reply) {
    frames_.give(std::move(completion.reply));
  }
  if (wanted && completion.error) peer->send_error(work.batch.sequence, *completion.error);
  if (completion.last) finish_work(work);
}

void DataServer::return_credit(Work& work, Peer& peer) {
  if (!std::exchange(work.owes_credit, false)) return;
  peer.return_credit(work.frame.size());
}

// The batch's memory is the connection's again, its credit the coordinator's.
void DataServer::finish_work(Work& work) {
  Peer* const peer = find(work.peer);
  std::erase(peer->works(), &work);
  return_credit(work, *peer);
  peer->release(work.frame);
  work.session.reset();
  work.epoch.reset();
  free_works_.push_back(&work);
}

Work& DataServer::new_work() {
  if (free_works_.empty()) {
    all_works_.push_back(std::make_unique<Work>());
    free_works_.push_back(all_works_.back().get());
  }
  Work* const work = free_works_.back();
  free_works_.pop_back();
  return *work;
}

}  // namespace terrace::node
