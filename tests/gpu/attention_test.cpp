// The KV cache and attention on a card against the scalar table of kernels/cpu/ops, by bits.
#include "kernels/cuda/attention/attention.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/gpu/card_test.h"
#include "tests/gpu/large_model.h"
#include "tests/unit/kernels/cpu/ops/kv_blocks.h"
#include "tests/unit/kernels/cpu/ops/ops_testing.h"

namespace terrace::kernels::cuda {
namespace {

namespace large = test::large_model;

constexpr unsigned kSeed = 20277;

struct Shape {
  std::uint32_t n_heads, n_kv_heads, head_dim, value_dim;
};

// One layer's cache of several streams, their blocks dealt out in a random order; K and V of every position.
class CardAttention : public test::CardTest {
 protected:
  std::vector<float> random(std::size_t n, float scale = 1.0f) { return test::bell_values(rng_, n, scale); }

  void make_cache(const Shape& shape, KvType type, std::vector<std::uint32_t> lengths) {
    shape_ = shape;
    lengths_ = std::move(lengths);
    const std::uint32_t longest = *std::max_element(lengths_.begin(), lengths_.end());
    const std::uint32_t blocks = (longest + 31) / 32, n_blocks = blocks * static_cast<std::uint32_t>(lengths_.size());
    tables_.resize(n_blocks);
    std::iota(tables_.begin(), tables_.end(), 0u);
    std::shuffle(tables_.begin(), tables_.end(), rng_);
    k_bytes_ = std::size_t{n_blocks} * shape.n_kv_heads * 32 * shape.head_dim * bytes(type);
    v_bytes_ = std::size_t{n_blocks} * shape.n_kv_heads * 32 * shape.value_dim * bytes(type);
    cache_ = {room<std::byte>(k_bytes_), room<std::byte>(v_bytes_), type,  shape.n_kv_heads, shape.head_dim,
              shape.value_dim,           upload(tables_),           blocks};
    // Whatever was not written is a NaN in both types.
    ASSERT_OK(stream().fill(cache_.k, 0xff, k_bytes_));
    ASSERT_OK(stream().fill(cache_.v, 0xff, v_bytes_));
  }

  // Appends positions [first, length) of every stream in one call.
  void append_all() {
    std::vector<std::uint32_t> streams, positions;
    for (std::uint32_t s = 0; s < lengths_.size(); ++s)
      for (std::uint32_t t = 0; t < lengths_[s]; ++t) {
        streams.push_back(s);
        positions.push_back(t);
      }
    k_ = random(streams.size() * shape_.n_kv_heads * shape_.head_dim);
    v_ = random(streams.size() * shape_.n_kv_heads * shape_.value_dim);
    failed_ = upload(std::vector<std::uint8_t>(streams.size(), 0));
    KvAppendArgs args;
    args.cache = cache_;
    args.k = upload(k_);
    args.k_stride = shape_.n_kv_heads * shape_.head_dim;
    args.v = upload(v_);
    args.v_stride = shape_.n_kv_heads * shape_.value_dim;
    args.streams = upload(streams);
    args.positions = upload(positions);
    args.n_rows = static_cast<std::uint32_t>(streams.size());
    args.failed = failed_;
    ASSERT_OK(kv_append(stream(), args));
    EXPECT_THAT(download(failed_, streams.size()), testing::Each(0));
  }

  struct Row {
    std::uint32_t stream, n_keys;
  };

