// Finds equal things by their hash: numbers of things that lie elsewhere. Open addressing; nothing is ever removed but
// all at once.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace::sampler::grammar {

class InternTable {
 public:
  // The number of the thing with `hash` for which is_equal(number) holds, or what make() gives: the number of a new
  // one.
  template <class IsEqual, class Make>
  std::uint32_t find_or_make(std::uint64_t hash, IsEqual&& is_equal, Make&& make) {
    if (2 * (n_ + 1) > slots_.size()) grow();
    const auto tag = static_cast<std::uint32_t>(hash >> 32);
    std::size_t at = hash & (slots_.size() - 1);
    for (; slots_[at].number != kFree; at = (at + 1) & (slots_.size() - 1))
      if (slots_[at].tag == tag && is_equal(slots_[at].number)) return slots_[at].number;
    slots_[at] = {make(), tag, hash};
    ++n_;
    return slots_[at].number;
  }

  // Costs what was put in, not what was once: the table shrinks to what it held.
  void clear() {
    if (n_ == 0) return;
    slots_.assign(std::bit_ceil(std::max<std::size_t>(64, 2 * (n_ + 1))), {});
    n_ = 0;
  }

 private:
  static constexpr std::uint32_t kFree = ~std::uint32_t{0};
  struct Slot {
    std::uint32_t number = kFree;
    std::uint32_t tag = 0;
    std::uint64_t hash = 0;
  };

  void grow() {
    std::vector<Slot> larger(slots_.empty() ? 64 : 2 * slots_.size());
    for (const Slot& slot : slots_) {
      if (slot.number == kFree) continue;
      std::size_t at = slot.hash & (larger.size() - 1);
      while (larger[at].number != kFree) at = (at + 1) & (larger.size() - 1);
      larger[at] = slot;
    }
    slots_ = std::move(larger);
  }

  std::vector<Slot> slots_;  // a power of two
  std::size_t n_ = 0;
};

// A hash of what was mixed in so far and `value` (the finaliser of MurmurHash3, public domain).
constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash ^= value + 0x9E3779B97F4A7C15u;
  hash = (hash ^ hash >> 33) * 0xFF51AFD7ED558CCDu;
  hash = (hash ^ hash >> 33) * 0xC4CEB9FE1A85EC53u;
  return hash ^ hash >> 33;
}

}  // namespace terrace::sampler::grammar
