#include "coordinator/legs/node_session.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <utility>

#include "common/base/parallel.h"
#include "common/base/time.h"
#include "common/threads/start.h"
#include "common/transport/address.h"
#include "common/wire/versions.h"
#include "coordinator/legs/slab_sender.h"
#include "kernels/cpu/activations/rows.h"

namespace terrace::legs {
namespace {

// Bytes of a further share between two looks at whether it is still wanted.
constexpr std::uint64_t kBetweenStops = std::uint64_t{64} << 20;

// The canary's rows: fixed, of ordinary size, no two values of a row's period equal.
std::vector<float> canary_rows(std::size_t n_rows, std::size_t d_model, float unit) {
  std::vector<float> rows(n_rows * d_model);
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i] = static_cast<float>(static_cast<int>((i * 37 + i / d_model * 11) % 255) - 127) * unit;
  return rows;
}

}  // namespace

double movement_share(std::uint64_t bytes, std::uint64_t bytes_per_second) {
  if (bytes_per_second == 0) return 1;
  const double alone = static_cast<double>(bytes) / static_cast<double>(bytes_per_second);
  const double slack = std::chrono::duration<double>(kMovementSlack).count();
  return std::max(kMovementShare, alone / (alone + slack));
}

bool is_another_measure(std::uint64_t now, std::uint64_t then) {
  const auto before = static_cast<double>(then);
  return std::abs(static_cast<double>(now) - before) > kSameMeasure * before;
}

Status check_node(NodeControl& node_control, const std::string& link) {
  TERRACE_ASSIGN_OR_RETURN(const NodeDescription node, node_control.describe());
  if (node.protocol_min > wire::kProtocolMax || node.protocol_max < wire::kProtocolMin)
    return Error(
        ErrorCode::kRefused,
        fmt::format("{}: speaks protocol {} to {} (terrace-node {}), this coordinator {} to {}; update the older one",
                    node_control.address(), node.protocol_min, node.protocol_max, node.version, wire::kProtocolMin,
                    wire::kProtocolMax));
  if (node.numerics_version != wire::kNumericsVersion)
    return Error(ErrorCode::kRefused,
                 fmt::format("{}: computes by numerics version {}, this coordinator by {}; their answers would differ",
                             node_control.address(), node.numerics_version, wire::kNumericsVersion));
  if (!link.empty() && !node.link.empty() && node.link != link)
    return Error(ErrorCode::kRefused,
                 fmt::format("{}: the other end's link is {}, this one's {}: give both the same --link",
                             node_control.address(), node.link, link));
  return {};
}

NodeSession::NodeSession(std::unique_ptr<NodeControl> control, const SessionModel& model,
                         const NodeSessionOptions& options)
    : control_(std::move(control)),
      model_(model),
      options_(options),
      sizes_(session_sizes(model.manifest, options.max_rows, options.range_rows, options.sockets)) {
  if (options_.decode == nullptr) options_.decode = std::make_shared<transport::DecodeActivity>();
  rate_.add(options_.link_rate);
}

Result<std::unique_ptr<NodeSession>> NodeSession::open(std::unique_ptr<NodeControl> control,
                                                       transport::Transport& transport, const SessionModel& model,
                                                       const NodeSessionOptions& options) {
  std::unique_ptr<NodeSession> session(new NodeSession(std::move(control), model, options));
  const auto stopped = session->cancel_when_stopped();
  TERRACE_RETURN_IF_ERROR(check_node(*session->control_, options.link));
  TERRACE_RETURN_IF_ERROR(session->open_session());
  TERRACE_RETURN_IF_ERROR(session->open_lanes(transport));
  return session;
}

std::stop_callback<std::function<void()>> NodeSession::cancel_when_stopped() {
  return std::stop_callback<std::function<void()>>(options_.stop, [this] { control_->cancel(); });
}

Status NodeSession::open_session() {
  SessionRequest request;
  request.numerics_version = wire::kNumericsVersion;
  request.manifest = std::as_bytes(std::span(model_.manifest_bytes));
  request.limits = sizes_.limits;
  request.largest_frame = kLargestReplyFrame;
  request.coordinator = options_.coordinator;
  request.data_ciphers = security::accepted_ciphers(options_.seal);
  TERRACE_ASSIGN_OR_RETURN(opened_, control_->open_session(request));
  if (options_.probe) {
    TERRACE_ASSIGN_OR_RETURN(probed_, control_->probe(opened_.session));
  }
  return {};
}

