#include "tier_node/service/control_server.h"

#include <fmt/core.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "common/base/machine_identity.h"
#include "common/base/version.h"
#include "common/wire/versions.h"
#include "terrace/v1/node.grpc.pb.h"
#include "tier_node/service/control_listener.h"
#include "tier_node/service/handshake_log.h"
#include "tier_node/service/server_credentials.h"

namespace terrace::node {
namespace {

namespace v1 = ::terrace::v1;

constexpr int kMaxMessageBytes = 64 << 20;                  // manifests of two million slabs
constexpr int kMaxThreads = 256;                            // of gRPC: streams hold one each
constexpr std::size_t kMaxMemory = std::size_t{512} << 20;  // of gRPC: messages are parsed before anything is checked
constexpr std::chrono::milliseconds kAssignInterval{250};
constexpr std::chrono::milliseconds kCancelInterval{100};  // how late a client that has gone is noticed
constexpr std::uint32_t kMinStatusInterval = 50;           // ms
constexpr int kMaxStatusStreams = 32;                      // these two leave most threads to short calls
constexpr int kMaxAssignStreams = 32;
constexpr int kMaxStreams = 128;  // of a connection: a coordinator has few calls at once

// Only codes that the other side tells apart; UNAVAILABLE always means that the node is not there.
grpc::StatusCode code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return grpc::StatusCode::INVALID_ARGUMENT;
    case ErrorCode::kNotFound:
    case ErrorCode::kStaleEpoch:
      return grpc::StatusCode::NOT_FOUND;
    case ErrorCode::kCorrupt:
      return grpc::StatusCode::DATA_LOSS;
    case ErrorCode::kOutOfMemory:
      return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case ErrorCode::kBusy:
      return grpc::StatusCode::ABORTED;
    case ErrorCode::kPeerGone:
      return grpc::StatusCode::UNAVAILABLE;
    case ErrorCode::kUnsupported:
    case ErrorCode::kRefused:
    case ErrorCode::kDeadline:
      return grpc::StatusCode::FAILED_PRECONDITION;
    default:
      return grpc::StatusCode::INTERNAL;
  }
}

grpc::Status to_grpc(const Status& status) {
  return status.ok() ? grpc::Status::OK : grpc::Status(code_of(status.error().code()), status.error().text());
}

// A number in the message takes one byte, an item eight: counted before they are made.
Result<std::vector<ShareItem>> items_of(const v1::AssignRequest& request, const Model& model) {
  std::uint64_t n_items = 0;
  for (const v1::LayerShare& layer : request.layers()) n_items += static_cast<std::uint64_t>(layer.experts_size());
  const std::uint64_t n_slabs = std::uint64_t{model.n_layers()} * model.n_experts();
  if (n_items > n_slabs)
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("the share has {} experts, the model {}; each may stand once", n_items, n_slabs));
  std::vector<ShareItem> items;
  items.reserve(n_items);
  for (const v1::LayerShare& layer : request.layers())
    for (const std::uint32_t expert : layer.experts()) items.push_back({layer.layer(), expert});
  return items;
}

// The layers are bounded by the size of a message, and checked by SessionTable::estimate().
Result<EstimateRequest> request_of(const v1::EstimateRequest& request) {
  EstimateRequest asked;
  asked.model.d_model = request.d_model();
  asked.model.n_experts = request.n_experts();
  for (const v1::ExpertLayer& message : request.layers()) {
    manifest::LayerShape layer;
    layer.n_experts = message.n_experts();
    layer.d_model = request.d_model();
    layer.ff = message.ff();
    const auto type_of = [](std::uint32_t id, TensorType& out) -> Status {
      const TensorTypeInfo* type = find_tensor_type(id);
      if (type == nullptr) return Error(ErrorCode::kUnsupported, fmt::format("tensor type {} is unknown here", id));
      out = type->type;
      return {};
    };
    TERRACE_RETURN_IF_ERROR(type_of(message.gate_type(), layer.types.gate));
    TERRACE_RETURN_IF_ERROR(type_of(message.up_type(), layer.types.up));
    TERRACE_RETURN_IF_ERROR(type_of(message.down_type(), layer.types.down));
    asked.model.layers.push_back(layer);
  }
  asked.limits = {request.max_rows(), request.max_pairs(), request.max_ranges(), request.largest_frame(),
                  request.sockets()};
  asked.slab_bytes = request.slab_bytes();
  return asked;
}

