#include "tier_node/session/session_table.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "common/base/printable.h"
#include "common/security/random.h"
#include "common/threads/start.h"
#include "common/wire/versions.h"

namespace terrace::node {
namespace {

constexpr std::chrono::milliseconds kHousekeepingPeriod{250};
constexpr std::size_t kMaxName = 64;

Error refused(std::string text) { return Error(ErrorCode::kRefused, std::move(text)); }

Result<std::uint64_t> random_id() {
  std::uint64_t id = 0;
  while (id == 0) TERRACE_RETURN_IF_ERROR(security::random_bytes(std::as_writable_bytes(std::span(&id, 1))));
  return id;
}

Error not_open(std::uint64_t id) {
  return Error(
      ErrorCode::kNotFound,
      fmt::format("session {:016x} is not open on this node: closed, its lease over, or the node restarted", id));
}

}  // namespace

std::vector<std::string> capabilities() { return {"sum", "slots", "weights"}; }

Result<std::unique_ptr<SessionTable>> SessionTable::create(arena::SlabStore& store, const SessionOptions& options,
                                                           const Logger& log) {
  TERRACE_ASSIGN_OR_RETURN(const std::uint64_t boot_id, random_id());
  std::unique_ptr<SessionTable> table(new SessionTable(store, options, log, boot_id));
  if (options.housekeeping) {
    TERRACE_ASSIGN_OR_RETURN(table->housekeeper_,
                             start_thread("terrace-leases", [t = table.get()] { t->housekeeping_loop(); }));
  }
  return table;
}

SessionTable::SessionTable(arena::SlabStore& store, const SessionOptions& options, const Logger& log,
                           std::uint64_t boot_id)
    : store_(store), options_(options), log_(log), boot_id_(boot_id) {}

SessionTable::~SessionTable() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (housekeeper_.joinable()) housekeeper_.join();
  TERRACE_CHECK(sessions_.empty(), "sessions outlive their table");
}

Status SessionTable::check_versions(const OpenRequest& request) const {
  if (request.protocol_min > wire::kProtocolMax || request.protocol_max < wire::kProtocolMin ||
      request.protocol_min > request.protocol_max)
    return refused(
        fmt::format("the coordinator speaks protocol {} to {}, this node {} to {}; use builds that share a "
                    "version",
                    request.protocol_min, request.protocol_max, wire::kProtocolMin, wire::kProtocolMax));
  if (request.numerics_version != wire::kNumericsVersion)
    return refused(
        fmt::format("the coordinator computes by numerics version {}, this node by {}; their results would "
                    "differ: use builds of one version",
                    request.numerics_version, wire::kNumericsVersion));
  const std::vector<std::string> known = capabilities();
  for (const std::string& capability : request.required_capabilities)
    if (std::find(known.begin(), known.end(), capability) == known.end())
      return refused(fmt::format("the coordinator requires the capability \"{}\"; this node has {}",
                                 printable(capability, kMaxName), fmt::join(known, ", ")));
  return {};
}

// Names that this build does not know are those of another one: the rest decides.
Result<security::Cipher> SessionTable::choose_cipher(const OpenRequest& request) const {
  std::vector<security::Cipher> theirs;
  for (const std::string& cipher : request.data_ciphers)
    if (const auto known = security::cipher_from_name(cipher)) theirs.push_back(*known);
  if (request.data_ciphers.empty()) theirs.push_back(security::Cipher::kPlain);
  const std::vector<security::Cipher> ours = security::accepted_ciphers(options_.limits.seal);
  if (const auto agreed = security::agree(ours, theirs)) return *agreed;
  const auto names = [](const std::vector<security::Cipher>& ciphers) {
    std::vector<std::string> list;
    for (const security::Cipher cipher : ciphers) list.emplace_back(security::name(cipher));
    return fmt::format("{}", fmt::join(list, ", "));
  };
  return refused(
      fmt::format("data connections: the coordinator takes {}, this node {}; links are sealed where both have "
                  "credentials and neither has --plain-data: start both alike",
                  theirs.empty() ? "nothing that is known here" : names(theirs), names(ours)));
}

Status SessionTable::check_room() const {
  if (draining_) return refused("this node is draining and opens no sessions");
  if (sessions_.size() >= options_.max_sessions)
    return refused(fmt::format("{} sessions are open, the most this node holds", sessions_.size()));
  return {};
}