  // [rows, n_heads, value_dim]
  std::vector<float> on_card(const std::vector<Row>& rows, const std::vector<float>& q, const std::vector<float>& sinks,
                             std::uint64_t scratch_bytes = 0) {
    std::vector<std::uint32_t> streams, n_keys;
    for (const Row& row : rows) {
      streams.push_back(row.stream);
      n_keys.push_back(row.n_keys);
    }
    cuda::AttentionArgs args;
    args.cache = cache_;
    args.q = upload(q);
    args.q_stride = shape_.n_heads * shape_.head_dim;
    args.out = room<float>(rows.size() * shape_.n_heads * shape_.value_dim);
    args.out_stride = shape_.n_heads * shape_.value_dim;
    args.streams = upload(streams);
    args.n_keys = upload(n_keys);
    args.n_rows = static_cast<std::uint32_t>(rows.size());
    args.n_heads = shape_.n_heads;
    args.max_keys = cache_.table_stride * 32;
    args.scale = kScale;
    args.sinks = sinks.empty() ? nullptr : upload(sinks);
    args.scratch_bytes = scratch_bytes;
    if (scratch_bytes == 0)
      args.scratch_bytes = attention_scratch_bytes(args.n_rows, args.n_heads, shape_.value_dim, args.max_keys);
    args.scratch = reinterpret_cast<float*>(room<std::byte>(args.scratch_bytes));
    EXPECT_TRUE(cuda::attend(stream(), args).ok());
    return download(args.out, rows.size() * shape_.n_heads * shape_.value_dim);
  }

  std::vector<float> reference(const std::vector<Row>& rows, const std::vector<float>& q,
                               const std::vector<float>& sinks) {
    std::vector<float> out;
    const std::uint32_t shared_by = shape_.n_heads / shape_.n_kv_heads;
    for (std::size_t r = 0; r < rows.size(); ++r)
      for (std::uint32_t h = 0; h < shape_.n_kv_heads; ++h) {
        const test::KvBlocks blocks(test::scalar_ops(), cache_.type, of_head(k_, rows[r], h, shape_.head_dim),
                                    of_head(v_, rows[r], h, shape_.value_dim), shape_.head_dim, shape_.value_dim);
        const std::span<const float> heads(q.data() + (r * shape_.n_heads + h * shared_by) * shape_.head_dim,
                                           std::size_t{shared_by} * shape_.head_dim);
        const test::AttentionCase the_case{shared_by, shape_.head_dim, shape_.value_dim,
                                           kScale,    cache_.type,     sinks.empty() ? nullptr : &sinks[h * shared_by]};
        const std::vector<float> y = test::attend(test::scalar_ops(), the_case, heads, blocks);
        out.insert(out.end(), y.begin(), y.end());
      }
    return out;
  }

  // Keys or values of one KV head, of a row's first n_keys positions.
  std::vector<float> of_head(const std::vector<float>& all, const Row& row, std::uint32_t head, std::uint32_t dim) {
    const std::uint32_t before = std::accumulate(lengths_.begin(), lengths_.begin() + row.stream, 0u);
    std::vector<float> mine;
    for (std::uint32_t t = 0; t < row.n_keys; ++t) {
      const auto at = all.begin() + static_cast<std::ptrdiff_t>(((before + t) * shape_.n_kv_heads + head) * dim);
      mine.insert(mine.end(), at, at + dim);
    }
    return mine;
  }