v1::AssignProgress to_message(const AssignProgress& progress) {
  v1::AssignProgress message;
  message.set_ready(progress.ready);
  message.set_slabs_total(progress.slabs_total);
  message.set_slabs_ready(progress.slabs_ready);
  message.set_bytes_ready(progress.bytes_ready);
  v1::LayerShare* layer = nullptr;
  for (const ShareItem& item : progress.wanted) {
    if (layer == nullptr || layer->layer() != item.layer) {
      layer = message.add_wanted();
      layer->set_layer(item.layer);
    }
    layer->add_experts(item.expert);
  }
  return message;
}

void describe_cpus(const CpuChoice& cpus, v1::CpuStatus& message) {
  message.set_threads(cpus.n_threads);
  message.mutable_cpus()->Assign(cpus.cpus().begin(), cpus.cpus().end());
  message.set_pinned(!cpus.pinned.empty());
  message.set_waiting(name(cpus.waiting));
  message.set_why(cpus.why);
}

// What computing takes of a card is reserved from the start.
void describe_card(const kernels::CardFacts& card, const arena::StoreUsage& slabs, v1::CardStatus& message) {
  message.set_index(static_cast<std::uint32_t>(card.index));
  message.set_name(card.name);
  message.set_budget(card.budget_bytes);
  message.set_reserved(card.budget_bytes - slabs.free());
  message.set_used(slabs.used);
}

void describe_session(Session& session, v1::SessionStatus& message) {
  const Session::EpochSummary epoch = session.newest_epoch();
  const Counters& counters = session.counters();
  message.set_number(session.number());
  message.set_coordinator(session.coordinator());
  message.set_epoch(epoch.number);
  message.set_experts(epoch.n_slabs);
  message.set_batches(counters.batches);
  message.set_rows(counters.rows);
  message.set_pairs(counters.pairs);
  message.set_bytes_sent(counters.bytes_sent);
  message.set_bytes_received(counters.bytes_received);
  message.set_compute_us(counters.compute_us);
  message.set_data_cipher(security::name(session.data_cipher()));
  message.set_sockets(session.limits().batch.sockets);
  message.set_link_bytes_per_second(session.link_rate().measured());
  message.set_paced_bytes_per_second(session.link_rate().pace());
}

// One of at most `most` streams of a kind, while it lives.
class StreamPlace {
 public:
  StreamPlace(std::atomic<int>& taken, int most) : taken_(taken), got_(++taken <= most) {}
  ~StreamPlace() { --taken_; }
  StreamPlace(const StreamPlace&) = delete;
  StreamPlace& operator=(const StreamPlace&) = delete;
  bool got() const { return got_; }

 private:
  std::atomic<int>& taken_;
  const bool got_;
};

grpc::Status no_place(const char* kind, int most) {
  return {grpc::StatusCode::RESOURCE_EXHAUSTED,
          fmt::format("{} {} streams are open, the most this node serves; end one of them", most, kind)};
}

class NodeService final : public v1::Node::Service {
 public:
  NodeService(SessionTable& sessions, SlabLoader& loader, const NodeInfo& info,
              std::shared_ptr<security::Credentials> credentials)
      : sessions_(sessions), loader_(loader), info_(info), credentials_(std::move(credentials)) {}

  void set_listen(std::string listen) { listen_ = std::move(listen); }

  // Streams end, now and later.
  void stop() {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    stopped_.notify_all();
  }

  grpc::Status Describe(grpc::ServerContext*, const v1::DescribeRequest*, v1::DescribeReply* reply) override {
    const arena::StoreUsage memory = sessions_.store().usage();
    reply->set_version(version());
    reply->mutable_protocol()->set_min(wire::kProtocolMin);
    reply->mutable_protocol()->set_max(wire::kProtocolMax);
    reply->set_numerics_version(wire::kNumericsVersion);
    reply->set_boot_id(sessions_.boot_id());
    reply->set_isa(info_.isa);
    reply->mutable_kernels()->insert(info_.kernels.begin(), info_.kernels.end());
    reply->set_memory_budget(memory.budget);
    reply->set_memory_free(memory.budget - memory.reserved);
    reply->set_threads(info_.cpus.n_threads);
    reply->set_data_port(info_.data_port);
    for (const std::string& capability : capabilities()) reply->add_capabilities(capability);
    reply->set_machine(info_.machine);
    reply->set_link(info_.link_kind);
    if (info_.card) describe_card(*info_.card, sessions_.card_store()->usage(), *reply->add_cards());
    return grpc::Status::OK;
  }

