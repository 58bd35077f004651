// Slabs in memory, RAM or a card's: one budget, reservations that are all or nothing, slabs of equal id held once.
//
//   SlabStore store({.budget = options.ram, .available = memory_available});
//   auto reservation = store.reserve({.slabs = ..., .staging = ..., .scratch = ...}, go_on);
//   auto found = (*reservation)->find_all(keys);                // those that somebody has already: shared
//   if (!slab) { auto fresh = (*reservation)->allocate(id, sizes);  write();  slab = publish(fresh); }
//
// A slab counts in every reservation that holds it, so that it can outlive any one of them; it lies in memory once.
// It is freed when its last HeldSlab goes: epochs and executing batches keep theirs for as long as they compute.
//
// A slab is an id and its sizes: who asks for the id with other sizes, whatever a peer told it, does not get the slab,
// since it would read past the end or read something else than it thinks.
//
// Threads  Everything may be called by any thread; one lock inside, held for table work only, never while pages are
//          mapped or bytes copied. Nothing of a batch needs it: an epoch's table holds the slabs' addresses.
// Memory   The store outlives its reservations, they outlive their slabs (each HeldSlab keeps its reservation).
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/arena/page_pool.h"
#include "common/base/function_ref.h"
#include "common/base/result.h"
#include "common/security/sha256.h"

namespace terrace::arena {

using SlabId = security::Sha256;
struct SlabIdHash {
  std::size_t operator()(const SlabId& id) const;
};

inline constexpr std::uint64_t kPartAlignment = 64;

// The parts of a slab in bytes, as they follow each other in its file order.
struct SlabSizes {
  std::uint64_t gate = 0;
  std::uint64_t up = 0;
  std::uint64_t down = 0;
  // What the bytes are (types, widths), as their owner numbers it. Not interpreted here, only compared.
  std::array<std::uint32_t, 5> form{};

  std::uint64_t file_bytes() const { return gate + up + down; }
  // What the slab takes from a budget: parts at 64-byte borders, the whole in pages. The only place that rounds a
  // slab: peers speak of file_bytes(), ReservationTerms of these.
  std::uint64_t stored_bytes() const;
  bool operator==(const SlabSizes&) const = default;
};

struct ReservationTerms {
  std::uint64_t slabs = 0;
  std::uint64_t staging = 0;  // receive windows
  std::uint64_t scratch = 0;  // sums, replies
};

// What a reservation takes from the budget: the slabs' part in whole pages. Nothing: over 2^64.
std::optional<std::uint64_t> total_bytes(const ReservationTerms& terms);

class Reservation;

// Memory that a store cuts up. RAM without another; a card's is mapped from what was taken of the card.
// Threads  Any, write() to different places too.
class SlabMemory {
 public:
  virtual ~SlabMemory() = default;
  // False: only the card that it belongs to may read at its addresses, and only write() may write there.
  virtual bool is_host() const = 0;
  // As map_touched() and unmap() (page_pool.h).
  virtual Result<std::span<std::byte>> map(std::uint64_t bytes, FunctionRef<bool()> go_on) = 0;
  virtual void unmap(std::span<std::byte> memory) = 0;
  // Copies `data` to `to`, inside what is mapped. kInternal: a card failed.
  virtual Status write(std::byte* to, std::span<const std::byte> data) = 0;
};

// Locked where the system allows it.
class HostMemory final : public SlabMemory {
 public:
  bool is_host() const override { return true; }
  Result<std::span<std::byte>> map(std::uint64_t bytes, FunctionRef<bool()> go_on) override;
  void unmap(std::span<std::byte> memory) override;
  Status write(std::byte* to, std::span<const std::byte> data) override;
};

// A slab on its way in, owned by who fills it. Lost (and its memory free again) unless it is published.
class HeldSlab {
 public:
  ~HeldSlab();
  HeldSlab(const HeldSlab&) = delete;
  HeldSlab& operator=(const HeldSlab&) = delete;

  const SlabId& id() const;
  const SlabSizes& sizes() const;
  // Whether the three below are addresses of a card (SlabMemory::is_host()).
  bool on_card() const;
  const std::byte* gate() const;  // 64-byte aligned, like up and down
  const std::byte* up() const;
  const std::byte* down() const;

  // Copies `data` to [offset, offset + size) of the slab's file order; the range lies inside file_bytes(). Only
  // before publish(), by one thread. kInternal: a card failed.
  Status write(std::uint64_t offset, std::span<const std::byte> data);
  // The part that holds file offset `offset`, from there to the part's end: where a reader may put bytes directly, in
  // RAM.
  std::span<std::byte> writable_at(std::uint64_t offset);

 private:
  friend class Reservation;
  friend class SlabStore;
  friend std::shared_ptr<const HeldSlab> publish(std::shared_ptr<HeldSlab> slab);
  struct Memory;
  HeldSlab(std::shared_ptr<Reservation> reservation, Memory* memory);

  std::shared_ptr<Reservation> reservation_;
  Memory* memory_;
};
using SlabRef = std::shared_ptr<const HeldSlab>;

struct StoreOptions {
  std::uint64_t budget = 0;
  // Bytes the machine could still give this process, cgroup limits counted. Empty: not asked.
  std::function<Result<std::uint64_t>()> available;
  SlabMemory* memory = nullptr;  // borrowed; null: RAM
};

struct StoreUsage {
  std::uint64_t budget = 0;
  std::uint64_t reserved = 0;  // of the budget
  std::uint64_t used = 0;      // by slabs, shared ones once
  std::uint64_t free() const { return budget - reserved; }
};

class SlabStore {
 public:
  explicit SlabStore(StoreOptions options);
  ~SlabStore();
  SlabStore(const SlabStore&) = delete;
  SlabStore& operator=(const SlabStore&) = delete;