  static constexpr float kScale = 0.088388346f;
  std::mt19937 rng_{kSeed};
  Shape shape_{};
  std::vector<std::uint32_t> lengths_, tables_;
  KvCache cache_;
  std::size_t k_bytes_ = 0, v_bytes_ = 0;
  std::vector<float> k_, v_;
  std::uint8_t* failed_ = nullptr;
};

TEST_F(CardAttention, RowsOfSeveralStreams_EqualReferenceAtEveryDepth) {
  for (const KvType type : {KvType::kF16, KvType::kF32})
    for (const Shape& shape :
         {Shape{32, 4, 128, 128}, Shape{8, 8, 64, 64}, Shape{12, 1, 96, 72}, Shape{4, 1, 576, 512}}) {
      make_cache(shape, type, {700, 33, 256});
      append_all();
      const std::vector<Row> rows = {{0, 1},   {0, 31},  {0, 32}, {0, 255}, {0, 256}, {0, 257},
                                     {0, 512}, {0, 700}, {1, 33}, {2, 256}, {2, 17}};
      const std::vector<float> q = random(rows.size() * shape.n_heads * shape.head_dim);
      EXPECT_SAME_FLOATS(on_card(rows, q, {}), reference(rows, q, {}));
      const std::vector<float> sinks = random(shape.n_heads);
      EXPECT_SAME_FLOATS(on_card(rows, q, sinks), reference(rows, q, sinks));
    }
}

// Enough rows that tiles of several share a split; streams change within a tile.
TEST_F(CardAttention, APromptOfSeveralStreams_EqualsReference) {
  make_cache({16, 4, 64, 64}, KvType::kF16, {150, 500, 290});
  append_all();
  std::vector<Row> rows;
  for (std::uint32_t s = 0; s < 3; ++s)
    for (std::uint32_t t = 1; t <= lengths_[s]; ++t) rows.push_back({s, t});
  const std::vector<float> q = random(rows.size() * 16 * 64);
  EXPECT_SAME_FLOATS(on_card(rows, q, {}), reference(rows, q, {}));
}

// Streams and depths change from row to row: tiles hold parts of several streams, and rows of a stream whose last keys
// lie far apart.
TEST_F(CardAttention, RowsInAnyOrder_EqualReference) {
  for (const KvType type : {KvType::kF16, KvType::kF32})
    for (const Shape& shape : {Shape{16, 2, 128, 128}, Shape{4, 4, 64, 64}, Shape{3, 1, 64, 64}}) {
      make_cache(shape, type, {600, 33, 256});
      append_all();
      std::vector<Row> rows;
      for (std::uint32_t i = 0; i < 300; ++i) {
        const auto stream = static_cast<std::uint32_t>(i % 7 < 4 ? 0 : rng_() % 3);
        rows.push_back({stream, static_cast<std::uint32_t>(1 + rng_() % lengths_[stream])});
      }
      const std::vector<float> q = random(rows.size() * shape.n_heads * shape.head_dim);
      const std::vector<float> sinks = random(shape.n_heads);
      EXPECT_SAME_FLOATS(on_card(rows, q, sinks), reference(rows, q, sinks));
    }
}

// Rows enough that a thread block goes through all splits of its own, with room for some rows at a time only.
TEST_F(CardAttention, ALongPromptInLittleScratch_EqualsReference) {
  make_cache({32, 4, 128, 128}, KvType::kF16, {700});
  append_all();
  std::vector<Row> rows;
  for (std::uint32_t t = 270; t <= 700; ++t) rows.push_back({0, t});
  const std::vector<float> q = random(rows.size() * 32 * 128);
  const std::vector<float> expected = reference(rows, q, {});
  EXPECT_SAME_FLOATS(on_card(rows, q, {}), expected);
  EXPECT_SAME_FLOATS(on_card(rows, q, {}, attention_scratch_bytes(100, 32, 128, 700)), expected);
}

// P4: a row's bits do not depend on the rows beside it.
TEST_F(CardAttention, ARow_IsTheSameAloneAndInAPrompt) {
  make_cache({32, 4, 128, 128}, KvType::kF16, {300});
  append_all();
  std::vector<Row> rows;
  for (std::uint32_t t = 1; t <= 300; ++t) rows.push_back({0, t});
  const std::vector<float> q = random(rows.size() * 32 * 128);
  const std::vector<float> together = on_card(rows, q, {});
  for (const std::uint32_t r : {0u, 99u, 255u, 256u, 299u}) {
    const std::vector<float> own(q.begin() + r * 32 * 128, q.begin() + (r + 1) * 32 * 128);
    const std::span<const float> expected(together.data() + r * 32 * 128, 32 * 128);
    EXPECT_SAME_FLOATS(on_card({rows[r]}, own, {}), expected);
  }
}

// Rows of one stream, as a prompt's, behind 199 others: the first of the same rows for every number of them.
class CardAttentionOfTheLargeModel : public CardAttention, public testing::WithParamInterface<KvType> {
 protected:
  static constexpr Shape kShape{large::kHeads, large::kKvHeads, large::kHeadDim, large::kHeadDim};