  grpc::Status Estimate(grpc::ServerContext*, const v1::EstimateRequest* request, v1::EstimateReply* reply) override {
    auto asked = request_of(*request);
    if (!asked.ok()) return to_grpc(asked.error());
    const auto estimate = sessions_.estimate(std::move(*asked));
    if (!estimate.ok()) return to_grpc(estimate.error());
    reply->set_slab_bytes(estimate->terms.slabs);
    reply->set_staging_bytes(estimate->terms.staging);
    reply->set_scratch_bytes(estimate->terms.scratch);
    reply->set_reserved_bytes(estimate->total);
    reply->set_memory_budget(estimate->memory.budget);
    reply->set_memory_free(estimate->memory.budget - estimate->memory.reserved);
    reply->set_memory_available(estimate->available);
    reply->set_card_bytes(estimate->card);
    reply->set_card_budget(estimate->card_memory.budget);
    reply->set_card_free(estimate->card_memory.free());
    return grpc::Status::OK;
  }

  grpc::Status OpenSession(grpc::ServerContext* context, const v1::OpenSessionRequest* request,
                           v1::OpenSessionReply* reply) override {
    OpenRequest open;
    auto peer = peer_of(*context, credentials_.get());
    if (!peer.ok()) return to_grpc(peer.error());
    open.peer = std::move(*peer);
    open.protocol_min = request->protocol().min();
    open.protocol_max = request->protocol().max();
    open.numerics_version = request->numerics_version();
    open.required_capabilities.assign(request->required_capabilities().begin(), request->required_capabilities().end());
    open.manifest = std::as_bytes(std::span(request->manifest()));
    open.limits = {request->max_rows(), request->max_pairs(), request->max_ranges(), request->largest_frame(),
                   request->sockets()};
    open.coordinator = request->coordinator();
    open.data_ciphers.assign(request->data_ciphers().begin(), request->data_ciphers().end());
    const auto opened = sessions_.open(open);
    if (!opened.ok()) return to_grpc(opened.error());
    const Session& session = *opened->session;
    reply->set_protocol(opened->protocol);
    reply->set_session(session.id());
    reply->set_boot_id(sessions_.boot_id());
    reply->set_data_key(session.data_key().bytes().data(), security::Key::kBytes);
    reply->set_data_cipher(security::name(session.data_cipher()));
    reply->set_sockets(session.limits().batch.sockets);
    reply->set_data_port(info_.data_port);
    reply->set_largest_frame(session.limits().largest_frame);
    reply->set_has_model(loader_.has_model(session));
    return grpc::Status::OK;
  }

  grpc::Status Reserve(grpc::ServerContext* context, const v1::ReserveRequest* request,
                       v1::ReserveReply* reply) override {
    const auto session = find(*context, request->session());
    if (!session.ok()) return to_grpc(session.error());
    const auto go_on = [&] { return !context->IsCancelled() && !pause(std::chrono::milliseconds(0)); };
    const auto reserved =
        request->resize()
            ? sessions_.resize(**session, request->slab_bytes(), go_on)
            : sessions_.reserve(**session, {request->slab_bytes(), request->staging_bytes(), request->scratch_bytes()},
                                go_on);
    if (!reserved.ok()) return to_grpc(reserved.error());
    reply->set_reserved_bytes(*reserved);
    reply->set_lease_ms(static_cast<std::uint32_t>(sessions_.lease().count()));
    return grpc::Status::OK;
  }

  grpc::Status Release(grpc::ServerContext* context, const v1::ReleaseRequest* request, v1::ReleaseReply*) override {
    const auto session = find(*context, request->session());
    return session.ok() ? to_grpc((*session)->release()) : to_grpc(session.error());
  }

  grpc::Status Heartbeat(grpc::ServerContext* context, const v1::HeartbeatRequest* request,
                         v1::HeartbeatReply*) override {
    const auto session = find(*context, request->session());
    return to_grpc(session.ok() ? sessions_.heartbeat((*session)->id()) : session.error());
  }

