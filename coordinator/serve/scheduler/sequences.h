// Sequences that nobody computes at the moment, kept in case a prompt begins as they do: the last one of each idle
// slot, and others as long as there is room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "coordinator/arch/trunk.h"

namespace terrace::serve {

// Tokens that two sequences begin with alike.
std::uint32_t common_prefix(std::span<const std::int32_t> a, std::span<const std::int32_t> b);

// A stream of the trunk and the tokens stored in it.
struct Sequence {
  arch::StreamId stream = 0;
  std::vector<std::int32_t> tokens;   // [length of the stream]
  std::optional<std::uint32_t> slot;  // whose last one it is
  std::uint64_t last_used = 0;        // set by add() and touch()
};

// Its streams rest (kv::Cache::set_resting). One owner thread, the trunk's.
class RestingSequences {
 public:
  // budget: bytes that only resting streams may hold.
  RestingSequences(arch::Trunk& trunk, std::uint64_t budget);

  std::size_t size() const { return sequences_.size(); }
  std::uint64_t evictions() const { return evictions_; }
  const Sequence* of_slot(std::uint32_t slot) const;

  // Takes the stream over. What is a prefix of it is forgotten, and then, least recently used first, what is beyond the
  // budget: perhaps the sequence itself.
  void add(Sequence sequence);
  // The slot's last sequence is no longer a slot's.
  void leave_slot(std::uint32_t slot);
  void forget_slot(std::uint32_t slot);
  // Cuts each at its first position that was computed in `step` or later: Trunk::forget_since().
  void forget_since(std::uint64_t step);
  // Forgets the least recently used. False: there is none.
  bool evict();

  struct Match {
    std::size_t index = 0;
    std::uint32_t common = 0;  // tokens
  };
  // The sequence that shares most tokens with `tokens`, of which at most `most` count; the latest used of equal ones.
  // Nothing where none shares one.
  std::optional<Match> find(std::span<const std::int32_t> tokens, std::uint32_t most) const;
  const Sequence& operator[](std::size_t index) const { return sequences_[index]; }
  // It was used: it is now the last to go. Or it has become a part of another sequence: it goes at once.
  void touch(std::size_t index);
  void forget(std::size_t index);

 private:
  arch::Trunk& trunk_;
  std::uint64_t budget_;
  std::uint64_t uses_ = 0;
  std::uint64_t evictions_ = 0;
  std::vector<Sequence> sequences_;
};

}  // namespace terrace::serve