Result<SessionTable::Opened> SessionTable::open(const OpenRequest& request) {
  TERRACE_RETURN_IF_ERROR(check_versions(request));
  // A manifest is kept without a reservation, so its bytes are counted before it is looked at.
  const std::uint64_t bytes = request.manifest.size();
  {
    const std::lock_guard lock(mutex_);
    TERRACE_RETURN_IF_ERROR(check_room());
    if (bytes > options_.max_manifest_bytes - manifest_bytes_)
      return refused(fmt::format("the manifest has {} bytes; this node keeps {} for all sessions, {} are taken", bytes,
                                 options_.max_manifest_bytes, manifest_bytes_));
    manifest_bytes_ += bytes;
  }
  auto opened = open_model(request);
  if (!opened.ok()) {
    const std::lock_guard lock(mutex_);
    manifest_bytes_ -= bytes;
  }
  return opened;
}

Result<SessionTable::Opened> SessionTable::open_model(const OpenRequest& request) {
  TERRACE_ASSIGN_OR_RETURN(Model model, Model::parse(request.manifest, options_.machine));
  TERRACE_ASSIGN_OR_RETURN(const SessionLimits limits, make_limits(model, request.limits, options_.limits));
  Session::Identity identity;
  TERRACE_ASSIGN_OR_RETURN(identity.id, random_id());
  TERRACE_ASSIGN_OR_RETURN(identity.data_key, security::Key::make());
  TERRACE_ASSIGN_OR_RETURN(identity.data_cipher, choose_cipher(request));
  identity.coordinator =
      request.coordinator.empty() ? "an unnamed coordinator" : printable(request.coordinator, kMaxName);
  identity.peer = request.peer;
  {
    const std::lock_guard lock(mutex_);
    identity.number = ++last_number_;
  }
  auto session =
      std::make_shared<Session>(std::move(identity), std::move(model), limits, options_.clock() + options_.lease,
                                [this](const Session& ended) { remove(ended); });
  {
    const std::lock_guard lock(mutex_);
    TERRACE_RETURN_IF_ERROR(check_room());  // again: parsing took its time
    sessions_.emplace(session->id(), session);
    past_.opened += 1;
  }
  wake_.notify_all();
  log_.info("{} opened; its data connections: {}", session->name(), security::name(session->data_cipher()));
  return Opened{std::move(session), std::min(request.protocol_max, wire::kProtocolMax)};
}

Result<Estimate> SessionTable::estimate(EstimateRequest request) const {
  for (const manifest::LayerShape& layer : request.model.layers)
    TERRACE_RETURN_IF_ERROR(manifest::check_layer_shape(layer));
  TERRACE_ASSIGN_OR_RETURN(const Model model, Model::outline(std::move(request.model), options_.machine));
  TERRACE_ASSIGN_OR_RETURN(const SessionLimits limits, make_limits(model, request.limits, options_.limits));
  Estimate estimate;
  if (options_.card_store != nullptr) estimate.card_memory = options_.card_store->usage();
  const SplitTerms split =
      split_terms(model, reservation_terms(model, limits, {request.slab_bytes, 0, 0}), estimate.card_memory.free());
  estimate.terms = split.ram;
  estimate.card = split.card;
  const auto total = arena::total_bytes(estimate.terms);
  if (!total) return Error(ErrorCode::kOutOfMemory, "the share needs more than 2^64 bytes; lower it");
  estimate.total = *total;
  estimate.memory = store_.usage();
  TERRACE_ASSIGN_OR_RETURN(estimate.available, store_.available());
  return estimate;
}

Result<SessionRef> SessionTable::find(std::uint64_t id) const {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(id);
  if (found != sessions_.end()) return found->second;
  return not_open(id);
}

Result<SessionRef> SessionTable::find(std::uint64_t id, const std::string& peer) const {
  TERRACE_ASSIGN_OR_RETURN(SessionRef session, find(id));
  if (session->peer() != peer) return not_open(id);
  return session;
}

Status SessionTable::heartbeat(std::uint64_t id) {
  TERRACE_ASSIGN_OR_RETURN(const SessionRef session, find(id));
  session->extend_lease(options_.clock() + options_.lease);
  return {};
}