  grpc::Status Assign(grpc::ServerContext* context, const v1::AssignRequest* request,
                      grpc::ServerWriter<v1::AssignProgress>* writer) override {
    const auto session = find(*context, request->session());
    if (!session.ok()) return to_grpc(session.error());
    const StreamPlace place(assign_streams_, kMaxAssignStreams);
    if (!place.got()) return no_place("Assign", kMaxAssignStreams);
    const auto items = items_of(*request, (*session)->model());
    if (!items.ok()) return to_grpc(items.error());
    const auto assignment = (*session)->begin_assign(request->epoch(), *items);
    if (!assignment.ok()) return to_grpc(assignment.error());
    if (!(*assignment)->finished()) loader_.start(*session, *assignment);
    return follow(*context, **session, *assignment, *writer);
  }

  grpc::Status Forget(grpc::ServerContext* context, const v1::ForgetRequest* request, v1::ForgetReply*) override {
    const auto session = find(*context, request->session());
    return session.ok() ? to_grpc((*session)->forget(request->epoch())) : to_grpc(session.error());
  }

  grpc::Status CloseSession(grpc::ServerContext* context, const v1::CloseSessionRequest* request,
                            v1::CloseSessionReply*) override {
    const auto session = find(*context, request->session());
    return to_grpc(session.ok() ? sessions_.close((*session)->id()) : session.error());
  }

  grpc::Status Probe(grpc::ServerContext* context, const v1::ProbeRequest* request, v1::ProbeReply* reply) override {
    const auto session = find(*context, request->session());
    if (!session.ok()) return to_grpc(session.error());
    if (const auto begun = sessions_.begin_probe((*session)->id()); !begun.ok()) return to_grpc(begun);
    reply->set_machine(std::max<std::uint64_t>(machine_id(), 1));
    reply->set_cache_bytes(last_level_cache_bytes());
    reply->set_threads(info_.cpus.n_threads);
    reply->set_max_slab_bytes(Session::kMaxProbeBytes);
    reply->set_max_ms(static_cast<std::uint32_t>(sessions_.max_probe_time().count()));
    return grpc::Status::OK;
  }

  grpc::Status Status(grpc::ServerContext* context, const v1::StatusRequest* request,
                      grpc::ServerWriter<v1::StatusReply>* writer) override {
    std::optional<StreamPlace> place;  // one answer needs none
    if (request->interval_ms() != 0) place.emplace(status_streams_, kMaxStatusStreams);
    if (place && !place->got()) return no_place("Status", kMaxStatusStreams);
    const std::chrono::milliseconds interval(std::max(request->interval_ms(), kMinStatusInterval));
    while (writer->Write(status_now()) && request->interval_ms() != 0) {
      const auto next = std::chrono::steady_clock::now() + interval;
      while (std::chrono::steady_clock::now() < next) {
        const auto left = next - std::chrono::steady_clock::now();
        if (context->IsCancelled() || pause(std::min<std::chrono::nanoseconds>(left, kCancelInterval)))
          return grpc::Status::OK;
      }
    }
    return grpc::Status::OK;
  }

  grpc::Status Drain(grpc::ServerContext*, const v1::DrainRequest*, v1::DrainReply*) override {
    sessions_.drain();
    return grpc::Status::OK;
  }

 private:
  // Of the caller's sessions.
  Result<SessionRef> find(const grpc::ServerContext& context, std::uint64_t id) const {
    TERRACE_ASSIGN_OR_RETURN(const std::string peer, peer_of(context, credentials_.get()));
    return sessions_.find(id, peer);
  }

  // When there is something to tell, and at least twice a second until the epoch is live.
  grpc::Status follow(grpc::ServerContext& context, Session& session, const AssignmentRef& assignment,
                      grpc::ServerWriter<v1::AssignProgress>& writer) {
    AssignProgress progress = assignment->wait(kAssignInterval);
    while (!progress.failed) {
      const bool heard = writer.Write(to_message(progress));
      if (progress.ready) return grpc::Status::OK;
      if (!heard || context.IsCancelled() || pause(std::chrono::milliseconds(0))) {
        session.abandon_assign(assignment, Error(ErrorCode::kPeerGone, "nobody waits for this assignment any more"));
        return grpc::Status::CANCELLED;
      }
      progress = assignment->wait(kAssignInterval);
    }
    return to_grpc(*progress.failed);
  }

