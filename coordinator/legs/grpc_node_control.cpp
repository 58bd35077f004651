#include "coordinator/legs/grpc_node_control.h"

#include <fmt/core.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <charconv>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "common/base/printable.h"
#include "common/base/units.h"
#include "common/transport/address.h"
#include "common/wire/versions.h"
#include "coordinator/legs/channel.h"
#include "coordinator/legs/standstill_guard.h"
#include "terrace/v1/node.grpc.pb.h"

namespace terrace::legs {
namespace {

// Each third of a lease costs a call.
constexpr std::uint32_t kShortestLeaseMs = 1000;

namespace v1 = ::terrace::v1;

ErrorCode code_of(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:
      return ErrorCode::kPeerGone;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return ErrorCode::kDeadline;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return ErrorCode::kOutOfMemory;
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::INVALID_ARGUMENT:
      return ErrorCode::kRefused;
    case grpc::StatusCode::NOT_FOUND:
      return ErrorCode::kNotFound;
    case grpc::StatusCode::ABORTED:
      return ErrorCode::kBusy;
    case grpc::StatusCode::DATA_LOSS:
      return ErrorCode::kCorrupt;
    default:
      return ErrorCode::kInternal;
  }
}

// A peer's text goes to terminals, logs and JSON; it is as long as one in the data plane's error frames may be.
std::string printable(const std::string& text) { return terrace::printable(text, wire::kMaxErrorText); }

// The host of what gRPC calls its peer: "ipv4:127.0.0.1:9000", "ipv6:%5B::1%5D:9000" (a URI, so brackets and the
// percent sign of a zone are escaped). Empty: another kind of address.
std::string host_of_peer(const std::string& peer) {
  const std::size_t scheme = peer.find(':');
  const std::string kind = peer.substr(0, scheme);
  if (scheme == std::string::npos || (kind != "ipv4" && kind != "ipv6")) return "";
  std::string address;
  for (std::size_t i = scheme + 1; i < peer.size(); ++i) {
    unsigned char escaped = 0;
    const char* const end = peer.data() + std::min(i + 3, peer.size());
    const bool is_escape = peer[i] == '%' && end - (peer.data() + i) == 3 &&
                           std::from_chars(peer.data() + i + 1, end, escaped, 16).ptr == end;
    address += is_escape ? static_cast<char>(escaped) : peer[i];
    if (is_escape) i += 2;
  }
  const auto parsed = transport::parse_host_port(address);
  return parsed.ok() ? parsed->host : "";
}

// The calls that other threads may want to end.
class OpenCalls {
 public:
  // While it lives cancel() ends the call.
  class Entry {
   public:
    Entry(OpenCalls& calls, grpc::ClientContext& context) : calls_(calls), context_(context) {
      const std::lock_guard lock(calls_.mutex_);
      calls_.contexts_.insert(&context_);
      if (calls_.cancelled_) context_.TryCancel();
    }
    ~Entry() {
      const std::lock_guard lock(calls_.mutex_);
      calls_.contexts_.erase(&context_);
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    OpenCalls& calls_;
    grpc::ClientContext& context_;
  };

  void cancel() {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    for (grpc::ClientContext* context : contexts_) context->TryCancel();
  }

 private:
  std::mutex mutex_;
  std::set<grpc::ClientContext*> contexts_;
  bool cancelled_ = false;
};

class GrpcNodeControl final : public NodeControl {
 public:
  GrpcNodeControl(const std::string& address, const transport::HostPort& target, const ControlTimeouts& timeouts,
                  std::shared_ptr<security::Credentials> credentials)
      : address_(address), target_(target), timeouts_(timeouts), credentials_(std::move(credentials)) {
    connect();
  }

  const std::string& address() const override { return address_; }

  Result<NodeDescription> describe() override {
    v1::DescribeReply reply;
    TERRACE_RETURN_IF_ERROR(call(&v1::Node::Stub::Describe, v1::DescribeRequest(), reply));
    NodeDescription node;
    node.version = printable(reply.version());
    node.protocol_min = reply.protocol().min();
    node.protocol_max = reply.protocol().max();
    node.numerics_version = reply.numerics_version();
    node.boot_id = reply.boot_id();
    node.isa = printable(reply.isa());
    node.link = printable(reply.link());
    return node;
  }

  Result<NodeStatus> status() override;

