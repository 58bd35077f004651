#include "common/transport/ucx/worker.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstring>

#include "common/base/block_signals.h"
#include "common/security/random.h"

namespace terrace::transport {
namespace {

// Steps of one progress(), so that a fast peer does not keep the owner from its other work.
constexpr int kMostSteps = 256;
constexpr std::size_t kMostChannels = std::size_t{1} << 16;
// For what is queued when a connection ends. The flush ends once the peer has it all: a stalled one never does.
constexpr std::chrono::milliseconds kFarewell{1'000};
// The same for the owner, who waits where its worker ends with its connection.
constexpr std::chrono::milliseconds kLastFarewell{50};
// A forced close takes a few steps. Only a bug of UCX takes this long, and it is better met here than in its
// destructor.
constexpr std::chrono::milliseconds kForcedClose{5'000};

Error refused(const char* what, ucs_status_t status) {
  return Error(ErrorCode::kIo, fmt::format("UCX: {}: {}", what, text_of(status)));
}

}  // namespace

bool has_ended(ucs_status_ptr_t& request) {
  if (request == nullptr) return true;
  if (!UCS_PTR_IS_ERR(request)) {
    if (ucp_request_check_status(request) == UCS_INPROGRESS) return false;
    ucp_request_free(request);
  }
  request = nullptr;
  return true;
}

// ---- setting up ----------------------------------------------------------------------------------------------------

Result<std::shared_ptr<Worker>> Worker::create(std::shared_ptr<Context> context, const UcxOptions& options) {
  TERRACE_RETURN_IF_ERROR(check_free_port(options.ports));
  TERRACE_ASSIGN_OR_RETURN(EventFd ready, EventFd::create());
  ready.signal();
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // connections are handed over between threads
  const BlockSignals blocked;                       // in UCX's thread, should it start now
  ucp_worker_h handle = nullptr;
  const ucs_status_t status = ucp_worker_create(context->handle(), &params, &handle);
  if (status != UCS_OK) return refused("no worker", status);
  std::shared_ptr<Worker> worker(new Worker(std::move(context), handle, std::move(ready)));
  TERRACE_RETURN_IF_ERROR(worker->set_up());
  return worker;
}

Status Worker::set_up() {
  if (const ucs_status_t status = ucp_worker_get_efd(handle_, &event_fd_); status != UCS_OK)
    return refused("no descriptor to wait for", status);
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  if (const ucs_status_t status = ucp_worker_get_address(handle_, &address, &bytes); status != UCS_OK)
    return refused("no address", status);
  const std::span<const std::byte> view(reinterpret_cast<const std::byte*>(address), bytes);
  address_.assign(view.begin(), view.end());
  ucp_worker_release_address(handle_, address);
  TERRACE_RETURN_IF_ERROR(set_handler(MessageId::kFrame, &handle_frame));
  TERRACE_RETURN_IF_ERROR(set_handler(MessageId::kCredit, &handle_short<&Channel::on_credit>));
  return set_handler(MessageId::kGoodbye, &handle_short<&Channel::on_goodbye>);
}

Status Worker::set_handler(MessageId id, Handler handler) {
  ucp_am_handler_param_t param{};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS | UCP_AM_HANDLER_PARAM_FIELD_CB |
                     UCP_AM_HANDLER_PARAM_FIELD_ARG;
  param.id = static_cast<unsigned>(id);
  param.flags = UCP_AM_FLAG_WHOLE_MSG;
  param.cb = handler;
  param.arg = this;
  const ucs_status_t status = ucp_worker_set_am_recv_handler(handle_, &param);
  if (status != UCS_OK) return refused("no handler of messages", status);
  return {};
}

Worker::~Worker() {
  progress_until([this] { return leaving_.empty(); }, kLastFarewell);
  for (Endpoint* endpoint : leaving_)
    if (!endpoint->is_closing) start_closing(*endpoint);
  progress_until([this] { return endpoints_.empty(); }, kForcedClose);
  ucp_worker_destroy(handle_);
}

// ---- messages ------------------------------------------------------------------------------------------------------

Result<std::uint64_t> Worker::remember(Channel* channel) {
  std::uint64_t token = 0;
  TERRACE_RETURN_IF_ERROR(security::random_bytes(std::as_writable_bytes(std::span(&token, 1))));
  auto place = std::find_if(channels_.begin(), channels_.end(), [](const Entry& entry) { return !entry.channel; });
  if (place == channels_.end()) {
    if (channels_.size() == kMostChannels) return Error(ErrorCode::kBusy, "too many connections of one UCX worker");
    place = channels_.emplace(channels_.end());
  }
  token = token << 16 | static_cast<std::uint64_t>(place - channels_.begin());
  *place = {token, channel};
  return token;
}

void Worker::forget(std::uint64_t token) { channels_[token & 0xffff].channel = nullptr; }

bool Worker::has_channels() const {
  return std::any_of(channels_.begin(), channels_.end(), [](const Entry& entry) { return entry.channel != nullptr; });
}

// Whoever reaches a port of UCX can send messages: those without a connection's token are nobody's.
Channel* Worker::find(const void* header, std::size_t header_bytes, MessageHeader& out) const {
  if (header_bytes != sizeof(out)) return nullptr;
  std::memcpy(&out, header, sizeof(out));
  const std::size_t place = out.token & 0xffff;
  if (place >= channels_.size() || channels_[place].token != out.token) return nullptr;
  return channels_[place].channel;
}

ucs_status_t Worker::handle_frame(void* worker, const void* header, std::size_t header_bytes, void* data,
                                  std::size_t bytes, const ucp_am_recv_param_t* param) {
  Channel::Message message;
  Channel* const channel = static_cast<Worker*>(worker)->find(header, header_bytes, message.header);
  if (channel == nullptr) return UCS_OK;  // dropped
  message.data = data;
  message.bytes = bytes;
  message.rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  return channel->on_frame(message);
}

template <void (Channel::*told)(const MessageHeader&)>
ucs_status_t Worker::handle_short(void* worker, const void* header, std::size_t header_bytes, void*, std::size_t,
                                  const ucp_am_recv_param_t*) {
  MessageHeader message;
  Channel* const channel = static_cast<Worker*>(worker)->find(header, header_bytes, message);
  if (channel != nullptr) (channel->*told)(message);
  return UCS_OK;
}

// ---- endpoints -----------------------------------------------------------------------------------------------------

Result<Endpoint*> Worker::open(std::span<const std::byte> address, Channel* channel) {
  auto endpoint = std::make_unique<Endpoint>();
  endpoint->channel = channel;
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {&handle_lost, endpoint.get()};
  const ucs_status_t status = ucp_ep_create(handle_, &params, &endpoint->handle);
  if (status != UCS_OK)
    return Error(ErrorCode::kPeerGone, fmt::format("UCX cannot connect to the peer's worker: {}", text_of(status)));
  endpoints_.push_back(std::move(endpoint));
  return endpoints_.back().get();
}

void Worker::handle_lost(void* argument, ucp_ep_h, ucs_status_t why) {
  auto& endpoint = *static_cast<Endpoint*>(argument);
  endpoint.lost = true;
  if (endpoint.channel != nullptr) endpoint.channel->on_lost(why);
}

void Worker::say_goodbye(Endpoint& endpoint, const MessageHeader& goodbye) {
  endpoint.channel = nullptr;
  endpoint.goodbye = goodbye;
  if (endpoint.lost) return;
  const ucp_request_param_t param{};
  endpoint.farewell[0] = ucp_am_send_nbx(endpoint.handle, static_cast<unsigned>(MessageId::kGoodbye), &endpoint.goodbye,
                                         sizeof(endpoint.goodbye), nullptr, 0, &param);
}

void Worker::leave(Endpoint* endpoint, const MessageHeader& goodbye) {
  say_goodbye(*endpoint, goodbye);
  const ucp_request_param_t param{};
  endpoint->farewell[1] = ucp_ep_flush_nbx(endpoint->handle, &param);
  endpoint->give_up_at = std::chrono::steady_clock::now() + kFarewell;
  leaving_.push_back(endpoint);
  progress();
}

void Worker::cut(Endpoint* endpoint, const MessageHeader& goodbye) {
  say_goodbye(*endpoint, goodbye);
  start_closing(*endpoint);
  leaving_.push_back(endpoint);
}

// Always by force: without it UCX waits for what the peer has not taken, and a stalled peer never does.
void Worker::start_closing(Endpoint& endpoint) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  endpoint.is_closing = true;
  endpoint.closing = ucp_ep_close_nbx(endpoint.handle, &param);
}

bool Worker::has_left(Endpoint& endpoint, std::chrono::steady_clock::time_point now) {
  const bool said = has_ended(endpoint.farewell[0]) & has_ended(endpoint.farewell[1]);
  if (!endpoint.is_closing && (said || endpoint.lost || now >= endpoint.give_up_at)) start_closing(endpoint);
  return endpoint.is_closing && said && has_ended(endpoint.closing);
}

void Worker::tend_leaving() {
  const auto now = std::chrono::steady_clock::now();
  std::erase_if(leaving_, [&](Endpoint* endpoint) {
    if (!has_left(*endpoint, now)) return false;
    std::erase_if(endpoints_, [&](const auto& each) { return each.get() == endpoint; });
    return true;
  });
}

// ---- progress ------------------------------------------------------------------------------------------------------

void Worker::progress() {
  for (int step = 0; step < kMostSteps && ucp_worker_progress(handle_) != 0; ++step) {
  }
  if (!leaving_.empty()) tend_leaving();
}

int Worker::armed_fd() { return ucp_worker_arm(handle_) == UCS_OK ? event_fd_ : ready_.fd(); }

// A forced close has no descriptor to wait for.
void Worker::wait_a_moment() {
  pollfd entry{event_fd_, POLLIN, 0};
  ::poll(&entry, 1, 1);
}

}  // namespace terrace::transport