  v1::StatusReply status_now() {
    v1::StatusReply reply;
    reply.set_listen(listen_);
    reply.set_boot_id(sessions_.boot_id());
    reply.set_version(version());
    reply.set_numerics_version(wire::kNumericsVersion);
    reply.set_state(sessions_.draining() ? "draining" : "ok");
    reply.set_isa(info_.isa);
    reply.mutable_kernels()->insert(info_.kernels.begin(), info_.kernels.end());
    const arena::StoreUsage memory = sessions_.store().usage();
    reply.mutable_memory()->set_budget(memory.budget);
    reply.mutable_memory()->set_reserved(memory.reserved);
    reply.mutable_memory()->set_used(memory.used);
    reply.mutable_memory()->set_locked(arena::locked_bytes());
    describe_cpus(info_.cpus, *reply.mutable_cpus());
    for (const std::string& line : info_.confinement) reply.add_confinement(line);
    reply.set_link(info_.link);
    if (info_.card) describe_card(*info_.card, sessions_.card_store()->usage(), *reply.add_cards());
    for (const SessionRef& session : sessions_.all()) describe_session(*session, *reply.add_sessions());
    return reply;
  }

  // True: the server stops.
  bool pause(std::chrono::nanoseconds time) {
    std::unique_lock lock(mutex_);
    return stopped_.wait_for(lock, time, [this] { return stopping_; });
  }

  SessionTable& sessions_;
  SlabLoader& loader_;
  const NodeInfo info_;
  const std::shared_ptr<security::Credentials> credentials_;  // null: none
  std::string listen_;                                        // before the first call
  std::atomic<int> status_streams_ = 0;
  std::atomic<int> assign_streams_ = 0;

  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;
};

void bound_connections(const ControlOptions& options, grpc::ServerBuilder& builder) {
  const auto set = [&](const char* name, std::chrono::milliseconds time) {
    builder.AddChannelArgument(name, static_cast<int>(time.count()));
  };
  set(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, options.handshake_timeout);
  set(GRPC_ARG_MAX_CONNECTION_IDLE_MS, options.idle_timeout);
  set(GRPC_ARG_KEEPALIVE_TIME_MS, options.keepalive_time);
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, options.keepalive_timeout);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // else the third is not sent
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreams);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // gRPC binds nothing here; if it ever does, alone
}

std::string with_port(const std::string& address, int port) {
  return fmt::format("{}:{}", address.substr(0, address.rfind(':')), port);
}

}  // namespace

struct ControlServer::Impl {
  Impl(SessionTable& sessions, SlabLoader& loader, const NodeInfo& info,
       std::shared_ptr<security::Credentials> credentials)
      : service(sessions, loader, info, std::move(credentials)) {}

  NodeService service;
  std::optional<HandshakeLog> handshake_log;  // with credentials
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<ControlListener> listener;
  std::string address;
};

Result<std::unique_ptr<ControlServer>> ControlServer::start(const std::string& address, SessionTable& sessions,
                                                            SlabLoader& loader, const NodeInfo& info,
                                                            const ControlOptions& options) {
  // Process-wide switches of gRPC, which have to be set before a server is built.
  HandshakeLog::take_over();
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();

  auto impl = std::make_unique<Impl>(sessions, loader, info, options.credentials);
  grpc::ResourceQuota quota;
  quota.SetMaxThreads(kMaxThreads);
  quota.Resize(kMaxMemory);
  grpc::ServerBuilder builder;
  bound_connections(options, builder);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetResourceQuota(quota);
  impl->acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      make_server_credentials(options.credentials));
  builder.RegisterService(&impl->service);
  impl->server = builder.BuildAndStart();
  if (!impl->server) return Error(ErrorCode::kIo, fmt::format("{}: the control server does not start", address));
  const auto on_connection = [acceptor = impl->acceptor.get()](int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    acceptor->HandleNewConnection(&connection);
  };
  TERRACE_ASSIGN_OR_RETURN(impl->listener,
                           ControlListener::start(address, options.max_connections, on_connection, options.log));
  impl->address = with_port(address, impl->listener->port());
  impl->service.set_listen(impl->address);
  if (options.credentials) impl->handshake_log.emplace(options.log, impl->address);
  return std::unique_ptr<ControlServer>(new ControlServer(std::move(impl)));
}

ControlServer::ControlServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ControlServer::~ControlServer() {
  impl_->listener.reset();
  impl_->service.stop();
  impl_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
}

std::uint16_t ControlServer::port() const { return impl_->listener->port(); }
const std::string& ControlServer::address() const { return impl_->address; }

void ControlServer::announce_drain() { impl_->server->GetHealthCheckService()->SetServingStatus(false); }

}  // namespace terrace::node
