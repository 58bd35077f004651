// One coordinator's use of this node: its model, its reservation, its epochs, its lease.
//
// Threads  Any; one lock inside. A batch that names a live epoch does not take it: pieces of slabs do, by threads that
//          stand behind all others (EpochBook::find_live()). What it computes with it reads without.
// Order    session lock, then the store's lock; never the other way, and nobody's callback runs under either.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/arena/slab_store.h"
#include "common/base/function_ref.h"
#include "common/base/result.h"
#include "common/security/cipher.h"
#include "common/security/key.h"
#include "common/transport/pacing.h"
#include "common/wire/messages.h"
#include "tier_node/session/assignment.h"
#include "tier_node/session/counters.h"
#include "tier_node/session/epoch.h"
#include "tier_node/session/limits.h"
#include "tier_node/session/model.h"
#include "tier_node/session/open_connections.h"

namespace terrace::node {

using TimePoint = std::chrono::steady_clock::time_point;

class Session {
 public:
  struct Identity {
    std::uint64_t id = 0;    // random, never 0
    security::Key data_key;  // of its data connections
    security::Cipher data_cipher = security::Cipher::kPlain;
    std::string coordinator;   // its name for itself, printable
    std::uint64_t number = 0;  // as this node counts its sessions, from 1: for people. The id is for its owner alone
    std::string peer;          // who opened it, and alone may use it on the control plane; empty: no credentials
  };

  // on_end is called once, by the thread that ended the session, outside all locks.
  Session(Identity identity, Model model, const SessionLimits& limits, TimePoint lease_end,
          std::function<void(const Session&)> on_end);

  std::uint64_t id() const { return identity_.id; }
  const security::Key& data_key() const { return identity_.data_key; }
  security::Cipher data_cipher() const { return identity_.data_cipher; }
  const std::string& coordinator() const { return identity_.coordinator; }
  std::uint64_t number() const { return identity_.number; }
  const std::string& peer() const { return identity_.peer; }
  const Model& model() const { return model_; }
  const SessionLimits& limits() const { return limits_; }
  Counters& counters() { return counters_; }
  OpenConnections& connections() { return connections_; }
  // Towards the coordinator. Any thread.
  transport::LinkRate& link_rate() { return link_rate_; }
  const transport::LinkRate& link_rate() const { return link_rate_; }
  std::string name() const;  // "session 3 of box7": for logs and errors

  // Adds this node's own needs (the store's rounding, receive windows, scratch) to what the coordinator asks for;
  // asked.slabs counts slabs as the file has them. Returns the bytes reserved. On every error nothing is taken:
  // kOutOfMemory; kInvalidArgument: it has a reservation already; kBusy: another call is at it; kPeerGone: go_on, asked
  // several times a second, said no, or the session ended. card: null without one.
  // Touching memory may take longer than a lease, so the lease does not run meanwhile; at the end it lasts until
  // new_lease_end().
  Result<std::uint64_t> reserve(arena::SlabStore& store, arena::SlabStore* card, const arena::ReservationTerms& asked,
                                FunctionRef<bool()> go_on, FunctionRef<TimePoint()> new_lease_end);
  // What it reserved becomes room for `slab_bytes` of slabs, as the file has them: more than before for a further share
  // (all or nothing, in RAM), or less. Windows and scratch stay as they are. Returns the bytes reserved. kBusy, beside
  // what reserve() says: slabs lie in some of what is to be less; the rest of it was given back. kInvalidArgument: it
  // has no reservation, or is a probe.
  Result<std::uint64_t> resize(std::uint64_t slab_bytes, FunctionRef<bool()> go_on,
                               FunctionRef<TimePoint()> new_lease_end);
  // From now on its slabs are made here (SlabLoader), at most kMaxProbeBytes of them may be reserved, and its lease
  // ends at `until` at the latest. kInvalidArgument: it has a reservation, or is a probe already; kPeerGone: it has
  // ended.
  static constexpr std::uint64_t kMaxProbeBytes = std::uint64_t{1} << 30;
  Status begin_probe(TimePoint until);
  bool is_probe() const { return probe_until_.load(std::memory_order_acquire) != kNoProbe; }

  // Forgets every epoch and gives the reservation back once executing batches have ended.
  Status release();