Result<std::unique_ptr<Lane>> NodeSession::open_lane(transport::Transport& transport, wire::Lane lane,
                                                     std::uint64_t window, std::uint32_t socket_index) {
  TERRACE_ASSIGN_OR_RETURN(transport::HostPort data, transport::parse_host_port(control_->address()));
  if (!opened_.data_host.empty()) data.host = opened_.data_host;
  data.port = opened_.data_port;
  LaneOptions options;
  options.node = control_->address();
  options.data_address = transport::to_string(data);
  options.lane = lane;
  options.socket_index = socket_index;
  options.session = opened_.session;
  if (opened_.data_key)
    options.key = {.session = opened_.session,
                   .boot_id = opened_.boot_id,
                   .lane = static_cast<std::uint8_t>(lane),
                   .socket_index = socket_index,
                   .key = *opened_.data_key,
                   .cipher = opened_.data_cipher};
  options.largest_frame = kLargestReplyFrame;
  options.receive_window = window;
  options.connect_timeout = options_.connect_timeout;
  options.liveness_timeout = options_.liveness_timeout;
  options.stop = options_.stop;
  if (lane == wire::Lane::kLatency) {
    options.busy_poll = options_.busy_poll;
  } else {
    options.decode = options_.decode.get();
    options.rate = &rate_;
  }
  return Lane::open(transport, options);
}

Status NodeSession::open_lanes(transport::Transport& transport) {
  // The largest batch, and the memory for its replies at their widest: set aside before it is sent.
  wire::BatchShape largest;
  largest.n_rows = sizes_.limits.max_rows;
  largest.n_pairs = sizes_.limits.max_pairs;
  largest.n_ranges = sizes_.limits.max_ranges;
  largest.d_model = sizes_.limits.d_model;
  std::uint64_t batch_bytes = 0;
  for (const kernels::ExpertKernels& layer : model_.kernels) {
    largest.gate_class = layer.gate_class();
    largest.up_class = layer.up_class();
    batch_bytes = std::max(batch_bytes, wire::batch_frame_bytes(largest));
  }
  TERRACE_ASSIGN_OR_RETURN(std::unique_ptr<Lane> latency,
                           open_lane(transport, wire::Lane::kLatency, sizes_.receive_window));
  std::vector<std::unique_ptr<Lane>> bulk;
  for (std::uint32_t i = 0; i < opened_.sockets; ++i) {
    TERRACE_ASSIGN_OR_RETURN(std::unique_ptr<Lane> opened,
                             open_lane(transport, wire::Lane::kBulk, sizes_.bulk_window, i));
    bulk.push_back(std::move(opened));
  }
  for (std::uint32_t i = 0; i < opened_.sockets; ++i) {
    TERRACE_ASSIGN_OR_RETURN(std::unique_ptr<Lane> opened, open_lane(transport, wire::Lane::kWeights, 0, i));
    weights_.push_back(std::move(opened));
  }
  for (const Lane* lane : {latency.get(), bulk.front().get()})
    if (lane->largest_frame() < batch_bytes || lane->window_bytes() < batch_bytes)
      return Error(
          ErrorCode::kRefused,
          fmt::format("{}: accepts frames of {} and a window of {} bytes; a batch of {} rows needs {}; lower --batch",
                      control_->address(), lane->largest_frame(), lane->window_bytes(), sizes_.limits.max_rows,
                      batch_bytes));
  NodeLegOptions options;
  options.name = control_->address();
  options.limits = sizes_.limits;
  options.batch_timeout = options_.batch_timeout;
  options.waiting = options_.waiting;
  options.decode = options_.decode.get();
  options.parallel = options_.parallel;
  leg_ = std::make_unique<NodeLeg>(options, std::move(latency), std::move(bulk));
  return {};
}

Status NodeSession::take_share(const OwnerTable& owners, std::size_t leg,
                               FunctionRef<void(const ShareProgress&)> on_progress) {
  const auto stopped = cancel_when_stopped();
  const std::vector<LayerExperts> share = share_of(owners, leg);
  if (lease_ms_ == 0) TERRACE_RETURN_IF_ERROR(reserve(share));
  std::uint64_t sent = 0;
  const Status assigned = assign(owners, share, {}, sent, on_progress);
  leg_->add_weight_bytes_sent(sent);
  TERRACE_RETURN_IF_ERROR(assigned);
  TERRACE_RETURN_IF_ERROR(check_canary(owners.epoch(), share));
  leg_->set_experts(owners.n_slabs(leg));
  leg_->restart_counters();
  return {};
}

