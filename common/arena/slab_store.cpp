#include "common/arena/slab_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "common/base/check.h"
#include "common/base/units.h"

namespace terrace::arena {
namespace {

constexpr std::uint64_t round_to_parts(std::uint64_t bytes) {
  return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

// a + b, or nothing if that is over 2^64.
std::optional<std::uint64_t> checked_sum(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

std::string describe(const ReservationTerms& terms, std::uint64_t total) {
  return fmt::format("the share needs {} (slabs {}, staging {}, scratch {})", format_size(total),
                     format_size(terms.slabs), format_size(terms.staging), format_size(terms.scratch));
}

}  // namespace

std::optional<std::uint64_t> total_bytes(const ReservationTerms& terms) {
  const auto slabs_and_staging = checked_sum(round_to_pages(terms.slabs), terms.staging);
  return slabs_and_staging ? checked_sum(*slabs_and_staging, terms.scratch) : std::nullopt;
}

std::size_t SlabIdHash::operator()(const SlabId& id) const {
  std::size_t hash = 0;  // of a hash: its first bytes are as good as any
  std::memcpy(&hash, id.data(), sizeof hash);
  return hash;
}

std::uint64_t SlabSizes::stored_bytes() const {
  return round_to_pages(round_to_parts(gate) + round_to_parts(up) + down);
}

// One slab's place in the pool, however many hold it.
struct HeldSlab::Memory {
  SlabId id;
  SlabSizes sizes;
  std::span<std::byte> block;
  std::size_t holds = 0;  // HeldSlab objects of all reservations

  std::byte* gate() const { return block.data(); }
  std::byte* up() const { return gate() + round_to_parts(sizes.gate); }
  std::byte* down() const { return up() + round_to_parts(sizes.up); }
};

HeldSlab::HeldSlab(std::shared_ptr<Reservation> reservation, Memory* memory)
    : reservation_(std::move(reservation)), memory_(memory) {}

HeldSlab::~HeldSlab() {
  const std::lock_guard lock(reservation_->store_.mutex_);
  reservation_->let_go(*memory_);
}

const SlabId& HeldSlab::id() const { return memory_->id; }
const SlabSizes& HeldSlab::sizes() const { return memory_->sizes; }
bool HeldSlab::on_card() const { return !reservation_->store_.memory_.is_host(); }
const std::byte* HeldSlab::gate() const { return memory_->gate(); }
const std::byte* HeldSlab::up() const { return memory_->up(); }
const std::byte* HeldSlab::down() const { return memory_->down(); }

std::span<std::byte> HeldSlab::writable_at(std::uint64_t offset) {
  const SlabSizes& sizes = memory_->sizes;
  TERRACE_CHECK(offset < sizes.file_bytes(), "offset inside the slab");
  if (offset < sizes.gate) return {memory_->gate() + offset, sizes.gate - offset};
  offset -= sizes.gate;
  if (offset < sizes.up) return {memory_->up() + offset, sizes.up - offset};
  offset -= sizes.up;
  return {memory_->down() + offset, sizes.down - offset};
}

Status HeldSlab::write(std::uint64_t offset, std::span<const std::byte> data) {
  while (!data.empty()) {
    const std::span<std::byte> to = writable_at(offset);
    const std::size_t part = std::min(to.size(), data.size());
    TERRACE_RETURN_IF_ERROR(reservation_->store_.memory_.write(to.data(), data.first(part)));
    offset += part;
    data = data.subspan(part);
  }
  return {};
}

Result<std::span<std::byte>> HostMemory::map(std::uint64_t bytes, FunctionRef<bool()> go_on) {
  TERRACE_ASSIGN_OR_RETURN(const std::span<std::byte> memory, map_touched(bytes, go_on));
  (void)lock(memory);  // where that is allowed; how much is locked can be asked (locked_bytes())
  return memory;
}
void HostMemory::unmap(std::span<std::byte> memory) { arena::unmap(memory); }
Status HostMemory::write(std::byte* to, std::span<const std::byte> data) {
  std::memcpy(to, data.data(), data.size());
  return {};
}

SlabStore::SlabStore(StoreOptions options)
    : options_(std::move(options)), memory_(options_.memory != nullptr ? *options_.memory : ram_) {}

SlabStore::~SlabStore() {
  TERRACE_CHECK(reserved_ == 0, "a reservation outlives its store");
  reclaim();
  for (const auto memory : pool_.remove(pool_.free_bytes())) memory_.unmap(memory);
}

Status SlabStore::check_room(const ReservationTerms& terms, std::uint64_t total, std::uint64_t available) const {
  const std::uint64_t free = options_.budget - reserved_;
  if (total > free)
    return Error(ErrorCode::kOutOfMemory,
                 fmt::format("{}, {} free of a budget of {}; lower the share or add a node", describe(terms, total),
                             format_size(free), format_size(options_.budget)));
  if (total > available)
    return Error(
        ErrorCode::kOutOfMemory,
        fmt::format("{}, {} are free in the budget but the machine has {} left that nobody was promised; lower "
                    "--ram or end other programs",
                    describe(terms, total), format_size(free), format_size(available)));
  return {};
}

// The right to reserve, one at a time.
class SlabStore::Turn {
 public:
  Turn(SlabStore& store, FunctionRef<bool()> go_on) : store_(store) {
    std::unique_lock lock(store_.turn_mutex_);
    while (store_.reserving_ && go_on()) store_.turn_over_.wait_for(lock, std::chrono::milliseconds(100));
    mine_ = !store_.reserving_;
    if (mine_) store_.reserving_ = true;
  }
  ~Turn() {
    if (!mine_) return;
    {
      const std::lock_guard lock(store_.turn_mutex_);
      store_.reserving_ = false;
    }
    store_.turn_over_.notify_all();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  bool mine() const { return mine_; }

 private:
  SlabStore& store_;
  bool mine_ = false;
};

Status SlabStore::take(const ReservationTerms& terms, std::uint64_t total, FunctionRef<bool()> go_on) {
  TERRACE_ASSIGN_OR_RETURN(const std::uint64_t available, this->available());
  {
    const std::lock_guard lock(mutex_);
    TERRACE_RETURN_IF_ERROR(check_room(terms, total, available));
    reserved_ += total;
  }
  const std::uint64_t slab_bytes = round_to_pages(terms.slabs);
  if (slab_bytes == 0) return {};
  auto memory = memory_.map(slab_bytes, go_on);
  const std::lock_guard lock(mutex_);
  if (!memory.ok()) {
    reserved_ -= total;
    return memory.error().in(describe(terms, total));
  }
  pool_.add(*memory);
  return {};
}

Result<std::shared_ptr<Reservation>> SlabStore::reserve(const ReservationTerms& terms, FunctionRef<bool()> go_on) {
  const auto total = total_bytes(terms);
  if (!total) return Error(ErrorCode::kOutOfMemory, "the share needs more than 2^64 bytes; lower it");

  TERRACE_RETURN_IF_ERROR(take_in_turn(terms, *total, go_on));
  return std::shared_ptr<Reservation>(new Reservation(*this, round_to_pages(terms.slabs), *total));
}

Status SlabStore::take_in_turn(const ReservationTerms& terms, std::uint64_t total, FunctionRef<bool()> go_on) {
  const Turn turn(*this, go_on);
  if (!turn.mine()) return Error(ErrorCode::kPeerGone, "given up while others reserved memory: nobody waits for it");
  reclaim();
  return take(terms, total, go_on);
}

void SlabStore::reclaim() {
  std::vector<std::span<std::byte>> garbage;
  {
    const std::lock_guard lock(mutex_);
    garbage.swap(garbage_);
  }
  for (const auto memory : garbage) memory_.unmap(memory);
}

StoreUsage SlabStore::usage() const {
  const std::lock_guard lock(mutex_);
  return {options_.budget, reserved_, pool_.total_bytes() - pool_.free_bytes()};
}

Result<std::uint64_t> SlabStore::available() const {
  if (!options_.available) return ~std::uint64_t{0};
  TERRACE_ASSIGN_OR_RETURN(const std::uint64_t machine, options_.available());
  const std::lock_guard lock(mutex_);
  const std::uint64_t untouched = reserved_ - std::min(reserved_, pool_.total_bytes());
  return machine - std::min(machine, untouched);
}

Reservation::Reservation(SlabStore& store, std::uint64_t slab_bytes, std::uint64_t total)
    : store_(store), slab_bytes_(slab_bytes), total_(total) {}

Reservation::~Reservation() {
  const std::lock_guard lock(store_.mutex_);
  TERRACE_CHECK(charged_ == 0, "slabs outlive their reservation");
  give_back(slab_bytes_, total_);
}

void Reservation::give_back(std::uint64_t slab_bytes, std::uint64_t total) {
  store_.reserved_ -= total;
  slab_bytes_ -= slab_bytes;
  total_ -= total;
  // A refused remapping may have left the pool shorter than what was promised.
  const auto removed = store_.pool_.remove(std::min(slab_bytes, store_.pool_.free_bytes()));
  store_.garbage_.insert(store_.garbage_.end(), removed.begin(), removed.end());
}

Result<std::uint64_t> Reservation::resize(std::uint64_t slab_bytes, FunctionRef<bool()> go_on) {
  const auto wanted = arena::total_bytes({slab_bytes, 0, 0});
  if (!wanted || *wanted < slab_bytes)
    return Error(ErrorCode::kOutOfMemory, "the share needs more than 2^64 bytes; lower it");
  const std::uint64_t before = this->slab_bytes();
  if (*wanted > before) {
    const std::uint64_t more = *wanted - before;
    TERRACE_RETURN_IF_ERROR(store_.take_in_turn({more, 0, 0}, more, go_on));
    const std::lock_guard lock(store_.mutex_);
    slab_bytes_ += more;
    total_ += more;
  } else {
    const std::lock_guard lock(store_.mutex_);
    const std::uint64_t less = std::min(before - *wanted, slab_bytes_ - charged_);
    give_back(less, less);
  }
  return this->slab_bytes();
}

Status Reservation::check_room(std::uint64_t bytes) const {
  const std::uint64_t free = slab_bytes_ - charged_;
  if (bytes <= free) return {};
  return Error(ErrorCode::kOutOfMemory,
               fmt::format("a slab of {} bytes does not fit into the {} bytes that are left of the {} reserved for "
                           "slabs; reserve more or forget an epoch",
                           bytes, free, slab_bytes_));
}

std::shared_ptr<HeldSlab> Reservation::hold(HeldSlab::Memory& memory) {
  if (++held_[&memory] == 1) charged_ += memory.block.size();
  ++memory.holds;
  return std::shared_ptr<HeldSlab>(new HeldSlab(shared_from_this(), &memory));
}

void Reservation::let_go(HeldSlab::Memory& memory) {
  const auto held = held_.find(&memory);
  if (--held->second == 0) {
    held_.erase(held);
    charged_ -= memory.block.size();
  }
  if (--memory.holds > 0) return;
  const auto published = store_.published_.find(memory.id);
  if (published != store_.published_.end() && published->second == &memory) store_.published_.erase(published);
  store_.pool_.give(memory.block);
  delete &memory;
}

HeldSlab::Memory* Reservation::published(const SlabId& id, const SlabSizes& sizes) const {
  const auto found = store_.published_.find(id);
  return found != store_.published_.end() && found->second->sizes == sizes ? found->second : nullptr;
}

Reservation::Addition Reservation::addition(std::span<const Key> keys) const {
  Addition added;
  std::unordered_set<const HeldSlab::Memory*> counted;
  for (const Key& key : keys) {
    HeldSlab::Memory* const memory = published(key.id, key.sizes);
    if (memory != nullptr && (held_.contains(memory) || !counted.insert(memory).second)) continue;
    ++added.n_slabs;
    added.bytes += key.sizes.stored_bytes();
  }
  return added;
}

Result<Reservation::Found> Reservation::find_all(std::span<const Key> keys) {
  Found found;  // goes after the lock: its slabs take it
  found.slabs.reserve(keys.size());
  const std::lock_guard lock(store_.mutex_);
  const Addition added = addition(keys);
  if (added.bytes > slab_bytes_ - charged_)
    return Error(ErrorCode::kOutOfMemory,
                 fmt::format("{} new slabs of {} bytes, {} are left of the reservation; reserve for all epochs that "
                             "may live at once",
                             added.n_slabs, added.bytes, slab_bytes_ - charged_));
  found.n_new = added.n_slabs;
  for (const Key& key : keys) {
    HeldSlab::Memory* const memory = published(key.id, key.sizes);
    found.slabs.push_back(memory == nullptr ? nullptr : hold(*memory));
  }
  return found;
}

std::vector<std::uint8_t> Reservation::holds(std::span<const Key> keys) const {
  std::vector<std::uint8_t> held;
  held.reserve(keys.size());
  const std::lock_guard lock(store_.mutex_);
  for (const Key& key : keys) {
    HeldSlab::Memory* const memory = published(key.id, key.sizes);
    held.push_back(memory != nullptr && held_.contains(memory) ? 1 : 0);
  }
  return held;
}

Result<std::shared_ptr<HeldSlab>> Reservation::allocate(const SlabId& id, const SlabSizes& sizes) {
  const std::uint64_t bytes = sizes.stored_bytes();
  std::vector<std::span<std::byte>> scattered;
  {
    const std::lock_guard lock(store_.mutex_);
    TERRACE_RETURN_IF_ERROR(check_room(bytes));
    if (bytes > store_.pool_.free_bytes())
      return Error(ErrorCode::kOutOfMemory, "reserved pages were lost when the system refused to map them anew");
    if (const auto block = store_.pool_.take(bytes)) return hold(*new HeldSlab::Memory{id, sizes, *block});
    scattered = store_.pool_.remove(bytes);
    charged_ += bytes;  // the room is ours until the slab holds it
  }
  for (const auto pages : scattered) store_.memory_.unmap(pages);
  const auto fresh = store_.memory_.map(bytes, [] { return true; });
  const std::lock_guard lock(store_.mutex_);
  charged_ -= bytes;
  if (!fresh.ok()) return fresh.error();
  store_.pool_.count_taken(bytes);
  return hold(*new HeldSlab::Memory{id, sizes, *fresh});
}

SlabRef publish(std::shared_ptr<HeldSlab> slab) {
  Reservation& reservation = *slab->reservation_;
  const std::lock_guard lock(reservation.store_.mutex_);
  const auto [published, first] = reservation.store_.published_.emplace(slab->id(), slab->memory_);
  HeldSlab::Memory& other = *published->second;
  if (first || other.sizes != slab->sizes()) return slab;
  const bool fits = reservation.held_.contains(&other) || reservation.check_room(other.block.size()).ok();
  return fits ? reservation.hold(other) : slab;
}

std::uint64_t Reservation::total_bytes() const {
  const std::lock_guard lock(store_.mutex_);
  return total_;
}

std::uint64_t Reservation::slab_bytes() const {
  const std::lock_guard lock(store_.mutex_);
  return slab_bytes_;
}

std::uint64_t Reservation::free_slab_bytes() const {
  const std::lock_guard lock(store_.mutex_);
  return slab_bytes_ - charged_;
}

}  // namespace terrace::arena