  void expect_prefixes(const std::vector<Row>& rows, std::span<const std::uint32_t> counts) {
    constexpr std::size_t kWidth = large::kQueries;
    const std::vector<float> q = random(rows.size() * kWidth);
    const std::vector<float> expected = reference(rows, q, {});
    for (const std::uint32_t n : counts) {
      const auto end = static_cast<std::ptrdiff_t>(n * kWidth);
      const std::vector<float> some(q.begin(), q.begin() + end);
      SCOPED_TRACE(testing::Message() << n << " rows, seed " << kSeed);
      EXPECT_SAME_FLOATS(on_card({rows.begin(), rows.begin() + n}, some, {}), std::span(expected).first(n * kWidth));
    }
  }
};

TEST_P(CardAttentionOfTheLargeModel, AnyNumberOfRowsOfAStream_EqualsReference) {
  make_cache(kShape, GetParam(), {199 + large::kMostRows});
  append_all();
  std::vector<Row> rows;
  for (std::uint32_t i = 0; i < large::kMostRows; ++i) rows.push_back({0, 200 + i});
  expect_prefixes(rows, large::kRows);
}

TEST_P(CardAttentionOfTheLargeModel, AnyNumberOfStreamsThatDecode_EqualsReference) {
  std::vector<std::uint32_t> lengths;
  for (std::uint32_t i = 0; i < 65; ++i) lengths.push_back(1 + 97 * i % 520);
  make_cache(kShape, GetParam(), lengths);
  append_all();
  std::vector<Row> rows;
  for (std::uint32_t i = 0; i < 65; ++i) rows.push_back({i, lengths[i]});
  expect_prefixes(rows, std::span(large::kRows).first(std::size(large::kRows) - 1));
}

INSTANTIATE_TEST_SUITE_P(All, CardAttentionOfTheLargeModel, testing::Values(KvType::kF16, KvType::kF32),
                         [](const auto& type) { return type.param == KvType::kF16 ? "F16" : "F32"; });

TEST_F(CardAttention, StoredPositions_EqualReferenceByBits) {
  for (const KvType type : {KvType::kF16, KvType::kF32}) {
    const Shape shape{4, 2, 64, 32};
    make_cache(shape, type, {70});
    append_all();
    const std::vector<std::byte> k = download(cache_.k, k_bytes_), v = download(cache_.v, v_bytes_);
    for (std::uint32_t h = 0; h < 2; ++h) {
      const test::KvBlocks blocks(test::scalar_ops(), type, of_head(k_, {0, 70}, h, 64), of_head(v_, {0, 70}, h, 32),
                                  64, 32);
      for (std::uint32_t b = 0; b < 3; ++b) {
        const std::size_t place = (std::size_t{tables_[b]} * 2 + h) * 32 * bytes(type);
        EXPECT_EQ(std::memcmp(&k[place * 64], blocks.k()[b], 32 * 64 * bytes(type)), 0) << "K, block " << b;
        EXPECT_EQ(std::memcmp(&v[place * 32], blocks.v()[b], 32 * 32 * bytes(type)), 0) << "V, block " << b;
      }
    }
  }
}

TEST_F(CardAttention, ValuesThatCannotBeStored_FailTheirRow) {
  make_cache({1, 1, 8, 8}, KvType::kF16, {4});
  std::vector<float> k(32, 1.0f), v(32, 1.0f);
  k[8] = 65520.0f;   // rounds to f16's infinity
  k[16] = 65519.0f;  // does not
  v[31] = std::nanf("");
  const std::vector<std::uint32_t> streams(4, 0), positions = {0, 1, 2, 3};
  std::uint8_t* failed = upload(std::vector<std::uint8_t>(4, 0));
  ASSERT_OK(kv_append(stream(), {cache_, upload(k), 8, upload(v), 8, upload(streams), upload(positions), 4, failed}));
  EXPECT_THAT(download(failed, 4), testing::ElementsAre(0, 1, 0, 1));
}

}  // namespace
}  // namespace terrace::kernels::cuda