Status NodeSession::reserve(std::span<const LayerExperts> share) {
  ReservationBytes bytes;
  bytes.slabs = slab_bytes(model_.manifest, share);
  TERRACE_ASSIGN_OR_RETURN(lease_ms_, control_->reserve(opened_.session, bytes));
  auto started = start_thread("terrace-lease", [this] { keep_lease(); });
  if (!started.ok()) return started.error().in(control_->address());
  lease_thread_ = std::move(*started);
  return {};
}

// Three times a lease. A heartbeat that fails ends nothing here: a node that is gone shows on its lanes, and where no
// batch is sent there, whoever looks after the session asks lease_lost().
void NodeSession::keep_lease() {
  const auto every = std::chrono::milliseconds(std::max<std::uint32_t>(lease_ms_ / 3, 1));
  auto kept_at = Clock::now();
  std::unique_lock lock(lease_mutex_);
  while (!lease_changed_.wait_for(lock, every, [this] { return closing_; })) {
    lock.unlock();
    const auto asked_at = Clock::now();
    const Status kept = control_->heartbeat(opened_.session);
    if (kept.ok()) kept_at = asked_at;
    if ((!kept.ok() && kept.error().code() == ErrorCode::kNotFound) ||
        Clock::now() - kept_at > std::chrono::milliseconds(lease_ms_))
      lease_lost_.store(true, std::memory_order_release);
    lock.lock();
  }
}

Status NodeSession::take_further(const OwnerTable& owners, std::size_t leg, std::stop_token stop,
                                 std::uint64_t& bytes_sent) {
  const std::vector<LayerExperts> share = share_of(owners, leg);
  TERRACE_RETURN_IF_ERROR(control_->resize(opened_.session, slab_bytes(model_.manifest, share)));
  const std::lock_guard lock(weights_mutex_);
  const Status taken = assign(owners, share, std::move(stop), bytes_sent, [](const ShareProgress&) {});
  if (abandoned_.stop_requested())
    for (const auto& lane : weights_) lane->close();
  return taken;
}

Status NodeSession::give_back(const OwnerTable& owners, std::size_t leg) {
  return control_->give_back(opened_.session, slab_bytes(model_.manifest, share_of(owners, leg)));
}

Status NodeSession::assign(const OwnerTable& owners, std::span<const LayerExperts> share,
                           const std::optional<std::stop_token>& stop, std::uint64_t& bytes_sent,
                           FunctionRef<void(const ShareProgress&)> on_progress) {
  std::vector<kernels::ExpertShape> shapes;
  for (const kernels::ExpertKernels& layer : model_.kernels) shapes.push_back(layer.shape);
  SlabSender sender(weights_lanes(), std::move(shapes), model_.lookup, share, options_.stall_timeout,
                    stop ? abandoned_.get_token() : options_.stop);
  ShareProgress progress;
  for (const LayerExperts& layer : share)
    progress.bytes_total += model_.kernels[layer.layer].shape.slab_bytes() * layer.experts.size();
  std::uint64_t paced_by = 0;  // bytes a second that the link was measured to take; 0: not known then
  const auto pace_the_rest = [&] {
    if (!stop && !options_.beside_steps) return;
    paced_by = rate_.measured();
    pace(progress.bytes_total - std::min(progress.bytes_total, std::max(progress.bytes_ready, progress.bytes_sent)));
  };
  const auto on_sent = [&](std::uint64_t bytes) {
    bytes_sent += bytes;
    progress.bytes_sent += bytes;
    if (is_another_measure(rate_.measured(), paced_by)) pace_the_rest();
    on_progress(progress);
  };
  const auto on_answer = [&](const AssignProgress& answer) -> Status {
    progress.bytes_ready = answer.bytes_ready;
    on_progress(progress);
    if (stop && !answer.ready && stop->stop_requested()) return give_up(sender);
    if (answer.wanted.empty()) return {};
    if (options_.probe)
      return Error(ErrorCode::kCorrupt,
                   fmt::format("{}: it was to make a probe's slabs itself, and wants them sent", control_->address()));
    if (!stop && !options_.beside_steps) return sender.send(answer.wanted, on_sent);  // no step waits for a CPU
    pace_the_rest();
    return in_background(
        [&] { return stop ? send_slabs(sender, answer.wanted, *stop, on_sent) : sender.send(answer.wanted, on_sent); });
  };
  return control_->assign(opened_.session, owners.epoch(), share, on_answer);
}