  // Sets memory aside and touches the slabs' part of it. Takes as long as touching does, its own and that of those who
  // came before: one at a time looks at the machine and takes. `go_on` is asked several times a second meanwhile;
  // false: kPeerGone. kOutOfMemory: over the budget or over what the machine has; the text gives every term. Nothing is
  // taken on any error.
  Result<std::shared_ptr<Reservation>> reserve(const ReservationTerms& terms, FunctionRef<bool()> go_on);

  // Unmaps what ended or smaller reservations left behind: their last owner may be a thread that must not wait.
  // reserve() calls it; so does housekeeping.
  void reclaim();

  StoreUsage usage() const;
  // What the machine could give this process now, less what reservations were promised and have not touched (staging
  // and scratch); 2^64 - 1 where it is not asked.
  Result<std::uint64_t> available() const;

 private:
  friend class Reservation;
  friend class HeldSlab;
  friend SlabRef publish(std::shared_ptr<HeldSlab> slab);

  class Turn;
  Status check_room(const ReservationTerms& terms, std::uint64_t total, std::uint64_t available) const;
  // Has the turn, and takes.
  Status take_in_turn(const ReservationTerms& terms, std::uint64_t total, FunctionRef<bool()> go_on);
  Status take(const ReservationTerms& terms, std::uint64_t total, FunctionRef<bool()> go_on);

  const StoreOptions options_;
  HostMemory ram_;
  SlabMemory& memory_;
  std::mutex turn_mutex_;
  std::condition_variable turn_over_;
  bool reserving_ = false;  // somebody has the turn; guarded by turn_mutex_

  mutable std::mutex mutex_;  // guards all below, and every Memory and Reservation of this store
  PagePool pool_;
  std::uint64_t reserved_ = 0;
  std::unordered_map<SlabId, HeldSlab::Memory*, SlabIdHash> published_;
  std::vector<std::span<std::byte>> garbage_;
};

// Makes a filled and verified slab findable. If another of the same id and sizes was published meanwhile that one is
// returned and `slab` is dropped, or, where its reservation has no room for both at once, `slab` stays unshared. It
// stays so as well when the id is published with other sizes.
SlabRef publish(std::shared_ptr<HeldSlab> slab);

class Reservation : public std::enable_shared_from_this<Reservation> {
 public:
  ~Reservation();
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  struct Key {
    const SlabId& id;
    const SlabSizes& sizes;
  };
  struct Found {
    std::vector<SlabRef> slabs;  // as the keys; null: the store has none of this id and exactly these sizes
    std::uint64_t n_new = 0;     // that nothing of this reservation held before, missing ones among them
  };
  // Those of the slabs that the store has published; they count here from now on. kOutOfMemory, nothing held: what is
  // new here, and what is missing, does not fit into what is left of this reservation; the text gives the numbers.
  Result<Found> find_all(std::span<const Key> keys);

  // [keys] 1: something of this reservation holds the slab now.
  std::vector<std::uint8_t> holds(std::span<const Key> keys) const;

  // Memory for a slab to be filled. kOutOfMemory: more than is left of this reservation; the text gives both.
  Result<std::shared_ptr<HeldSlab>> allocate(const SlabId& id, const SlabSizes& sizes);

  // The slabs' part becomes `slab_bytes`, in whole pages. More of it is refused as SlabStore::reserve() refuses, and
  // then nothing has changed; of less, what slabs lie in stays. By one thread at a time. Returns the part's bytes now.
  Result<std::uint64_t> resize(std::uint64_t slab_bytes, FunctionRef<bool()> go_on);

  std::uint64_t total_bytes() const;
  std::uint64_t slab_bytes() const;
  std::uint64_t free_slab_bytes() const;

 private:
  friend class SlabStore;
  friend class HeldSlab;
  friend SlabRef publish(std::shared_ptr<HeldSlab> slab);
  Reservation(SlabStore& store, std::uint64_t slab_bytes, std::uint64_t total);
  // Under the store's lock: so much of the budget is free again.
  void give_back(std::uint64_t slab_bytes, std::uint64_t total);

  // Under the store's lock. Null: nothing is published under this id with these sizes.
  HeldSlab::Memory* published(const SlabId& id, const SlabSizes& sizes) const;
  // Under the store's lock. What hold() adds must fit.
  std::shared_ptr<HeldSlab> hold(HeldSlab::Memory& memory);
  void let_go(HeldSlab::Memory& memory);
  Status check_room(std::uint64_t bytes) const;
  // What find_all() would add, distinct published slabs once and each missing one.
  struct Addition {
    std::uint64_t n_slabs = 0;
    std::uint64_t bytes = 0;
  };
  Addition addition(std::span<const Key> keys) const;

  SlabStore& store_;
  std::uint64_t slab_bytes_;  // whole pages
  std::uint64_t total_;
  std::uint64_t charged_ = 0;
  std::unordered_map<HeldSlab::Memory*, std::size_t> held_;  // how many HeldSlab of this reservation; charged once
};

}  // namespace terrace::arena
