#include "coordinator/text/bpe.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace terrace::text {
namespace bpe_test {

using Ids = std::vector<std::int32_t>;
using Rules = std::map<std::pair<std::int32_t, std::int32_t>, std::pair<int, std::int32_t>>;

std::array<std::int32_t, 256> plain_bytes() {
  std::array<std::int32_t, 256> ids{};
  for (int byte = 0; byte < 256; ++byte) ids[static_cast<std::size_t>(byte)] = byte;
  return ids;
}

// The definition, word by word: the lowest rank, the leftmost of it, again.
Ids merge_naively(std::string_view piece, const Rules& rules) {
  Ids ids;
  for (const char c : piece) ids.push_back(static_cast<std::uint8_t>(c));
  while (true) {
    std::size_t best = ids.size();
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto rule = rules.find({ids[i], ids[i + 1]});
      if (rule == rules.end()) continue;
      if (best == ids.size() || rule->second.first < rules.at({ids[best], ids[best + 1]}).first) best = i;
    }
    if (best == ids.size()) return ids;
    ids[best] = rules.at({ids[best], ids[best + 1]}).second;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

Ids encode(const Bpe& bpe, std::string_view piece) {
  Bpe::Scratch scratch;
  Ids ids;
  bpe.encode(piece, scratch, ids);
  return ids;
}

TEST(Bpe, RandomMerges_EqualTheDefinition) {
  constexpr unsigned kSeed = 20240607;
  std::mt19937 random(kSeed);
  for (int round = 0; round < 300; ++round) {
    Bpe bpe(plain_bytes());
    Rules rules;
    std::vector<std::int32_t> known = {'a', 'b', 'c'};
    for (int rank = 0; rank < 12; ++rank) {
      const std::int32_t left = known[random() % known.size()], right = known[random() % known.size()];
      const std::int32_t result = 256 + rank;
      bpe.add_merge(left, right, result);
      rules.try_emplace({left, right}, rank, result);
      known.push_back(result);
    }
    for (int n = 0; n < 40; ++n) {
      std::string piece;
      for (int i = 0; i < n; ++i) piece += static_cast<char>('a' + random() % 3);
      ASSERT_EQ(encode(bpe, piece), merge_naively(piece, rules)) << piece << ", seed " << kSeed << ", round " << round;
    }
  }
}

TEST(Bpe, ByteWithoutToken_IsLeftOutBeforeMerging) {
  auto bytes = plain_bytes();
  bytes['x'] = Bpe::kNoToken;
  Bpe bpe(bytes);
  bpe.add_merge('a', 'b', 300);
  EXPECT_EQ(encode(bpe, "axb"), Ids({300}));
  EXPECT_EQ(encode(bpe, "x"), Ids());
  EXPECT_EQ(encode(bpe, ""), Ids());
}

// With a scan of the whole piece for every merge these would take hours: the test's time limit is the gate.
TEST(Bpe, PieceOfAMegabyte_TakesNoSquareOfIt) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  Bpe bpe(plain_bytes());
  std::int32_t whole = 'a';
  for (std::int32_t id = 256; id < 276; ++id) {  // a, aa, aaaa, ...
    bpe.add_merge(whole, whole, id);
    whole = id;
  }
  EXPECT_EQ(encode(bpe, std::string(kBytes, 'a')), Ids({whole}));

  Bpe chain(plain_bytes());  // every merge changes the pair beside it: ab, (ab)b, ((ab)b)b, ...
  chain.add_merge('a', 'b', 256);
  chain.add_merge(256, 'b', 256);
  EXPECT_EQ(encode(chain, "a" + std::string(kBytes, 'b')), Ids({256}));
}

}  // namespace bpe_test
}  // namespace terrace::text
