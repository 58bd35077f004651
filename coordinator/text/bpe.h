// Byte-pair merges: the ids of one piece of bytes.
//
// Start from the ids of the single bytes; merge the adjacent pair with the lowest rank, leftmost on ties, until no pair
// has one. A byte without a token is left out before the merges begin. n bytes take O(n log n) for any input.
// Source: Sennrich et al. 2016; ranks as in GPT-2's encoder.py.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace terrace::text {

class Bpe {
 public:
  // Ids of the 256 bytes, kNoToken where there is none.
  static constexpr std::int32_t kNoToken = -1;
  explicit Bpe(const std::array<std::int32_t, 256>& byte_ids) : byte_ids_(byte_ids) {}

  // left followed by right becomes `result`. Ranks rise with the calls; of two rules for a pair the first holds.
  // At most 2^32 - 1 calls.
  void add_merge(std::int32_t left, std::int32_t right, std::int32_t result);

  bool has_byte(std::uint8_t byte) const { return byte_ids_[byte] != kNoToken; }

  // Memory that encode() works in: reusable, one per thread.
  class Scratch {
    friend class Bpe;
    struct Symbol {
      std::int32_t id;  // kNoToken: merged into its left neighbour
      std::uint32_t previous;
      std::uint32_t next;
    };
    struct Candidate {
      std::uint64_t order;  // rank << 32 | left: the smallest merges first
      std::int32_t left_id, right_id;
    };
    std::vector<Symbol> symbols_;
    std::vector<Candidate> heap_;
  };

  // Appends the ids of `piece` (fewer than 2^32 - 1 bytes) to `ids`.
  void encode(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& ids) const;

 private:
  struct Merge {
    std::uint32_t rank;
    std::int32_t result;
  };
  struct Mix {
    std::size_t operator()(std::uint64_t pair) const { return (pair * 0x9E3779B97F4A7C15u) >> 16; }
  };
  static std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  void consider(std::uint32_t left, Scratch& scratch) const;
  void merge(const Scratch::Candidate& candidate, Scratch& scratch) const;

  std::array<std::int32_t, 256> byte_ids_;
  std::unordered_map<std::uint64_t, Merge, Mix> merges_;
  std::uint32_t next_rank_ = 0;
};

}  // namespace terrace::text
