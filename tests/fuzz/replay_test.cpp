// The target without a fuzzer: its committed corpus, and seeded mutations of that. Under the address sanitizer it finds
// what a short fuzz run would; a broken promise ends the program.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>

#include "tests/fuzz/fuzz_target.h"
#include "tests/test_data.h"

namespace terrace::fuzz {
namespace {

constexpr std::uint64_t kSeed = 4711;
// Most where the address sanitizer sees what goes wrong.
#ifdef __SANITIZE_ADDRESS__
constexpr int kMutations = 12'000;
#else
constexpr int kMutations = 5'000;
#endif
constexpr std::size_t kLargest = 1 << 16;

using Bytes = std::vector<std::byte>;

std::filesystem::path corpus_dir() { return test::source_dir() / "tests" / "fuzz" / "corpus" / target_name(); }

std::vector<Seed> corpus() {
  std::vector<Seed> files;
  for (const auto& entry : std::filesystem::directory_iterator(corpus_dir()))
    files.push_back({entry.path().filename().string(), test::read_array<std::byte>(entry.path())});
  std::ranges::sort(files, {}, &Seed::name);
  return files;
}

// One change of those that find the most: a bit, an extreme word, bytes gone, doubled, added, or another's end.
void mutate(Bytes& bytes, const std::vector<Seed>& others, std::mt19937_64& random) {
  constexpr std::uint64_t kExtremes[] = {0,
                                         1,
                                         0x7f,
                                         0x80,
                                         0xff,
                                         0x7fff,
                                         0xffff,
                                         0x7fffffff,
                                         0x80000000,
                                         0xffffffff,
                                         0x7fffffffffffffff,
                                         0xffffffffffffffff};
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % std::max<std::size_t>(n, 1)); };
  const std::size_t at = below(bytes.size());
  const auto position = bytes.begin() + static_cast<std::ptrdiff_t>(at);
  const std::size_t n = std::min(below(64) + 1, bytes.size() - at);
  switch (random() % 7) {
    case 0:
    case 1:
      if (!bytes.empty()) bytes[at] ^= std::byte(1u << random() % 8);
      break;
    case 2:
      for (std::size_t i = 0, width = std::size_t{1} << random() % 4; i < std::min(width, bytes.size() - at); ++i)
        bytes[at + i] = std::byte(kExtremes[random() % std::size(kExtremes)] >> 8 * i);
      break;
    case 3:
      bytes.erase(position, position + static_cast<std::ptrdiff_t>(n));
      break;
    case 4: {
      const Bytes doubled(position, position + static_cast<std::ptrdiff_t>(n));
      bytes.insert(position, doubled.begin(), doubled.end());
      break;
    }
    case 5:
      bytes.insert(position, n, std::byte(random()));
      break;
    default: {
      const Bytes& other = others[random() % others.size()].bytes;
      const auto from = other.begin() + static_cast<std::ptrdiff_t>(std::min(at, other.size()));
      bytes.resize(at);
      bytes.insert(bytes.end(), from, other.end());
    }
  }
  if (bytes.size() > kLargest) bytes.resize(kLargest);
}

TEST(FuzzTarget, CommittedCorpus_HoldsTheSeedsAsTheyAreMadeNow) {
  const std::vector<Seed> files = corpus();
  for (const Seed& seed : make_seeds()) {
    const auto file = std::ranges::find(files, seed.name, &Seed::name);
    ASSERT_NE(file, files.end()) << seed.name << " is missing: run terrace-fuzz-seeds-" << target_name();
    EXPECT_TRUE(file->bytes == seed.bytes) << seed.name << " is another: run terrace-fuzz-seeds-" << target_name();
  }
}

TEST(FuzzTarget, EveryFileOfTheCorpus_IsHandled) {
  const std::vector<Seed> files = corpus();
  EXPECT_FALSE(files.empty());
  for (const Seed& file : files) run_on_copy(file.bytes);
}

TEST(FuzzTarget, SeededMutationsOfTheCorpus_AreHandled) {
  const std::vector<Seed> files = corpus();
  ASSERT_FALSE(files.empty());
  std::mt19937_64 random(kSeed);
  RecordProperty("seed", std::to_string(kSeed));
  for (int run = 0; run < kMutations; ++run) {
    Bytes bytes = files[random() % files.size()].bytes;
    for (std::uint64_t n = 1 + random() % 4; n > 0; --n) mutate(bytes, files, random);
    run_on_copy(bytes);
  }
}

TEST(FuzzTarget, EveryTruncationOfEverySeed_IsHandled) {
  for (const Seed& seed : make_seeds())
    for (std::size_t n = 0; n<seed.bytes.size(); n += seed.bytes.size()> 2048 ? 13 : 1)
      run_on_copy(std::span(seed.bytes).first(n));
}

}  // namespace
}  // namespace terrace::fuzz
