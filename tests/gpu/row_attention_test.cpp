// Heads and attention of a row in one launch against the launches that it stands for, which gpu_trunk_ops_test and
// gpu_attention_test compare with the scalar table: results, cache and what is noted. And once against that table
// itself.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "kernels/cuda/trunk_ops/trunk_ops.h"
#include "kernels/cuda/weights/card_rows.h"
#include "tests/gpu/card_test.h"
#include "tests/unit/kernels/cpu/ops/ops_testing.h"

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
    tables_ = tables;
    n_keys_ = the.n_keys[0];
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
    q_norm_ = random(the.dim);
    k_norm_ = random(the.dim);
    cosines_ = random(n_rows * the.dim / 2);
    sines_ = random(n_rows * the.dim / 2);
    heads.q_norm = upload(q_norm_);
    heads.k_norm = upload(k_norm_);
    heads.eps = 1e-6f;
    heads.n_rot = the.dim;
    heads.cosines = upload(cosines_);
    heads.sines = upload(sines_);
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

  // Results of the first row by the scalar table: nothing of it is computed on the card.
  std::vector<float> on_cpu() const {
    const HeadsArgs& heads = args_.heads;
    const Ops& ops = test::scalar_ops();
    const std::uint32_t dim = heads.cache.head_dim, n_kv_heads = heads.cache.n_kv_heads, last = n_keys_ - 1;
    const std::size_t group = heads.n_heads / n_kv_heads;
    Lines keys = lines(keys_), values = lines(values_);
    std::vector<float> q = q_, k = k_, out(q.size());
    const auto finish = [&](float* head, const std::vector<float>& norm) {
      ops.rms_norm(head, norm.data(), dim, heads.eps, head);
      ops.rope(head, cosines_.data(), sines_.data(), heads.n_rot, heads.pairing);
    };
    for (std::uint32_t i = 0; i < heads.n_heads; ++i) finish(q.data() + i * dim, q_norm_);
    for (std::uint32_t h = 0; h < n_kv_heads; ++h) {
      const auto block = [&](Lines& of, std::uint32_t position) {
        const std::size_t place = std::size_t{tables_[position / kKvBlockPositions]} * n_kv_heads + h;
        return reinterpret_cast<std::byte*>(of.data()) + place * kKvBlockPositions * dim * bytes(heads.cache.type);
      };
      finish(k.data() + h * dim, k_norm_);
      ops.store_k(k.data() + h * dim, dim, last % kKvBlockPositions, heads.cache.type, block(keys, last));
      ops.store_v(v_.data() + h * dim, dim, last % kKvBlockPositions, heads.cache.type, block(values, last));
      std::vector<const std::byte*> key_blocks, value_blocks;
      for (std::uint32_t position = 0; position < n_keys_; position += kKvBlockPositions) {
        key_blocks.push_back(block(keys, position));
        value_blocks.push_back(block(values, position));
      }
      std::vector<float> scratch(attention_scratch_floats(group, dim));
      ops.attend({.q = q.data() + h * group * dim,
                  .out = out.data() + h * group * dim,
                  .k = key_blocks.data(),
                  .v = value_blocks.data(),
                  .n_keys = n_keys_,
                  .n_heads = group,
                  .head_dim = dim,
                  .value_dim = dim,
                  .scale = args_.attention.scale,
                  .type = heads.cache.type,
                  .scratch = scratch.data()});
    }
    return out;
  }
  // Of one row on the host, as card rows of a class.
  std::vector<std::byte> card_row(ActivationClass activation, const std::vector<float>& x) {
    const auto cols = static_cast<std::uint32_t>(x.size());
    std::byte* const row = upload(std::vector<std::byte>(stride(activation, cols)));
    EXPECT_TRUE(
        quantize_card_rows(stream(), {activation, upload(x), cols, 1, cols, row, stride(activation, cols)}).ok());
    return download(row, stride(activation, cols));
  }

  const float* sinks(std::uint32_t n) { return upload(random(n)); }

  HeadsAndAttentionArgs args_;
  std::vector<float> q_, k_, v_;

 private:
  // As the scalar table wants its blocks aligned.
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  using Lines = std::vector<Line>;
  static Lines lines(const std::vector<std::byte>& stored) {
    Lines made((stored.size() + sizeof(Line) - 1) / sizeof(Line));
    std::memcpy(made.data(), stored.data(), stored.size());
    return made;
  }

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
  std::vector<std::uint32_t> tables_;
  std::uint32_t n_keys_ = 0;  // of the first row
  std::vector<float> q_norm_, k_norm_, cosines_, sines_;
};

// The launches that the others compare with could be wrong in the same way.
TEST_F(CardRowAttention, EqualsTheScalarTable) {
  make({KvType::kF16, 32, 4, 128, {513}, 1024});
  const std::vector<float> expected = on_cpu();
  const Answer one = answer(true);
  std::vector<float> values(expected.size());
  ASSERT_EQ(kRowClasses[0], ActivationClass::kF32);
  ASSERT_GE(one.rows[0].size(), values.size() * sizeof(float));
  std::memcpy(values.data(), one.rows[0].data(), values.size() * sizeof(float));
  EXPECT_EQUAL_FLOATS(values, expected, "results");
  for (std::size_t i = 0; i < std::size(kRowClasses); ++i)
    EXPECT_EQ(one.rows[i], card_row(kRowClasses[i], expected)) << "class " << i;
}

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