  Result<NodeEstimate> estimate(const manifest::Manifest& model, const wire::BatchLimits& limits,
                                std::uint64_t largest_frame, std::uint64_t slab_bytes) override {
    v1::EstimateRequest message;
    message.set_d_model(model.d_model);
    message.set_n_experts(model.n_experts);
    for (const manifest::LayerShape& layer : model.layers) {
      v1::ExpertLayer* entry = message.add_layers();
      entry->set_n_experts(layer.n_experts);
      entry->set_gate_type(static_cast<std::uint32_t>(layer.types.gate));
      entry->set_up_type(static_cast<std::uint32_t>(layer.types.up));
      entry->set_down_type(static_cast<std::uint32_t>(layer.types.down));
      entry->set_ff(layer.ff);
    }
    message.set_max_rows(limits.max_rows);
    message.set_max_pairs(limits.max_pairs);
    message.set_max_ranges(limits.max_ranges);
    message.set_sockets(limits.sockets);
    message.set_largest_frame(largest_frame);
    message.set_slab_bytes(slab_bytes);
    v1::EstimateReply reply;
    TERRACE_RETURN_IF_ERROR(call(&v1::Node::Stub::Estimate, message, reply));
    return NodeEstimate{.slabs = reply.slab_bytes(),
                        .staging = reply.staging_bytes(),
                        .scratch = reply.scratch_bytes(),
                        .total = reply.reserved_bytes(),
                        .budget = reply.memory_budget(),
                        .free = reply.memory_free(),
                        .available = reply.memory_available(),
                        .card = reply.card_bytes(),
                        .card_budget = reply.card_budget(),
                        .card_free = reply.card_free()};
  }

  Result<OpenedSession> open_session(const SessionRequest& request) override {
    v1::OpenSessionRequest message;
    message.mutable_protocol()->set_min(wire::kProtocolMin);
    message.mutable_protocol()->set_max(wire::kProtocolMax);
    message.set_numerics_version(request.numerics_version);
    message.set_manifest(request.manifest.data(), request.manifest.size());
    message.set_max_rows(request.limits.max_rows);
    message.set_max_pairs(request.limits.max_pairs);
    message.set_max_ranges(request.limits.max_ranges);
    message.set_sockets(request.limits.sockets);
    message.set_coordinator(request.coordinator);
    message.set_largest_frame(request.largest_frame);
    for (const security::Cipher cipher : request.data_ciphers) message.add_data_ciphers(security::name(cipher));
    v1::OpenSessionReply reply;
    OpenedSession opened;
    grpc::ClientContext context;
    TERRACE_RETURN_IF_ERROR(call(&v1::Node::Stub::OpenSession, message, reply, timeouts_.call, context));
    opened.data_host = host_of_peer(context.peer());
    if (reply.protocol() < wire::kProtocolMin || reply.protocol() > wire::kProtocolMax)
      return corrupt(fmt::format("it chose protocol {}, we speak {} to {}", reply.protocol(), wire::kProtocolMin,
                                 wire::kProtocolMax));
    if (reply.session() == 0) return corrupt("it gave session 0");
    if (reply.data_key().size() != security::Key::kBytes) return corrupt("its data key is not 32 bytes long");
    const auto cipher = security::cipher_from_name(reply.data_cipher());
    if (!cipher || !security::agree({&*cipher, 1}, request.data_ciphers))
      return corrupt("it chose a cipher for the data connections that we did not offer");
    if (reply.data_port() == 0 || reply.data_port() > 65535) return corrupt("its data port is out of range");
    opened.protocol = reply.protocol();
    opened.session = reply.session();
    opened.boot_id = reply.boot_id();
    opened.data_key = security::Key::from(std::as_bytes(std::span(reply.data_key())));
    opened.data_cipher = *cipher;
    opened.sockets = std::clamp(reply.sockets(), 1u, std::max(1u, request.limits.sockets));
    opened.data_port = static_cast<std::uint16_t>(reply.data_port());
    opened.largest_frame = reply.largest_frame();
    opened.has_model = reply.has_model();
    return opened;
  }

  Result<std::uint32_t> reserve(std::uint64_t session, const ReservationBytes& bytes) override {
    v1::ReserveRequest message;
    message.set_session(session);
    message.set_slab_bytes(bytes.slabs);
    message.set_staging_bytes(bytes.staging);
    message.set_scratch_bytes(bytes.scratch);
    v1::ReserveReply reply;
    TERRACE_RETURN_IF_ERROR(call_reserve(message, reply));
    if (reply.lease_ms() < kShortestLeaseMs)
      return corrupt(fmt::format("it gave a lease of {} ms; {} is the least", reply.lease_ms(), kShortestLeaseMs));
    return reply.lease_ms();
  }