void NodeSession::pace(std::uint64_t bytes) {
  const double share = movement_share(bytes, rate_.measured());
  for (const auto& lane : weights_) lane->set_most(share / static_cast<double>(weights_.size()));
}

// By a thread of its own, which those that compute come before.
Status NodeSession::in_background(FunctionRef<Status()> send) const {
  Status sent;
  const auto work = [&] {
    try {
      const ThreadAffinity kept = enter_background(options_.background);
      sent = send();
    } catch (const std::exception& thrown) {  // no memory: out of a thread's function it would end us
      sent = Error(ErrorCode::kOutOfMemory, fmt::format("{}: {}", control_->address(), thrown.what()));
    }
  };
  auto sender = start_thread("terrace-slabs", work);
  if (!sender.ok()) return send();  // then by this one
  sender->join();
  return sent;
}

// Some layers at a time.
Status NodeSession::send_slabs(SlabSender& sender, std::span<const LayerExperts> wanted, const std::stop_token& stop,
                               FunctionRef<void(std::uint64_t bytes)> on_sent) {
  while (!wanted.empty()) {
    std::size_t n = 0;
    for (std::uint64_t bytes = 0; n < wanted.size() && bytes < kBetweenStops; ++n)
      bytes += slab_bytes(model_.manifest, wanted.subspan(n, 1));
    TERRACE_RETURN_IF_ERROR(sender.send(wanted.first(n), on_sent));
    wanted = wanted.subspan(n);
    if (!wanted.empty() && stop.stop_requested()) return give_up(sender);
  }
  return {};
}

// The node has taken all that was sent before it hears of it: a piece that came later, while it waits for another
// share, would be in breach (docs/wire.md 4).
Status NodeSession::give_up(SlabSender& sender) {
  TERRACE_RETURN_IF_ERROR(sender.wait_for_credit());
  return Error(ErrorCode::kPeerGone, fmt::format("{}: its further share was given up by this side", leg_->name()));
}

std::vector<Lane*> NodeSession::weights_lanes() const {
  std::vector<Lane*> lanes;
  for (const auto& lane : weights_) lanes.push_back(lane.get());
  return lanes;
}

Result<double> NodeSession::measure_weights_rate(const OwnerTable& owners, std::size_t leg, std::uint64_t bytes) {
  std::vector<LayerExperts> share = share_of(owners, leg);
  if (share.empty()) return Error(ErrorCode::kInvalidArgument, "a share without experts has no slab to send");
  share.resize(1);
  // A slab for each connection, where there are so many.
  share.front().experts.resize(std::min(share.front().experts.size(), weights_.size()));
  std::vector<kernels::ExpertShape> shapes;
  for (const kernels::ExpertKernels& layer : model_.kernels) shapes.push_back(layer.shape);
  const std::uint64_t slabs = shapes[share.front().layer].slab_bytes() * share.front().experts.size();
  std::uint64_t sent = 0;
  const auto start = Clock::now();
  while (sent < bytes) {
    SlabSender sender(weights_lanes(), shapes, model_.lookup, share, options_.stall_timeout);
    TERRACE_RETURN_IF_ERROR(sender.send(share, [&](std::uint64_t) {}));
    sent += slabs;
    if (sent < bytes) continue;
    // Credit comes back when the node has taken a frame out of its window.
    TERRACE_RETURN_IF_ERROR(sender.wait_for_credit());
  }
  return static_cast<double>(sent) / seconds_since(start);
}

Status NodeSession::check_canary(std::uint64_t epoch, std::span<const LayerExperts> share) {
  std::vector<kernels::ExpertShape> checked;
  for (const LayerExperts& layer : share) {
    const kernels::ExpertShape& shape = model_.kernels[layer.layer].shape;
    if (std::find(checked.begin(), checked.end(), shape) != checked.end()) continue;
    checked.push_back(shape);
    TERRACE_RETURN_IF_ERROR(check_canary_expert(epoch, layer.layer, layer.experts.front()));
  }
  return {};
}

