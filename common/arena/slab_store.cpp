#include "common/arena/slab_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

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

void HeldSlab::write(std::uint64_t offset, std::span<const std::byte> data) {
  while (!data.empty()) {
    const std::span<std::byte> to = writable_at(offset);
    const std::size_t part = std::min(to.size(), data.size());
    std::memcpy(to.data(), data.data(), part);
    offset += part;
    data = data.subspan(part);
  }
}

SlabStore::SlabStore(StoreOptions options) : options_(std::move(options)) {}

SlabStore::~SlabStore() {
  TERRACE_CHECK(reserved_ == 0, "a reservation outlives its store");
  reclaim();
}

Status SlabStore::check_room(const ReservationTerms& terms, std::uint64_t total) const {
  const std::uint64_t free = options_.budget - reserved_;
  if (total > free)
    return Error(ErrorCode::kOutOfMemory,
                 fmt::format("{}, {} free of a budget of {}; lower the share or add a node", describe(terms, total),
                             format_size(free), format_size(options_.budget)));
  TERRACE_ASSIGN_OR_RETURN(const std::uint64_t available, this->available());
  if (total > available)
    return Error(ErrorCode::kOutOfMemory,
                 fmt::format("{}, {} are free in the budget but the machine has {} left; lower --ram or end other "
                             "programs",
                             describe(terms, total), format_size(free), format_size(available)));
  return {};
}

Result<std::shared_ptr<Reservation>> SlabStore::reserve(const ReservationTerms& terms) {
  const auto total = total_bytes(terms);
  if (!total) return Error(ErrorCode::kOutOfMemory, "the share needs more than 2^64 bytes; lower it");

  const std::lock_guard one_at_a_time(reserve_mutex_);
  reclaim();
  {
    const std::lock_guard lock(mutex_);
    TERRACE_RETURN_IF_ERROR(check_room(terms, *total));
    reserved_ += *total;
  }
  const std::uint64_t slab_bytes = round_to_pages(terms.slabs);
  if (slab_bytes > 0) {
    auto memory = map_touched(slab_bytes);
    const std::lock_guard lock(mutex_);
    if (!memory.ok()) {
      reserved_ -= *total;
      return memory.error().in(describe(terms, *total));
    }
    pool_.add(*memory);
  }
  return std::shared_ptr<Reservation>(new Reservation(*this, slab_bytes, *total));
}

void SlabStore::reclaim() {
  std::vector<std::span<std::byte>> garbage;
  {
    const std::lock_guard lock(mutex_);
    garbage.swap(garbage_);
  }
  for (const auto memory : garbage) unmap(memory);
}

StoreUsage SlabStore::usage() const {
  const std::lock_guard lock(mutex_);
  return {options_.budget, reserved_, pool_.total_bytes() - pool_.free_bytes()};
}

Result<std::uint64_t> SlabStore::available() const {
  return options_.available ? options_.available() : ~std::uint64_t{0};
}

Reservation::Reservation(SlabStore& store, std::uint64_t slab_bytes, std::uint64_t total)
    : store_(store), slab_bytes_(slab_bytes), total_(total) {}

Reservation::~Reservation() {
  const std::lock_guard lock(store_.mutex_);
  TERRACE_CHECK(charged_ == 0, "slabs outlive their reservation");
  store_.reserved_ -= total_;
  // A refused remapping may have left the pool shorter than what was promised.
  const auto removed = store_.pool_.remove(std::min(slab_bytes_, store_.pool_.free_bytes()));
  store_.garbage_.insert(store_.garbage_.end(), removed.begin(), removed.end());
}

Status Reservation::check_room(std::uint64_t bytes) const {
  const std::uint64_t free = slab_bytes_ - charged_;
  if (bytes <= free) return {};
  return Error(ErrorCode::kOutOfMemory,
               fmt::format("a slab of {} bytes does not fit into the {} bytes that are left of the {} reserved for "
                           "slabs; reserve more or forget an epoch",
                           bytes, free, slab_bytes_));
}

Result<std::shared_ptr<HeldSlab>> Reservation::hold(HeldSlab::Memory& memory) {
  const auto held = held_.find(&memory);
  if (held == held_.end()) {
    TERRACE_RETURN_IF_ERROR(check_room(memory.block.size()));
    charged_ += memory.block.size();
    held_.emplace(&memory, 1);
  } else {
    ++held->second;
  }
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

Result<SlabRef> Reservation::find(const SlabId& id, const SlabSizes& sizes) {
  const std::lock_guard lock(store_.mutex_);
  HeldSlab::Memory* const memory = published(id, sizes);
  if (memory == nullptr) return SlabRef();
  TERRACE_ASSIGN_OR_RETURN(SlabRef slab, hold(*memory));
  return slab;
}

bool Reservation::holds(const SlabId& id, const SlabSizes& sizes) const {
  const std::lock_guard lock(store_.mutex_);
  HeldSlab::Memory* const memory = published(id, sizes);
  return memory != nullptr && held_.contains(memory);
}

Result<std::shared_ptr<HeldSlab>> Reservation::allocate(const SlabId& id, const SlabSizes& sizes) {
  const std::uint64_t bytes = sizes.stored_bytes();
  const std::lock_guard lock(store_.mutex_);
  TERRACE_RETURN_IF_ERROR(check_room(bytes));
  if (bytes > store_.pool_.free_bytes())
    return Error(ErrorCode::kOutOfMemory, "reserved pages were lost when the system refused to map them anew");
  TERRACE_ASSIGN_OR_RETURN(const auto block, store_.pool_.take(bytes));
  return hold(*new HeldSlab::Memory{id, sizes, block});
}

SlabRef publish(std::shared_ptr<HeldSlab> slab) {
  Reservation& reservation = *slab->reservation_;
  const std::lock_guard lock(reservation.store_.mutex_);
  const auto [published, first] = reservation.store_.published_.emplace(slab->id(), slab->memory_);
  if (first || published->second->sizes != slab->sizes()) return slab;
  auto other = reservation.hold(*published->second);
  return other.ok() ? SlabRef(std::move(other).value()) : SlabRef(std::move(slab));
}

std::uint64_t Reservation::free_slab_bytes() const {
  const std::lock_guard lock(store_.mutex_);
  return slab_bytes_ - charged_;
}

}  // namespace terrace::arena
