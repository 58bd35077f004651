#include "common/transport/ucx/ucx_connection.h"

#include <fmt/format.h>
#include <poll.h>

#include <array>
#include <utility>

#include "common/wire/messages.h"

namespace terrace::transport {
namespace {

// Beyond the address: header, section header, token and window, padding.
constexpr std::uint64_t kLargestIntroduction = wire::kLargestWorkerAddress + 256;
// For what UCX still fetches when a connection is destroyed; then its memory is the worker's.
constexpr std::chrono::milliseconds kLastFetch{100};
// For what it still sends when one ends. A forced close takes a few steps.
constexpr std::chrono::milliseconds kLastSends{5'000};

}  // namespace

Options UcxConnection::options_of_setup() {
  Options options;
  options.largest_frame = kLargestIntroduction;
  options.receive_window = 2 * kLargestIntroduction;
  options.max_open_sends = 1;
  return options;
}

// ---- setting up ----------------------------------------------------------------------------------------------------

UcxConnection::UcxConnection(Role role, std::shared_ptr<Worker> worker, std::unique_ptr<Connection> setup,
                             const Options& options)
    : role_(role),
      worker_(std::move(worker)),
      setup_(std::move(setup)),
      peer_name_(setup_->peer_name()),
      inbox_(std::make_shared<Inbox>(options)),
      outbox_(std::make_unique<Outbox>(options.max_open_sends)) {}

Result<std::unique_ptr<Connection>> UcxConnection::create(Role role, std::shared_ptr<Worker> worker,
                                                          std::unique_ptr<Connection> setup, const Options& options) {
  std::unique_ptr<UcxConnection> connection(new UcxConnection(role, std::move(worker), std::move(setup), options));
  TERRACE_ASSIGN_OR_RETURN(connection->token_, connection->worker_->remember(connection.get()));
  if (role == Role::kClient) TERRACE_RETURN_IF_ERROR(connection->introduce());
  return std::unique_ptr<Connection>(std::move(connection));
}

Status UcxConnection::introduce() {
  introduction_.begin({.type = wire::FrameType::kEndpoint});
  wire::add_endpoint(introduction_, {{token_, inbox_->window()}, worker_->address()});
  const auto ticket = setup_->send(introduction_.finish());
  return ticket.ok() ? Status() : ticket.error();
}

// The client speaks first. Once each has the other's words, the connection that carried them ends.
void UcxConnection::set_up() {
  std::array<Event, 4> events;
  const std::size_t n = setup_->poll(events);
  bool said = false;
  for (const Event& event : std::span(events).first(n)) {
    switch (event.kind) {
      case Event::Kind::kSent:
        said = true;
        break;
      case Event::Kind::kReceived: {
        const Status met = meet(event.frame);
        setup_->release(event.frame);
        if (!met.ok()) return close_because(met.error().in(peer_name_));
        break;
      }
      case Event::Kind::kClosed:
        return close_because(setup_->close_reason());
    }
  }
  const bool done = role_ == Role::kClient ? endpoint_ != nullptr : said;
  if (!done) return;
  state_ = State::kOpen;
  setup_.reset();
  // Both ends send something at once: the ports of UCX are connected before the first batch wants them.
  outbox_->submit_credit(*endpoint_, *inbox_);
}

Status UcxConnection::meet(std::span<const std::byte> frame) {
  if (endpoint_ != nullptr) return Error(ErrorCode::kCorrupt, "a second frame where one says where UCX is reached");
  TERRACE_ASSIGN_OR_RETURN(const wire::Frame decoded, wire::decode_frame(frame));
  if (decoded.header.type == wire::FrameType::kChallenge)
    return Error(ErrorCode::kRefused, "the other end's link is tcp, this one's ucx: give both the same --link");
  TERRACE_ASSIGN_OR_RETURN(const wire::EndpointMessage peer, wire::read_endpoint(decoded));
  outbox_->set_peer(peer.info.token, peer.info.window);
  TERRACE_ASSIGN_OR_RETURN(endpoint_, worker_->open(peer.address, this));
  return role_ == Role::kServer ? introduce() : Status();
}

// ---- messages ------------------------------------------------------------------------------------------------------

ucs_status_t UcxConnection::on_frame(const Message& message) {
  on_credit(message.header);
  return inbox_->on_frame(message);
}

void UcxConnection::on_credit(const MessageHeader& header) {
  if (!outbox_->take_credit(header) && !lost_)
    lost_ = Error(ErrorCode::kCorrupt, peer_name_ + ": it gives credit for what it was not sent");
}

void UcxConnection::on_goodbye(const MessageHeader& header) {
  if (header.number == kAtOnce) {
    if (!lost_) lost_ = Error(ErrorCode::kPeerGone, peer_name_ + ": closed by the peer");
    return;
  }
  peer_left_ = true;
  peer_frames_ = header.number;
}

void UcxConnection::on_lost(ucs_status_t why) {
  if (!lost_) lost_ = Error(ErrorCode::kPeerGone, fmt::format("{}: lost: {}", peer_name_, text_of(why)));
}

// ---- the owner's ---------------------------------------------------------------------------------------------------

Result<SendTicket> UcxConnection::send(std::span<const Part> parts) {
  if (state_ > State::kOpen) return Error(ErrorCode::kPeerGone, reason_.text());
  auto ticket = outbox_->push(parts);
  if (!ticket.ok()) return ticket.error().in(peer_name_);
  if (state_ == State::kOpen && !endpoint_->lost) (void)outbox_->submit(*endpoint_, *inbox_);
  return ticket;
}

std::size_t UcxConnection::poll(std::span<Event> out) {
  if (state_ == State::kReported) return 0;
  if (state_ == State::kSettingUp) set_up();
  worker_->progress();
  move();
  std::size_t n = outbox_->report_sent(out);
  n += take_frames(out.subspan(n));
  if (n < out.size()) look_for_the_end();
  n += outbox_->report_sent(out.subspan(n));
  return n + report_closed(out.subspan(n));
}

void UcxConnection::move() {
  if (state_ != State::kOpen || endpoint_->lost) return;
  inbox_->fetch(worker_->handle());
  (void)outbox_->submit(*endpoint_, *inbox_);
  give_credit();
}

void UcxConnection::give_credit() {
  if (state_ == State::kOpen && !endpoint_->lost && outbox_->can_submit_credit() && inbox_->owes_credit())
    outbox_->submit_credit(*endpoint_, *inbox_);
}

std::size_t UcxConnection::take_frames(std::span<Event> out) {
  if (state_ != State::kOpen) return 0;
  for (std::size_t n = 0; n < out.size(); ++n) {
    const auto frame = inbox_->next();
    if (!frame) {
      if (n > 0) give_credit();
      return n;
    }
    bytes_received_ += frame->size();
    out[n] = {Event::Kind::kReceived, 0, *frame};
  }
  return out.size();
}

// No frame is ready: what ends the connection came behind them all.
void UcxConnection::look_for_the_end() {
  if (state_ != State::kOpen || inbox_->has_next()) return;
  if (inbox_->failure())
    close_because(inbox_->failure()->in(peer_name_));
  else if (peer_left_ && inbox_->taken() >= peer_frames_)
    close_because(Error(ErrorCode::kPeerGone, peer_name_ + ": closed by the peer"));
  else if (lost_)
    close_because(*lost_);
}

void UcxConnection::set_largest_frame(std::uint64_t bytes) {
  inbox_->set_largest_frame(bytes);
  give_credit();
}

void UcxConnection::release(std::span<const std::byte> frame) {
  inbox_->release(frame);
  give_credit();
}

// Something that has come in another connection's poll(), or that waits for this side.
bool UcxConnection::has_something() const {
  if (state_ > State::kOpen || outbox_->has_sent()) return true;
  if (state_ == State::kSettingUp) return false;
  if (inbox_->has_next() || inbox_->failure() || lost_ || (peer_left_ && inbox_->taken() >= peer_frames_)) return true;
  return inbox_->has_to_fetch() || outbox_->can_submit() || (inbox_->owes_credit() && outbox_->can_submit_credit());
}

int UcxConnection::wait_fd() {
  if (state_ == State::kReported) return -1;
  if (has_something()) return worker_->ready_fd();
  return state_ == State::kSettingUp ? setup_->wait_fd() : worker_->armed_fd();
}

short UcxConnection::wait_events() {
  return state_ == State::kSettingUp && !has_something() ? setup_->wait_events() : short{POLLIN};
}

UnfinishedFrame UcxConnection::unfinished() const {
  if (state_ != State::kOpen || lost_ || !inbox_->is_unfinished()) return {};
  // How much of it has come UCX does not say.
  const std::uint64_t length = inbox_->length_of_unfinished();
  return {inbox_->taken(), length != 0 ? length : wire::kHeaderBytes, length};
}

TransportStats UcxConnection::stats() const {
  return {outbox_->bytes_sent(), bytes_received_, outbox_->frames_sent(), inbox_->taken(), inbox_->bytes_copied()};
}

// ---- ends ----------------------------------------------------------------------------------------------------------

void UcxConnection::close() { close_because(Error(ErrorCode::kPeerGone, peer_name_ + ": closed by this side")); }

void UcxConnection::close_because(Error reason) {
  if (state_ > State::kOpen) return;
  state_ = State::kClosed;
  reason_ = std::move(reason);
  setup_.reset();
  if (token_ != 0) worker_->forget(token_);
  inbox_->drop_announced(worker_->handle());
  if (endpoint_ != nullptr) part();
  outbox_->give_up();
}

// Where UCX has something of ours, only a cut gives it back. Whoever closes may take back what it lent to send() at
// once, as over any other transport: UCX has none of it any more.
void UcxConnection::part() {
  Endpoint* const endpoint = std::exchange(endpoint_, nullptr);
  if (!endpoint->lost && !peer_left_ && outbox_->n_open() == 0 && !inbox_->is_fetching())
    return worker_->leave(endpoint, outbox_->header(outbox_->frames_submitted(), *inbox_));
  worker_->cut(endpoint, outbox_->header(kAtOnce, *inbox_));
  const bool given_back = worker_->progress_until([this] { return outbox_->n_open() == 0; }, kLastSends);
  TERRACE_CHECK(given_back, "UCX gives a send back once its endpoint has been closed by force");
}

std::size_t UcxConnection::report_closed(std::span<Event> out) {
  if (state_ != State::kClosed || !outbox_->report_closed(out)) return 0;
  state_ = State::kReported;
  return 1;
}

UcxConnection::~UcxConnection() {
  close();
  if (!worker_->progress_until([this] { return !inbox_->is_fetching(); }, kLastFetch)) worker_->keep(inbox_);
}

}  // namespace terrace::transport