Result<std::uint64_t> SessionTable::reserve(Session& session, const arena::ReservationTerms& asked,
                                            FunctionRef<bool()> go_on) {
  return session.reserve(store_, options_.card_store, asked, go_on,
                         [this] { return options_.clock() + options_.lease; });
}

Result<std::uint64_t> SessionTable::resize(Session& session, std::uint64_t slab_bytes, FunctionRef<bool()> go_on) {
  return session.resize(slab_bytes, go_on, [this] { return options_.clock() + options_.lease; });
}

// Under the table's lock, so that of two calls at one time one is refused; a session's lock is taken inside it nowhere
// the other way round.
Status SessionTable::begin_probe(std::uint64_t id) {
  TERRACE_ASSIGN_OR_RETURN(const SessionRef session, find(id));
  const std::lock_guard lock(mutex_);
  for (const auto& [other_id, other] : sessions_)
    if (other_id != id && other->is_probe())
      return Error(ErrorCode::kBusy,
                   fmt::format("{} measures this node already; one probe at a time, ask again", other->name()));
  TERRACE_RETURN_IF_ERROR(session->begin_probe(options_.clock() + options_.max_probe_time));
  log_.info("{} is a probe: at most {} ms", session->name(), options_.max_probe_time.count());
  return {};
}

Status SessionTable::close(std::uint64_t id) {
  TERRACE_ASSIGN_OR_RETURN(const SessionRef session, find(id));
  session->close();
  return {};
}

void SessionTable::end_all(const Error& reason) {
  for (const SessionRef& session : all()) session->end(reason);
}

std::vector<SessionRef> SessionTable::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<SessionRef> sessions;
  for (const auto& [id, session] : sessions_) sessions.push_back(session);
  return sessions;
}

SessionTotals SessionTable::totals() const {
  const std::lock_guard lock(mutex_);
  SessionTotals totals = past_;
  for (const auto& [id, session] : sessions_) totals.add(session->counters());
  return totals;
}

void SessionTable::remove(const Session& session) {
  SessionRef removed;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = sessions_.find(session.id()); found != sessions_.end()) {
      removed = std::move(found->second);
      manifest_bytes_ -= removed->model().manifest_bytes();
      past_.add(removed->counters());
      (removed->closed_by_wish() ? past_.closed : past_.failed) += 1;
      sessions_.erase(found);
    }
  }
  wake_.notify_all();
  log_.info("{} ended: {}", session.name(), session.end_reason().text());
  tell_change();
}

void SessionTable::on_change(std::function<void()> changed) {
  const std::lock_guard lock(change_mutex_);
  changed_ = std::move(changed);
}

void SessionTable::tell_change() {
  const std::lock_guard lock(change_mutex_);
  changed_();
}

void SessionTable::drain() {
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
  }
  wake_.notify_all();
  tell_change();
}

bool SessionTable::draining() const {
  const std::lock_guard lock(mutex_);
  return draining_;
}

bool SessionTable::drained() const {
  const std::lock_guard lock(mutex_);
  return draining_ && sessions_.empty();
}

bool SessionTable::wait_drained(std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  return wake_.wait_for(lock, timeout, [this] { return draining_ && sessions_.empty(); });
}

void SessionTable::keep_house() {
  const TimePoint now = options_.clock();
  for (const SessionRef& session : all())
    if (session->lease_over(now))
      session->end(Error(ErrorCode::kDeadline,
                         session->is_probe()
                             ? fmt::format("the probe's time is over: {} ms, or {} ms without a heartbeat",
                                           options_.max_probe_time.count(), options_.lease.count())
                             : fmt::format("no heartbeat came for {} ms: the lease is over", options_.lease.count())));
  store_.reclaim();
  if (options_.card_store != nullptr) options_.card_store->reclaim();
}

bool SessionTable::idle() const {
  const bool card_idle = options_.card_store == nullptr || options_.card_store->usage().reserved == 0;
  return sessions_.empty() && store_.usage().reserved == 0 && card_idle;
}

void SessionTable::housekeeping_loop() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      // While something is open or on its way out, look regularly; else sleep until something opens.
      if (idle())
        wake_.wait(lock, [this] { return stopping_ || !idle(); });
      else
        wake_.wait_for(lock, kHousekeepingPeriod, [this] { return stopping_; });
      if (stopping_) return;
    }
    keep_house();
  }
}

}  // namespace terrace::node