  Status resize(std::uint64_t session, std::uint64_t slab_bytes) override {
    v1::ReserveReply reply;
    return call_reserve(resize_request(session, slab_bytes), reply);
  }
  Status give_back(std::uint64_t session, std::uint64_t slab_bytes) override {
    v1::ReserveReply reply;
    return call(&v1::Node::Stub::Reserve, resize_request(session, slab_bytes), reply, timeouts_.brief);
  }

  Status heartbeat(std::uint64_t session) override {
    v1::HeartbeatRequest message;
    message.set_session(session);
    v1::HeartbeatReply reply;
    return call(&v1::Node::Stub::Heartbeat, message, reply, timeouts_.brief);
  }
  // Not one of the open calls: it is how a program that ends says goodbye.
  Status close_session(std::uint64_t session) override {
    v1::CloseSessionRequest message;
    message.set_session(session);
    v1::CloseSessionReply reply;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + timeouts_.brief);
    return to_status(stub()->CloseSession(&context, message, &reply));
  }
  void cancel() override { calls_.cancel(); }
  Result<ProbedNode> probe(std::uint64_t session) override {
    v1::ProbeRequest message;
    message.set_session(session);
    v1::ProbeReply reply;
    TERRACE_RETURN_IF_ERROR(call(&v1::Node::Stub::Probe, message, reply));
    if (reply.threads() == 0 || reply.max_slab_bytes() == 0)
      return corrupt("it would be probed with no thread or no memory");
    return ProbedNode{reply.machine(), reply.cache_bytes(), reply.threads(), reply.max_slab_bytes()};
  }
  Status forget(std::uint64_t session, std::uint64_t epoch) override {
    v1::ForgetRequest message;
    message.set_session(session);
    message.set_epoch(epoch);
    v1::ForgetReply reply;
    return call(&v1::Node::Stub::Forget, message, reply, timeouts_.brief);
  }

  Status assign(std::uint64_t session, std::uint64_t epoch, std::span<const LayerExperts> share,
                FunctionRef<Status(const AssignProgress&)> on_progress) override {
    return assign(session, epoch, share, on_progress, timeouts_.progress);
  }
  Status acknowledge(std::uint64_t session, std::uint64_t epoch, std::span<const LayerExperts> share,
                     FunctionRef<Status(const AssignProgress&)> on_progress) override {
    return assign(session, epoch, share, on_progress, timeouts_.brief);
  }

