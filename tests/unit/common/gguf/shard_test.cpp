#include "common/gguf/shard.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/gguf/bytes.h"
#include "tests/test_data.h"
#include "tests/unit/common/temp_dir.h"

namespace terrace::gguf {
namespace {

std::string base_file() { return test::read_file(test::data_dir() / "gguf" / "base.gguf"); }

// Exactly as long as its content, so that the address sanitizer sees the first byte read too far.
std::vector<std::byte> first_bytes(const std::string& bytes, std::size_t n) {
  const auto all = as_bytes(bytes);
  return {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n)};
}

TEST(Shard, WholeFile_IsRead) {
  const std::string bytes = base_file();
  const auto shard = parse_shard(as_bytes(bytes));
  ASSERT_TRUE(shard.ok()) << shard.error().text();
  EXPECT_EQ(shard->version, 3u);
  EXPECT_EQ(shard->tensors.size(), 14u);
  EXPECT_EQ(shard->metadata.get_string("general.architecture").value(), "qwen3moe");
}

TEST(Shard, CutAtEveryByte_IsRefused) {
  const std::string bytes = base_file();
  const auto whole = parse_shard(as_bytes(bytes));
  ASSERT_TRUE(whole.ok());
  for (std::size_t n = 0; n < bytes.size(); n += n < whole->data_start + 64 ? 1 : 97) {
    const auto cut = first_bytes(bytes, n);
    const auto shard = parse_shard(cut);
    ASSERT_FALSE(shard.ok()) << n << " of " << bytes.size() << " bytes";
    EXPECT_EQ(shard.error().code(), ErrorCode::kCorrupt);
  }
}

// Each byte of the head turned over, one at a time: read or refused, never out of bounds (the sanitizers judge).
TEST(Shard, EveryByteOfTheHeadFlipped_IsReadOrRefused) {
  const std::string bytes = base_file();
  const auto whole = parse_shard(as_bytes(bytes));
  ASSERT_TRUE(whole.ok());
  std::size_t refused = 0;
  auto changed = first_bytes(bytes, bytes.size());
  for (std::size_t i = 0; i < whole->data_start; ++i) {
    changed[i] ^= std::byte{0xff};
    refused += parse_shard(changed).ok() ? 0 : 1;
    changed[i] ^= std::byte{0xff};
  }
  EXPECT_GT(refused, 100u);
}

TEST(Shard, RemovedAndPrivateTypes_AreNamed) {
  std::string bytes = base_file();
  const auto whole = parse_shard(as_bytes(bytes));
  ASSERT_TRUE(whole.ok());
  const std::string name = "blk.0.ffn_up_exps.weight";
  const std::size_t at = bytes.find(name) + name.size() + 4 + 3 * 8;
  for (const auto& [id, word] : {std::pair<std::uint32_t, const char*>{36, "IQ4_NL_4_4"},
                                 {36, "ik_llama.cpp"},
                                 {139, "ik_llama.cpp"},
                                 {4, "Q4_2"},
                                 {43, "43 is unknown"}}) {
    std::memcpy(bytes.data() + at, &id, sizeof id);
    const auto shard = parse_shard(as_bytes(bytes));
    ASSERT_FALSE(shard.ok()) << id;
    EXPECT_EQ(shard.error().code(), ErrorCode::kUnsupported);
    EXPECT_NE(shard.error().text().find(word), std::string::npos) << shard.error().text();
    EXPECT_NE(shard.error().text().find(name), std::string::npos) << shard.error().text();
  }
}

}  // namespace
}  // namespace terrace::gguf
