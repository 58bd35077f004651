// Heads and attention of a row in one launch against the launches that it stands for, which gpu_trunk_ops_test and
// gpu_attention_test compare with the scalar table: results, cache and what is noted.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "kernels/cuda/trunk_ops/trunk_ops.h"
#include "kernels/cuda/weights/card_rows.h"
#include "tests/gpu/card_test.h"

namespace terrace::kernels::cuda {
namespace {

constexpr unsigned kRowSeed = 9931;
constexpr ActivationClass kRowClasses[] = {ActivationClass::kF32, ActivationClass::kA8x32, ActivationClass::kA8x256};

class CardRowAttention : public test::CardTest {
 protected:
  struct Case {
    KvType type;
    std::uint32_t n_heads, n_kv_heads, dim;
    std::vector<std::uint32_t> n_keys;  // of each row, each of a stream of its own
    std::uint32_t max_keys;
  };
  struct Answer {
    std::vector<std::byte> keys, values;
    std::vector<std::vector<std::byte>> rows;  // of each class
    std::vector<std::uint32_t> failures;
  };

  void SetUp() override {
    CardTest::SetUp();
    if (IsSkipped()) return;
    make({KvType::kF16, 32, 4, 128, {513}, 1024});
    if (!has_heads_and_attention(stream(), args_))
      GTEST_SKIP() << "this card has no clusters, too little memory for one, or does not run all at once";
  }

  void make(const Case& the) {
    const auto n_rows = static_cast<std::uint32_t>(the.n_keys.size());
    const std::uint32_t blocks = (the.max_keys + 31) / 32;
    std::vector<std::uint32_t> tables(std::size_t{n_rows} * blocks), streams, positions;
    for (std::uint32_t i = 0; i < tables.size(); ++i) tables[i] = static_cast<std::uint32_t>(tables.size()) - 1 - i;
    for (std::uint32_t row = 0; row < n_rows; ++row) {
      streams.push_back(n_rows - 1 - row);
      positions.push_back(the.n_keys[row] - 1);
    }
    cache_bytes_ = tables.size() * the.n_kv_heads * 32 * the.dim * bytes(the.type);
    keys_ = cache_values(the, tables.size());
    values_ = cache_values(the, tables.size());
    HeadsArgs& heads = args_.heads;
    heads = {};
    heads.n_rows = n_rows;
    heads.n_heads = the.n_heads;
    heads.q_norm = upload(random(the.dim));
    heads.k_norm = upload(random(the.dim));
    heads.eps = 1e-6f;
    heads.n_rot = the.dim;
    heads.cosines = upload(random(n_rows * the.dim / 2));
    heads.sines = upload(random(n_rows * the.dim / 2));
    heads.cache = {nullptr, nullptr, the.type, the.n_kv_heads, the.dim, the.dim, upload(tables), blocks};
    heads.streams = upload(streams);
    heads.positions = upload(positions);
    heads.queries_code = 4;
    heads.keys_code = 3;
    heads.values_code = 2;
    AttentionArgs& attention = args_.attention;
    attention = {};
    attention.q_stride = std::size_t{the.n_heads} * the.dim;
    attention.streams = heads.streams;
    attention.n_keys = upload(the.n_keys);
    attention.n_rows = n_rows;
    attention.n_heads = the.n_heads;
    attention.max_keys = the.max_keys;
    attention.rows_are_alone = true;
    attention.scale = 0.09f;
    attention.scratch_bytes = attention_scratch_bytes(n_rows, the.n_heads, the.dim, the.max_keys);
    attention.scratch = reinterpret_cast<float*>(room<std::byte>(attention.scratch_bytes));
    q_ = random(n_rows * the.n_heads * the.dim);
    k_ = random(n_rows * the.n_kv_heads * the.dim);
    v_ = random(n_rows * the.n_kv_heads * the.dim);
  }

  Answer answer(bool in_one_launch) {
    HeadsArgs& heads = args_.heads;
    AttentionArgs& attention = args_.attention;
    Answer answer;
    const std::uint32_t width = heads.n_heads * heads.cache.head_dim;
    for (const ActivationClass activation : kRowClasses) {
      heads.q = upload(q_);
      heads.k = upload(k_);
      heads.v = upload(v_);
      heads.cache.k = upload(keys_);
      heads.cache.v = upload(values_);
      heads.failures = upload(std::vector<std::uint32_t>(heads.n_rows, kNoFailure));
      attention.cache = heads.cache;
      attention.q = heads.q;
      const std::size_t apart = stride(activation, width);
      args_.rows = {{activation, upload(std::vector<std::byte>(heads.n_rows * apart)), apart}, 5, heads.failures};
      if (in_one_launch) {
        EXPECT_TRUE(has_heads_and_attention(stream(), args_));
        EXPECT_TRUE(heads_and_attention(stream(), args_).ok());
      } else {
        EXPECT_TRUE(finish_heads(stream(), heads).ok());
        EXPECT_TRUE(attend(stream(), attention, args_.rows).ok());
      }
      answer.rows.push_back(download(args_.rows.out.rows, heads.n_rows * apart));
    }
    answer.keys = download(heads.cache.k, cache_bytes_);
    answer.values = download(heads.cache.v, cache_bytes_);
    answer.failures = download(heads.failures, heads.n_rows);
    return answer;
  }
  void expect_same() {
    const Answer one = answer(true), three = answer(false);
    EXPECT_EQ(one.keys, three.keys);
    EXPECT_EQ(one.values, three.values);
    EXPECT_EQ(one.failures, three.failures);
    for (std::size_t i = 0; i < one.rows.size(); ++i) EXPECT_EQ(one.rows[i], three.rows[i]) << "class " << i;
  }

