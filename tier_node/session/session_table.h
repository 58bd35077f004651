// The sessions of this node: who may open one, who is gone, when the node is drained.
//
// Threads  Any. A thread of its own ends sessions whose lease is over and gives ended reservations' pages back.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/arena/slab_store.h"
#include "common/base/log.h"
#include "common/base/result.h"
#include "tier_node/session/limits.h"
#include "tier_node/session/model.h"
#include "tier_node/session/session.h"

namespace terrace::node {

// What OpenSession may require by name; Describe lists it.
std::vector<std::string> capabilities();

struct OpenRequest {
  std::uint32_t protocol_min = 0;
  std::uint32_t protocol_max = 0;
  std::uint32_t numerics_version = 0;
  std::vector<std::string> required_capabilities;
  std::span<const std::byte> manifest;
  AskedLimits limits;
  std::string coordinator;
  std::vector<std::string> data_ciphers;  // that the coordinator takes, by name; none: plain
  std::string peer;                       // Session::Identity::peer
};

// A session that is only thought of: its model by numbers and shapes, slab_ids empty.
struct EstimateRequest {
  manifest::Manifest model;
  AskedLimits limits;
  std::uint64_t slab_bytes = 0;
};

struct Estimate {
  arena::ReservationTerms terms;  // of its reservation
  std::uint64_t total = 0;        // of the budget
  arena::StoreUsage memory;
  std::uint64_t available = 0;  // that the machine could give now
  std::uint64_t card = 0;       // bytes of slabs on the card; not in terms and total
  arena::StoreUsage card_memory;
};

struct SessionOptions {
  Machine machine;
  arena::SlabStore* card_store = nullptr;  // of machine.card; borrowed; null: no card
  LimitOptions limits;
  std::chrono::milliseconds lease{10'000};
  std::chrono::milliseconds max_probe_time{180'000};
  std::size_t max_sessions = 64;
  std::uint64_t max_manifest_bytes = std::uint64_t{128} << 20;  // of all sessions, those being opened included
  std::function<TimePoint()> clock = [] { return std::chrono::steady_clock::now(); };
  bool housekeeping = true;  // off: tests call keep_house() themselves
};

class SessionTable {
 public:
  // store is borrowed. kIo: the system gives no randomness.
  static Result<std::unique_ptr<SessionTable>> create(arena::SlabStore& store, const SessionOptions& options,
                                                      const Logger& log);
  // Every session must have been ended: end_all().
  ~SessionTable();

  std::uint64_t boot_id() const { return boot_id_; }
  std::chrono::milliseconds lease() const { return options_.lease; }
  arena::SlabStore& store() { return store_; }
  arena::SlabStore* card_store() { return options_.card_store; }

  struct Opened {
    SessionRef session;
    std::uint32_t protocol = 0;
  };
  // kRefused: draining, too many sessions, too large manifests in all, protocol ranges apart, another numerics version,
  // a capability that this node lacks, one end that seals data connections and one that does not, limits (see
  // make_limits); the text names it. Else as Model::parse.
  Result<Opened> open(const OpenRequest& request);
  // What the reservation of such a session would take; nothing is opened. kCorrupt: numbers that no model has.
  // kRefused, kUnsupported: as open(). kOutOfMemory: more than 2^64 bytes.
  Result<Estimate> estimate(EstimateRequest request) const;
  // kNotFound: closed, ended, or of an earlier start of this node.
  Result<SessionRef> find(std::uint64_t id) const;
  // The same for a caller of the control plane, for whom a session that somebody else opened is not there either.
  Result<SessionRef> find(std::uint64_t id, const std::string& peer) const;
  Status heartbeat(std::uint64_t id);
  // Session::reserve() from this node's store; a whole lease begins at its end.
  Result<std::uint64_t> reserve(Session& session, const arena::ReservationTerms& asked, FunctionRef<bool()> go_on);
  // Session::resize(), likewise.
  Result<std::uint64_t> resize(Session& session, std::uint64_t slab_bytes, FunctionRef<bool()> go_on);
  // Makes an open session a probe for max_probe_time at the most. kBusy: another one is open; else as find() and
  // Session::begin_probe().
  Status begin_probe(std::uint64_t id);
  std::chrono::milliseconds max_probe_time() const { return options_.max_probe_time; }
  // At the coordinator's wish.
  Status close(std::uint64_t id);
  void end_all(const Error& reason);
  std::vector<SessionRef> all() const;
  // Never less than before. What a session still sends after it was ended is not in it.
  SessionTotals totals() const;

  // No session opens from now on.
  void drain();
  bool draining() const;
  // Draining, and the last session has ended.
  bool drained() const;
  bool wait_drained(std::chrono::milliseconds timeout) const;

  // Called by the thread that ended a session or drained the last one, by one at a time, with no session's lock held.
  // One function; it ends no session. When on_change() returns, the one before is not running and never will again, so
  // that what it refers to may go.
  void on_change(std::function<void()> changed);

  // Ends sessions whose lease is over, gives pages back.
  void keep_house();

 private:
  SessionTable(arena::SlabStore& store, const SessionOptions& options, const Logger& log, std::uint64_t boot_id);
  Status check_versions(const OpenRequest& request) const;
  Status check_room() const;
  Result<security::Cipher> choose_cipher(const OpenRequest& request) const;
  Result<Opened> open_model(const OpenRequest& request);
  void remove(const Session& session);
  void tell_change();
  void housekeeping_loop();
  bool idle() const;

  arena::SlabStore& store_;
  const SessionOptions options_;
  const Logger log_;
  const std::uint64_t boot_id_;

  std::mutex change_mutex_;  // guards changed_, also while it runs
  std::function<void()> changed_ = [] {};

  mutable std::mutex mutex_;
  mutable std::condition_variable wake_;  // sessions_, draining_ or stopping_ changed
  std::map<std::uint64_t, SessionRef> sessions_;
  std::uint64_t last_number_ = 0;
  std::uint64_t manifest_bytes_ = 0;  // of sessions_, and of those being opened
  SessionTotals past_;                // of ended sessions; opened: of all
  bool draining_ = false;
  bool stopping_ = false;
  std::thread housekeeper_;
};

}  // namespace terrace::node