Status NodeSession::check_canary_expert(std::uint64_t epoch, std::uint32_t layer, std::uint16_t expert) {
  constexpr std::size_t kRows = kCanaryRows;
  const kernels::ExpertKernels& kernels = model_.kernels[layer];
  const std::size_t d_model = kernels.shape.d_model;
  // The weights of a probe's slabs are large and all alike.
  const std::vector<float> rows = canary_rows(kRows, d_model, options_.probe ? 0x1p-16f : 0x1p-6f);
  const kernels::FloatRows plain{rows.data(), kRows, d_model};
  const auto gate_rows = kernels::quantized_rows(model_.ops.quantize_row, kernels.gate_class(), plain);
  const auto up_rows = kernels::quantized_rows(model_.ops.quantize_row, kernels.up_class(), plain);
  const std::array<kernels::Pair, kRows> pairs = {kernels::Pair{0, expert, 1.0f}, kernels::Pair{1, expert, 0.3125f}};
  const RowRange range{0, kRows};

  LegBatch batch;
  batch.epoch = epoch;
  batch.layer = layer;
  batch.gate_rows = {kernels.gate_class(), gate_rows.data(), row_bytes(kernels.gate_class(), d_model)};
  batch.up_rows = {kernels.up_class(), up_rows.data(), row_bytes(kernels.up_class(), d_model)};
  batch.n_rows = kRows;
  batch.pairs = pairs;
  batch.ranges = {&range, 1};

  const int shift = model_.manifest.shift;
  std::vector<std::int64_t> ours(kRows * d_model), theirs(kRows * d_model);
  std::array<std::uint8_t, kRows> our_failed{}, their_failed{};
  Serial serial;
  kernels::Executor executor(serial, model_.ops);
  const kernels::BatchView view{batch.gate_rows, batch.up_rows, kRows, batch.pairs};
  TERRACE_ASSIGN_OR_RETURN(const kernels::ExecStats stats,
                           executor.run(
                               kernels, [&](std::uint16_t e) { return model_.lookup(layer, e); }, view,
                               {ours.data(), d_model, shift}, our_failed, [] { return true; }));
  (void)stats;
  TERRACE_ASSIGN_OR_RETURN(const Ticket ticket, leg_->submit(batch));
  TERRACE_RETURN_IF_ERROR(leg_->collect(ticket, {theirs.data(), d_model, shift}, their_failed));
  // The sums of a row that fails mean nothing, here and there.
  for (std::size_t row = 0; row < kRows; ++row)
    if (our_failed[row] != 0 && their_failed[row] != 0)
      for (std::vector<std::int64_t>* sums : {&ours, &theirs}) std::fill_n(sums->data() + row * d_model, d_model, 0);
  if (ours == theirs && our_failed == their_failed) return {};

  wrong_ = true;
  return Error(
      ErrorCode::kRefused,
      fmt::format("{}: computes expert {} of block {} ({}, {}, {}) to other bits than this machine; one of the "
                  "two has a wrong kernel: run `terrace selftest` on both",
                  control_->address(), expert, layer, info(kernels.shape.gate).name, info(kernels.shape.up).name,
                  info(kernels.shape.down).name));
}

Status NodeSession::acknowledge(const OwnerTable& owners, std::size_t leg) {
  const auto on_answer = [&](const AssignProgress& answer) -> Status {
    if (answer.wanted.empty()) return {};
    return Error(ErrorCode::kCorrupt, fmt::format("{}: it wants slabs of a share that it has", control_->address()));
  };
  return control_->acknowledge(opened_.session, owners.epoch(), share_of(owners, leg), on_answer);
}

void NodeSession::abandon() {
  end_lease();
  abandoned_.request_stop();
  control_->cancel();
  // Else whoever sends there closes them.
  if (const std::unique_lock lock(weights_mutex_, std::try_to_lock); lock)
    for (const auto& lane : weights_) lane->close();
}

void NodeSession::end_lease() {
  {
    const std::lock_guard lock(lease_mutex_);
    closing_ = true;
  }
  lease_changed_.notify_all();
}

NodeSession::~NodeSession() {
  end_lease();
  if (lease_thread_.joinable()) lease_thread_.join();
  if (leg_ != nullptr) leg_->close();
  for (const auto& lane : weights_) lane->close();
  // A node that is lost is not asked: its lease ends the session.
  const bool lost = leg_ != nullptr && leg_->state() == LegState::kLost;
  if (opened_.session != 0 && !lost) (void)control_->close_session(opened_.session);
}

}  // namespace terrace::legs