  // Checks the share, finds what is in memory already. The assignment is complete when nothing is missing: its epoch
  // is then live.
  // kInvalidArgument: ids out of range or not rising, no reservation, an epoch number that does not rise.
  // kBusy: two epochs that brought slabs are live, or another assignment still waits for slabs; an epoch that brings
  // none is never refused for that, only for the bounds of EpochBook::announce(). kOutOfMemory: the share does not fit
  // into the reservation.
  Result<AssignmentRef> begin_assign(std::uint64_t epoch, const std::vector<ShareItem>& items);
  // All slabs are there: the epoch is live from now on.
  void finish_assign(const AssignmentRef& assignment);
  // Nobody waits for it any more, or it cannot be done: its memory is free again.
  void abandon_assign(const AssignmentRef& assignment, const Error& why);
  AssignmentRef pending_assign() const;
  // Reservation::allocate() for the loader. kOutOfMemory; kRefused: the reservation has gone.
  Result<std::shared_ptr<arena::HeldSlab>> allocate_slab(const arena::SlabId& id, const arena::SlabSizes& sizes,
                                                         bool on_card = false) const;

  Status forget(std::uint64_t epoch);
  Result<EpochRef> find_epoch(std::uint64_t epoch) const;
  // The newest live epoch and its number of slabs, zeros without one: for Status.
  struct EpochSummary {
    std::uint64_t number = 0;
    std::uint64_t n_slabs = 0;
  };
  EpochSummary newest_epoch() const;

  void extend_lease(TimePoint until) {
    const TimePoint::rep end = std::min(until.time_since_epoch().count(), probe_until_.load(std::memory_order_relaxed));
    lease_end_.store(end, std::memory_order_relaxed);
  }
  bool lease_over(TimePoint now) const {
    return !reserving_.load(std::memory_order_acquire) &&
           now.time_since_epoch().count() >= lease_end_.load(std::memory_order_relaxed);
  }

  // Both drop epochs, assignment and reservation; the first reason stays. close() is the coordinator's own wish: its
  // connections get a goodbye, not an error.
  void end(Error reason) { finish(std::move(reason), false); }
  void close();
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  // Valid after ended().
  const Error& end_reason() const { return *end_reason_; }
  bool closed_by_wish() const { return by_wish_; }

 private:
  using ReservationRef = std::shared_ptr<arena::Reservation>;
  struct Reservations {
    ReservationRef ram;       // null: nothing is reserved
    ReservationRef card;      // null: nothing of it on the card
    std::uint64_t slabs = 0;  // bytes of both that were asked for, with the store's rounding
    std::uint64_t total_bytes() const { return ram->total_bytes() + (card ? card->total_bytes() : 0); }
  };
  void finish(Error reason, bool by_wish);
  Status check_share(const std::vector<ShareItem>& items) const;
  std::vector<arena::Reservation::Key> keys_of(const std::vector<ShareItem>& items) const;
  // What an epoch is assigned from.
  Result<Reservations> reservations_for(std::uint64_t epoch) const;
  Result<std::uint64_t> take_reservations(arena::SlabStore& store, arena::SlabStore* card,
                                          const arena::ReservationTerms& terms, FunctionRef<bool()> go_on);
  Result<std::uint64_t> change_reservation(std::uint64_t slab_bytes, FunctionRef<bool()> go_on);
  // A lease does not run while `make`, one at a time, makes or changes the reservation.
  Result<std::uint64_t> outside_lease(FunctionRef<Result<std::uint64_t>()> make,
                                      FunctionRef<TimePoint()> new_lease_end);
  // [items] 1: to lie on the card. What this session holds stays where it is.
  std::vector<std::uint8_t> choose_levels(const std::vector<ShareItem>& items, const Reservations& reservations) const;
  // Those of the slabs that are there, each at its level.
  Result<arena::Reservation::Found> find_slabs(const std::vector<ShareItem>& items,
                                               const std::vector<std::uint8_t>& on_card,
                                               const Reservations& reservations) const;
  void make_live(Assignment& assignment);

  static constexpr TimePoint::rep kNoProbe = std::numeric_limits<TimePoint::rep>::max();

  const Identity identity_;
  const Model model_;
  const SessionLimits limits_;
  const std::function<void(const Session&)> on_end_;
  Counters counters_;
  OpenConnections connections_;
  transport::LinkRate link_rate_;
  std::atomic<TimePoint::rep> lease_end_;
  std::atomic<TimePoint::rep> probe_until_ = kNoProbe;
  std::atomic<bool> reserving_ = false;
  std::atomic<bool> ended_ = false;
  std::optional<Error> end_reason_;  // these two are written once, before ended_
  bool by_wish_ = false;

  mutable std::mutex mutex_;  // guards all below
  bool closed_ = false;
  Reservations reservations_;
  EpochBook epochs_;
  AssignmentRef pending_;
};
using SessionRef = std::shared_ptr<Session>;

}  // namespace terrace::node