 private:
  // limit: of the time between two answers.
  Status assign(std::uint64_t session, std::uint64_t epoch, std::span<const LayerExperts> share,
                FunctionRef<Status(const AssignProgress&)> on_progress, std::chrono::milliseconds limit);
  static v1::ReserveRequest resize_request(std::uint64_t session, std::uint64_t slab_bytes) {
    v1::ReserveRequest message;
    message.set_session(session);
    message.set_slab_bytes(slab_bytes);
    message.set_resize(true);
    return message;
  }
  template <class Method, class Request, class Reply>
  Status call(Method method, const Request& request, Reply& reply) {
    return call(method, request, reply, timeouts_.call);
  }
  template <class Method, class Request, class Reply>
  Status call(Method method, const Request& request, Reply& reply, std::chrono::milliseconds deadline) {
    grpc::ClientContext context;
    return call(method, request, reply, deadline, context);
  }
  template <class Method, class Request, class Reply>
  Status call(Method method, const Request& request, Reply& reply, std::chrono::milliseconds deadline,
              grpc::ClientContext& context) {
    context.set_deadline(std::chrono::system_clock::now() + deadline);
    const OpenCalls::Entry open(calls_, context);
    TERRACE_RETURN_IF_ERROR(to_status((stub().get()->*method)(&context, request, &reply)));
    return named(check_answerer(context, credentials_.get()));
  }
  // Touching memory takes its time: about a second for 2 GiB on a slow machine.
  Status call_reserve(const v1::ReserveRequest& message, v1::ReserveReply& reply) {
    const std::uint64_t bytes = message.slab_bytes() + message.staging_bytes() + message.scratch_bytes();
    return call(&v1::Node::Stub::Reserve, message, reply, timeouts_.call + std::chrono::milliseconds(bytes >> 21));
  }
  Status to_status(const grpc::Status& status) const {
    if (status.ok()) return {};
    const std::string text = printable(status.error_message());
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE)
      return unreachable(address_, status.error_message().empty() ? "" : text, credentials_.get());
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED)
      return Error(ErrorCode::kDeadline,
                   fmt::format("{}: no answer in time; is the machine overloaded or stopped?", address_));
    if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED)
      return Error(ErrorCode::kRefused,
                   fmt::format("{}: answers, but is no terrace-node of this version ({})", address_, text));
    return Error(code_of(status.error_code()), fmt::format("{}: {}", address_, text));
  }
  Error corrupt(const std::string& what) const {
    return Error(ErrorCode::kCorrupt, fmt::format("{}: a wrong answer from the node: {}", address_, what));
  }
  Status take_progress(const v1::AssignProgress& message, std::uint64_t n_asked, AssignProgress& progress) const;

  Status named(const Status& status) const { return status.ok() ? status : status.error().in(address_); }

  void connect() {
    identity_ = credentials_ ? credentials_->current() : nullptr;
    stub_ = v1::Node::NewStub(make_channel(target_, credentials_.get()));
  }
  // A channel shows the certificate that it was made with in every handshake, so a newer one needs a newer channel.
  // Only a secret's certificates are of one key, by which the node knows whose a session is; one from files is for the
  // next session.
  std::shared_ptr<v1::Node::Stub> stub() {
    const std::lock_guard lock(mutex_);
    if (credentials_ && credentials_->by_secret() && credentials_->current() != identity_) connect();
    return stub_;
  }

  std::string address_;
  transport::HostPort target_;
  ControlTimeouts timeouts_;
  OpenCalls calls_;
  std::shared_ptr<security::Credentials> credentials_;  // null: none
  std::mutex mutex_;                                    // guards these two
  security::TlsIdentityRef identity_;
  std::shared_ptr<v1::Node::Stub> stub_;
};

NodeStatus from_message(const v1::StatusReply& reply) {
  NodeStatus node;
  node.listen = printable(reply.listen());
  node.boot_id = reply.boot_id();
  node.version = printable(reply.version());
  node.numerics_version = reply.numerics_version();
  node.state = printable(reply.state());
  node.isa = printable(reply.isa());
  for (const auto& [type, kernel] : reply.kernels()) node.kernels[printable(type)] = printable(kernel);
  node.memory_budget = reply.memory().budget();
  node.memory_reserved = reply.memory().reserved();
  node.memory_used = reply.memory().used();
  node.memory_locked = reply.memory().locked();
  node.threads = reply.cpus().threads();
  node.cpus.assign(reply.cpus().cpus().begin(), reply.cpus().cpus().end());
  node.pinned = reply.cpus().pinned();
  node.waiting = printable(reply.cpus().waiting());
  node.cpu_choice = printable(reply.cpus().why());
  for (const std::string& line : reply.confinement()) node.confinement.push_back(printable(line));
  node.link = printable(reply.link());
  for (const v1::CardStatus& card : reply.cards())
    node.cards.push_back({card.index(), printable(card.name()), card.budget(), card.reserved(), card.used()});
  for (const v1::SessionStatus& s : reply.sessions()) {
    NodeSessionStatus session;
    session.number = s.number();
    session.coordinator = printable(s.coordinator());
    session.epoch = s.epoch();
    session.experts = s.experts();
    session.batches = s.batches();
    session.rows = s.rows();
    session.pairs = s.pairs();
    session.bytes_sent = s.bytes_sent();
    session.bytes_received = s.bytes_received();
    session.compute_us = s.compute_us();
    session.data_cipher = printable(s.data_cipher());
    session.sockets = s.sockets();
    session.link_bytes_per_second = s.link_bytes_per_second();
    session.paced_bytes_per_second = s.paced_bytes_per_second();
    node.sessions.push_back(std::move(session));
  }
  return node;
}

Result<NodeStatus> GrpcNodeControl::status() {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeouts_.call);
  const OpenCalls::Entry open(calls_, context);
  const auto with = stub();
  auto reader = with->Status(&context, v1::StatusRequest());
  v1::StatusReply reply;
  if (!reader->Read(&reply)) {
    TERRACE_RETURN_IF_ERROR(to_status(reader->Finish()));
    return corrupt("it ended Status without an answer");
  }
  TERRACE_RETURN_IF_ERROR(named(check_answerer(context, credentials_.get())));
  context.TryCancel();
  (void)reader->Finish();
  return from_message(reply);
}