  const float* sinks(std::uint32_t n) { return upload(random(n)); }

  HeadsAndAttentionArgs args_;
  std::vector<float> q_, k_, v_;

 private:
  std::vector<float> random(std::size_t n) { return test::bell_values(rng_, n, 1.0f); }
  static std::size_t stride(ActivationClass activation, std::uint32_t cols) {
    return card_row_layout(block_values(activation), cols).bytes;
  }
  // Values of any sign between 1/8 and 2, in the bits of the type.
  std::vector<std::byte> cache_values(const Case& the, std::size_t n_blocks) {
    std::vector<std::byte> stored(n_blocks * the.n_kv_heads * 32 * the.dim * bytes(the.type));
    for (std::size_t i = 0; i < stored.size(); i += bytes(the.type)) {
      const auto bits = static_cast<std::uint32_t>(rng_());
      if (the.type == KvType::kF16) {
        const auto half = static_cast<std::uint16_t>((bits & 0x83ff) | (12 + bits % 4) << 10);
        std::memcpy(stored.data() + i, &half, sizeof half);
      } else {
        const std::uint32_t word = (bits & 0x807fffff) | (124 + bits % 4) << 23;
        std::memcpy(stored.data() + i, &word, sizeof word);
      }
    }
    return stored;
  }

  std::mt19937 rng_{kRowSeed};
  std::size_t cache_bytes_ = 0;
  std::vector<std::byte> keys_, values_;
};

TEST_F(CardRowAttention, EqualsHeadsAttentionAndQuantise) {
  std::vector<Case> cases;
  for (const std::uint32_t n_keys : {1u, 2u, 32u, 33u, 255u, 256u, 257u, 513u, 768u, 1023u, 1024u})
    cases.push_back({KvType::kF16, 32, 4, 128, {n_keys}, 1024});
  for (const std::uint32_t n_keys : {1u, 256u, 257u, 512u}) cases.push_back({KvType::kF16, 32, 4, 128, {n_keys}, 512});
  for (const Case& the : cases) {
    SCOPED_TRACE(testing::Message() << the.n_keys[0] << " keys of " << the.max_keys);
    make(the);
    expect_same();
    args_.attention.sinks = sinks(the.n_heads);
    expect_same();
    args_.heads.q_norm = args_.heads.k_norm = nullptr;
    args_.heads.pairing = RopePairing::kAdjacent;
    args_.heads.n_rot = the.dim / 2;
    expect_same();
  }
}

TEST_F(CardRowAttention, WhatIsNotFinite_IsNotedAsByTheSingleOnes) {
  make({KvType::kF16, 32, 4, 128, {513}, 1024});
  for (std::vector<float>* values : {&q_, &k_, &v_}) {
    const float kept = values->back();
    values->back() = std::numeric_limits<float>::quiet_NaN();
    expect_same();
    values->back() = 1e6f;  // more than f16 holds
    expect_same();
    values->back() = kept;
  }
  args_.attention.scale = INFINITY;
  expect_same();
}

// All else goes the other way.
TEST_F(CardRowAttention, IsForOneLoneRowOfFewSplits) {
  const std::vector<Case> others = {
      {KvType::kF16, 32, 4, 128, {513}, 1025},     // more splits than a cluster holds
      {KvType::kF16, 32, 4, 128, {300, 17}, 512},  // two rows
      {KvType::kF32, 32, 4, 128, {513}, 1024},    {KvType::kF16, 32, 4, 64, {513}, 1024},
      {KvType::kF16, 12, 4, 128, {513}, 1024},  // three heads share a KV head
  };
  for (const Case& the : others) {
    make(the);
    EXPECT_FALSE(has_heads_and_attention(stream(), args_));
    EXPECT_FALSE(heads_and_attention(stream(), args_).ok());
  }
  make({KvType::kF16, 32, 4, 128, {513}, 1024});
  EXPECT_TRUE(has_heads_and_attention(stream(), args_));
  args_.attention.rows_are_alone = false;
  EXPECT_FALSE(has_heads_and_attention(stream(), args_));
}

}  // namespace
}  // namespace terrace::kernels::cuda