// The answer tells something that the one before did not. Both can be told only so often: slabs_ready by its bound, and
// a slab that is wanted twice ends the call, as a layer of which none is wanted does. bytes_ready has no such bound.
bool moved(const AssignProgress& now, const AssignProgress& before) {
  return now.ready || !now.wanted.empty() || now.slabs_ready > before.slabs_ready;
}

Status GrpcNodeControl::take_progress(const v1::AssignProgress& message, std::uint64_t n_asked,
                                      AssignProgress& progress) const {
  progress.ready = message.ready();
  progress.slabs_total = message.slabs_total();
  progress.slabs_ready = message.slabs_ready();
  progress.bytes_ready = message.bytes_ready();
  if (progress.slabs_ready > progress.slabs_total || progress.slabs_total > n_asked)
    return corrupt(fmt::format("{} of {} slabs are ready there, and we asked for {}", progress.slabs_ready,
                               progress.slabs_total, n_asked));
  progress.wanted.clear();
  for (const v1::LayerShare& layer : message.wanted()) {
    if (layer.experts().empty()) return corrupt(fmt::format("it wants no expert of layer {}", layer.layer()));
    LayerExperts wanted;
    wanted.layer = layer.layer();
    for (const std::uint32_t expert : layer.experts()) {
      if (expert > 0xffff) return corrupt(fmt::format("it wants expert {}", expert));
      wanted.experts.push_back(static_cast<std::uint16_t>(expert));
    }
    progress.wanted.push_back(std::move(wanted));
  }
  return {};
}

Status GrpcNodeControl::assign(std::uint64_t session, std::uint64_t epoch, std::span<const LayerExperts> share,
                               FunctionRef<Status(const AssignProgress&)> on_progress,
                               std::chrono::milliseconds limit) {
  v1::AssignRequest message;
  message.set_session(session);
  message.set_epoch(epoch);
  std::uint64_t n_asked = 0;
  for (const LayerExperts& layer : share) {
    n_asked += layer.experts.size();
    v1::LayerShare* entry = message.add_layers();
    entry->set_layer(layer.layer);
    for (const std::uint16_t expert : layer.experts) entry->add_experts(expert);
  }
  grpc::ClientContext context;
  const OpenCalls::Entry open(calls_, context);
  const auto started = StandstillGuard::start(limit, [&context] { context.TryCancel(); });
  if (!started.ok()) return started.error().in(address_);
  const auto& guard = *started;
  const auto with = stub();
  auto reader = with->Assign(&context, message);
  v1::AssignProgress answer;
  AssignProgress before;
  bool ready = false;
  Status failed;
  while (failed.ok() && reader->Read(&answer)) {
    guard->pause();
    AssignProgress progress;
    failed = ready ? corrupt("it went on with Assign after it was ready") : take_progress(answer, n_asked, progress);
    if (failed.ok()) failed = on_progress(progress);
    ready = progress.ready;
    guard->listen(moved(progress, before));
    before = std::move(progress);
  }
  if (!failed.ok()) context.TryCancel();
  const grpc::Status status = reader->Finish();
  if (!failed.ok()) return failed;
  if (guard->fired())
    return Error(ErrorCode::kDeadline,
                 fmt::format("{}: no progress with loading its share for {}", address_, format_duration(limit)));
  TERRACE_RETURN_IF_ERROR(to_status(status));
  if (!ready) return corrupt("it ended Assign without being ready");
  return {};
}

}  // namespace

Result<std::unique_ptr<NodeControl>> make_grpc_node_control(const std::string& address, const ControlTimeouts& timeouts,
                                                            std::shared_ptr<security::Credentials> credentials) {
  TERRACE_ASSIGN_OR_RETURN(const transport::HostPort target, transport::parse_host_port(address));
  if (target.port == 0)
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{}: nothing listens on port 0; give --node HOST:PORT", address));
  if (!credentials) TERRACE_RETURN_IF_ERROR(require_loopback(address, target.host));
  return std::unique_ptr<NodeControl>(
      std::make_unique<GrpcNodeControl>(address, target, timeouts, std::move(credentials)));
}

}  // namespace terrace::legs
