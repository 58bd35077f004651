// The fused operations of a step against the single ones, which gpu_ops_test and gpu_attention_test compare with the
// scalar table; and what they note of rows that are not finite.
#include "kernels/cuda/trunk_ops/trunk_ops.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/router/router.h"
#include "tests/gpu/large_model.h"
#include "tests/gpu/trunk_ops_testing.h"

namespace terrace::kernels::cuda {
namespace {

using test::CardTrunkOps;
using test::kClasses;
using ::testing::Each;
using ::testing::ElementsAre;
namespace large = test::large_model;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST_F(CardTrunkOps, Residual_EqualsAddNormAndQuantise) {
  for (const std::uint32_t n : {256u, 768u, large::kWidth, 4096u}) {
    for (const std::uint32_t n_rows : large::kRows) {
      const auto x = random(n_rows * n), delta = random(n_rows * n), w = random(n);
      float* expected = upload(x);
      float* normed = room<float>(n_rows * n);
      ASSERT_OK(add(stream(), expected, upload(delta), n_rows * n));
      ASSERT_OK(rms_norm(stream(), {expected, n, upload(w), normed, n, n_rows, n, 1e-6f}));
      ResidualArgs args;
      args.x = upload(x);
      args.n_rows = n_rows;
      args.n = n;
      args.delta = upload(delta);
      args.w = upload(w);
      args.eps = 1e-6f;
      args.h = room<float>(n_rows * n);
      for (std::size_t i = 0; i < 3; ++i)
        args.out[i] = {kClasses[i], zeros(n_rows * stride(kClasses[i], n)), stride(kClasses[i], n)};
      args.failures = no_failures(n_rows);
      ASSERT_OK(residual(stream(), args));
      EXPECT_EQUAL_FLOATS(download(args.x, n_rows * n), download(expected, n_rows * n), "x");
      EXPECT_EQUAL_FLOATS(download(args.h, n_rows * n), download(normed, n_rows * n), "h");
      for (const CardRowsOut& out : args.out)
        EXPECT_EQ(download(out.rows, n_rows * out.stride), card_rows(out.activation, normed, n_rows, n));
      EXPECT_THAT(download(args.failures, n_rows), Each(kNoFailure));
    }
  }
}

TEST_F(CardTrunkOps, Residual_NotesTheFirstFailureOfARow) {
  constexpr std::uint32_t n = 256, kRows = 4;
  auto delta = random(kRows * n);
  delta[n + 17] = kNaN;
  std::vector<std::int64_t> sums(kRows * n);
  sums[2 * n + 5] = std::int64_t{1} << 51;
  ResidualArgs args;
  args.n_rows = kRows;
  args.n = n;
  args.w = upload(random(n));
  args.experts_code = 7;
  args.added_code = 8;
  args.normed_code = 9;
  args.h = room<float>(kRows * n);
  args.failures = upload(std::vector<std::uint32_t>{kNoFailure, kNoFailure, kNoFailure, 3});
  args.x = upload(random(kRows * n));
  args.delta = upload(delta);
  ASSERT_OK(residual(stream(), args));
  EXPECT_THAT(download(args.failures, kRows), ElementsAre(kNoFailure, 8, kNoFailure, 3));
  EXPECT_THAT(download(args.h + n, n), Each(0.0f)) << "what is not finite goes on as zeros";
  args.delta = nullptr;
  args.sums = upload(sums);
  args.x = upload(random(kRows * n));
  ASSERT_OK(residual(stream(), args));
  EXPECT_THAT(download(args.failures, kRows), ElementsAre(kNoFailure, 8, 7, 3));
}

TEST_F(CardTrunkOps, FinishHeads_EqualsNormRopeAndAppend) {
  constexpr std::uint32_t kRows = 3, kHeads = 8, kKvHeads = 2, kDim = 128, kBlocks = 4;
  for (const KvType type : {KvType::kF16, KvType::kF32}) {
    const auto q = random(kRows * kHeads * kDim), k = random(kRows * kKvHeads * kDim),
               v = random(kRows * kKvHeads * kDim);
    const auto *q_norm = upload(random(kDim)), *k_norm = upload(random(kDim));
    const auto *cosines = upload(random(kRows * kDim / 2)), *sines = upload(random(kRows * kDim / 2));
    const auto* streams = upload(std::vector<std::uint32_t>{0, 1, 1});
    const auto* positions = upload(std::vector<std::uint32_t>{40, 0, 1});
    const std::size_t cache_bytes = kBlocks * kKvHeads * kKvBlockPositions * kDim * bytes(type);
    KvCache cache{zeros(cache_bytes),
                  zeros(cache_bytes),
                  type,
                  kKvHeads,
                  kDim,
                  kDim,
                  upload(std::vector<std::uint32_t>{3, 1, 2, 0}),
                  2};
    float *expected_q = upload(q), *expected_k = upload(k);
    ASSERT_OK(rms_norm(stream(), {expected_q, kDim, q_norm, expected_q, kDim, kRows * kHeads, kDim, 1e-6f}));
    ASSERT_OK(rms_norm(stream(), {expected_k, kDim, k_norm, expected_k, kDim, kRows * kKvHeads, kDim, 1e-6f}));
    ASSERT_OK(rope(stream(), {expected_q, kHeads * kDim, kRows, kHeads, kDim, kDim, cosines, sines}));
    ASSERT_OK(rope(stream(), {expected_k, kKvHeads * kDim, kRows, kKvHeads, kDim, kDim, cosines, sines}));
    ASSERT_OK(kv_append(stream(), {cache, expected_k, kKvHeads * kDim, upload(v), kKvHeads * kDim, streams, positions,
                                   kRows, room<std::uint8_t>(kRows)}));
    const auto expected_keys = download(cache.k, cache_bytes), expected_values = download(cache.v, cache_bytes);

    cache.k = zeros(cache_bytes);
    cache.v = zeros(cache_bytes);
    HeadsArgs args;
    args.q = upload(q);
    args.k = upload(k);
    args.v = upload(v);
    args.n_rows = kRows;
    args.n_heads = kHeads;
    args.q_norm = q_norm;
    args.k_norm = k_norm;
    args.eps = 1e-6f;
    args.n_rot = kDim;
    args.cosines = cosines;
    args.sines = sines;
    args.cache = cache;
    args.streams = streams;
    args.positions = positions;
    args.queries_code = 1;
    args.keys_code = 2;
    args.values_code = 3;
    args.failures = no_failures(kRows);
    ASSERT_OK(finish_heads(stream(), args));
    EXPECT_EQUAL_FLOATS(download(args.q, q.size()), download(expected_q, q.size()), "q");
    EXPECT_EQ(download(cache.k, cache_bytes), expected_keys);
    EXPECT_EQ(download(cache.v, cache_bytes), expected_values);
    EXPECT_THAT(download(args.failures, kRows), Each(kNoFailure));

    auto bad_q = q, bad_v = v;
    bad_q[5] = kNaN;                            // row 0
    bad_v[2 * kKvHeads * kDim + 9] = INFINITY;  // row 2
    args.q = upload(bad_q);
    args.v = upload(bad_v);
    ASSERT_OK(finish_heads(stream(), args));
    EXPECT_THAT(download(args.failures, kRows), ElementsAre(1, kNoFailure, 3));
  }
}

// Which pairs an expert has, whatever their order.
TEST_F(CardTrunkOps, ChooseExperts_EqualsTheRouterAndGroupsItsPairs) {
  constexpr std::uint32_t kExperts = 128, kTopK = 8;
  for (const std::uint32_t n_rows : large::kRows) {
    const std::uint32_t n_pairs = n_rows * kTopK, n_groups = std::min(n_pairs, kExperts);
    const float* logits = upload(random(n_rows * kExperts));
    RouteArgs single;
    single.logits = logits;
    single.n_rows = n_rows;
    single.n_experts = kExperts;
    single.rule.top_k = kTopK;
    single.ids = room<std::uint16_t>(n_pairs);
    single.weights = room<float>(n_pairs);
    ASSERT_OK(route(stream(), single));
    std::vector<CardSlab> slabs;
    for (std::uintptr_t e = 0; e < kExperts; ++e)  // null would be another leg's
      slabs.push_back({reinterpret_cast<std::byte*>(500 + e), reinterpret_cast<std::byte*>(1000 + e),
                       reinterpret_cast<std::byte*>(2000 + e)});
    const ChooseArgs args = choice_with_pairs(logits, n_rows, kTopK, slabs);
    ASSERT_OK(choose_experts(stream(), args));
    const auto ids = download(args.ids, n_pairs);
    EXPECT_EQ(ids, download(single.ids, n_pairs));
    EXPECT_EQUAL_FLOATS(download(args.weights, n_pairs), download(single.weights, n_pairs), "weights");
    const auto gate_up = download(args.gate_up, 2 * n_groups), down = download(args.down, n_groups);
    const auto x_rows = download(args.x_rows, 2 * n_pairs);
    const auto slots = download(args.slots, n_pairs);
    std::vector<std::uintptr_t> expert_of(n_pairs, kExperts);
    std::uint32_t seen = 0;
    for (std::uint32_t g = 0; g < n_groups; ++g) {
      if (down[g].n == 0) continue;
      const auto expert = reinterpret_cast<std::uintptr_t>(gate_up[g].w) - 500;
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(gate_up[n_groups + g].w), 1000 + expert);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(down[g].w), 2000 + expert);
      EXPECT_EQ(gate_up[g].first, down[g].first);
      EXPECT_EQ(gate_up[n_groups + g].first, n_pairs + down[g].first);
      EXPECT_THAT((std::vector{gate_up[g].n, gate_up[n_groups + g].n}), Each(down[g].n));
      for (std::uint32_t i = 0; i < down[g].n; ++i) expert_of[down[g].first + i] = expert;
      seen += down[g].n;
    }
    EXPECT_EQ(seen, n_pairs);
    for (std::uint32_t i = 0; i < n_pairs; ++i) {
      const auto at = static_cast<std::uint32_t>(slots[i]);
      ASSERT_LT(at, n_pairs);
      EXPECT_EQ(expert_of[at], ids[i]);
      EXPECT_EQ(x_rows[at], i / kTopK);
      EXPECT_EQ(x_rows[n_pairs + at], i / kTopK);
    }
  }
}

TEST_F(CardTrunkOps, ChooseExperts_OfLogitsThatAreNotFinite_TakesTheFirstAndNotesTheRow) {
  auto logits = random(2 * 16);
  logits[16 + 3] = kNaN;
  ChooseArgs args;
  args.logits = upload(logits);
  args.n_rows = 2;
  args.n_experts = 16;
  args.top_k = 3;
  args.ids = room<std::uint16_t>(6);
  args.weights = room<float>(6);
  args.router_code = 5;
  args.failures = no_failures(2);
  ASSERT_OK(choose_experts(stream(), args));
  EXPECT_THAT(download(args.failures, 2), ElementsAre(kNoFailure, 5));
  EXPECT_THAT(download(args.ids + 3, 3), ElementsAre(0, 1, 2));
}

TEST_F(CardTrunkOps, ResidualAndChoice_EqualsResidualRouterAndChoice) {
  constexpr std::uint32_t n = 2048, kExperts = 128, kTopK = 8;
  const auto x = random(n), delta = random(n), w = random(n), router = random(kExperts * n, 0.02f);
  std::vector<CardSlab> slabs;
  for (std::uintptr_t e = 1; e <= kExperts; ++e)
    slabs.push_back({reinterpret_cast<std::byte*>(e), reinterpret_cast<std::byte*>(1000 + e),
                     reinterpret_cast<std::byte*>(2000 + e)});
  const auto make = [&](const std::vector<float>& added) {
    ResidualAndChoiceArgs args;
    args.residual.x = upload(x);
    args.residual.n_rows = 1;
    args.residual.n = n;
    args.residual.delta = upload(added);
    args.residual.w = upload(w);
    args.residual.eps = 1e-6f;
    args.residual.added_code = 3;
    args.residual.normed_code = 4;
    args.residual.h = room<float>(n);
    for (std::size_t i = 0; i < 3; ++i)
      args.residual.out[i] = {kClasses[i], zeros(stride(kClasses[i], n)), stride(kClasses[i], n)};
    args.residual.failures = no_failures(1);
    args.router = upload(router);
    args.choice.n_rows = 1;
    args.choice.n_experts = kExperts;
    args.choice.top_k = kTopK;
    args.choice.ids = room<std::uint16_t>(kTopK);
    args.choice.weights = room<float>(kTopK);
    args.choice.router_code = 5;
    args.choice.failures = args.residual.failures;
    args.choice.slabs = upload(slabs);
    args.choice.gate_up = reinterpret_cast<GemvGroup*>(zeros(2 * kTopK * sizeof(GemvGroup)));
    args.choice.down = reinterpret_cast<GemvGroup*>(zeros(kTopK * sizeof(GemvGroup)));
    args.choice.x_rows = room<std::uint32_t>(2 * kTopK);
    args.choice.slots = room<std::int32_t>(kTopK);
    return args;
  };
  auto bad = delta;
  bad[1234] = kNaN;
  for (const bool is_bad : {false, true}) {
    const auto& added = is_bad ? bad : delta;
    const ResidualAndChoiceArgs single = make(added), args = make(added);
    if (!has_residual_and_choice(stream(), args)) GTEST_SKIP() << "this card has no clusters, or too little memory";
    ASSERT_OK(residual(stream(), single.residual));
    // The router by hand: in 16 lanes, as the host's table does it.
    const auto h = download(single.residual.h, n);
    std::vector<float> logits(kExperts);
    for (std::uint32_t e = 0; e < kExperts; ++e) logits[e] = dot_in_lanes(router.data() + e * n, h);
    ChooseArgs choice = single.choice;
    choice.logits = upload(logits);
    ASSERT_OK(choose_experts(stream(), choice));
    ASSERT_OK(residual_and_choice(stream(), args));
    EXPECT_THAT(download(args.residual.failures, 1), ElementsAre(is_bad ? 3 : kNoFailure));
    if (is_bad) break;  // residual() zeroes a part of such a row, so that its choice is another
    EXPECT_EQUAL_FLOATS(download(args.residual.x, n), download(single.residual.x, n), "x");
    EXPECT_EQUAL_FLOATS(download(args.choice.weights, kTopK), download(choice.weights, kTopK), "weights");
    EXPECT_EQ(download(args.choice.ids, kTopK), download(choice.ids, kTopK));
    EXPECT_EQ(download(args.choice.slots, kTopK), download(choice.slots, kTopK));
    EXPECT_EQ(download(args.choice.x_rows, 2 * kTopK), download(choice.x_rows, 2 * kTopK));
    const auto bytes = [&](const GemvGroup* groups, std::size_t count) {
      return download(reinterpret_cast<const std::byte*>(groups), count * sizeof(GemvGroup));
    };
    EXPECT_EQ(bytes(args.choice.gate_up, 2 * kTopK), bytes(choice.gate_up, 2 * kTopK));
    EXPECT_EQ(bytes(args.choice.down, kTopK), bytes(choice.down, kTopK));
    EXPECT_EQUAL_FLOATS(download(args.residual.h, n), h, "h");
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_EQ(download(args.residual.out[i].rows, args.residual.out[i].stride),
                download(single.residual.out[i].rows, args.residual.out[i].stride));
  }
}

// Experts of other legs have no pair here, and their places in the sum are passed over.
TEST_F(CardTrunkOps, ChooseExperts_OfWhichSomeAreElsewhere_LeavesTheirPairsOut) {
  constexpr std::uint32_t kExperts = 128, kTopK = 8;
  for (const std::uint32_t n_rows : {1u, 3u, 8u, 9u}) {
    const std::uint32_t n_pairs = n_rows * kTopK, n_groups = std::min(n_pairs, kExperts);
    std::vector<CardSlab> slabs(kExperts);
    const auto is_here = [](std::size_t expert) { return expert % 3 != 0; };
    for (std::uintptr_t e = 0; e < kExperts; ++e)
      if (is_here(e))
        slabs[e] = {reinterpret_cast<std::byte*>(1 + e), reinterpret_cast<std::byte*>(1),
                    reinterpret_cast<std::byte*>(1)};
    const ChooseArgs args = choice_with_pairs(upload(random(n_rows * kExperts)), n_rows, kTopK, slabs);
    ASSERT_OK(choose_experts(stream(), args));
    const auto ids = download(args.ids, n_pairs);
    const auto slots = download(args.slots, n_pairs);
    std::uint32_t here = 0, grouped = 0;
    for (std::uint32_t i = 0; i < n_pairs; ++i) {
      EXPECT_EQ(slots[i] >= 0, is_here(ids[i]));
      if (slots[i] >= 0) ++here;
    }
    const auto gate_up = download(args.gate_up, 2 * n_groups), down = download(args.down, n_groups);
    for (std::uint32_t g = 0; g < n_groups; ++g) {
      grouped += down[g].n;
      EXPECT_EQ(gate_up[g].n, down[g].n);
      EXPECT_EQ(gate_up[n_groups + g].n, down[g].n);
    }
    EXPECT_EQ(grouped, here);
    EXPECT_LT(here, n_pairs);
    const auto x_rows = download(args.x_rows, 2 * n_pairs);
    EXPECT_EQ(static_cast<std::uint32_t>(std::ranges::count(x_rows, kPairElsewhere)), 2 * (n_pairs - here));
    for (std::uint32_t i = 0; i < n_pairs; ++i)
      EXPECT_TRUE(slots[i] < 0 || x_rows[static_cast<std::size_t>(slots[i])] == i / kTopK) << "pair " << i;
  }
}

// What a step does between two layers: rows go to pinned memory behind a flag, and the residual waits for the sums.
TEST_F(CardTrunkOps, HandedOverRows_AreThereWithTheFlag_AndTheResidualWaitsForTheSums) {
  constexpr std::uint32_t kRows = 2, kTopK = 8, n = 2048;
  auto pinned = card().make_pinned(1 << 20);
  ASSERT_OK(pinned);
  std::byte* const host = pinned->data();
  std::memset(host, 0, pinned->size());
  auto* const rows_flag = reinterpret_cast<std::uint32_t*>(host);
  auto* const sums_flag = reinterpret_cast<std::uint32_t*>(host + 64);
  const auto h = random(kRows * n), weights = random(kRows * kTopK), x = random(kRows * n);
  std::vector<std::uint16_t> ids(kRows * kTopK);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::uint16_t>(3 * i);
  const auto* step = upload(std::vector<std::uint32_t>{7});
  HandOverArgs over;
  over.rows = upload(h);
  over.ids = upload(ids);
  over.weights = upload(weights);
  over.n_values = kRows * n;
  over.n_choices = kRows * kTopK;
  over.host_rows = reinterpret_cast<float*>(host + 4096);
  over.host_ids = reinterpret_cast<std::uint16_t*>(host + 256);
  over.host_weights = reinterpret_cast<float*>(host + 1024);
  over.flag = {rows_flag, step};
  auto* const sums = reinterpret_cast<std::int64_t*>(host + 65536);
  ResidualArgs args;
  args.x = upload(x);
  args.n_rows = kRows;
  args.n = n;
  args.sums = sums;
  args.sums_flag = {sums_flag, step};
  args.failures = no_failures(kRows);
  ASSERT_OK(stream().synchronize());
  ASSERT_OK(hand_over(stream(), over));
  ASSERT_OK(residual(stream(), args));
  const std::atomic_ref flag(*rows_flag);
  while (flag.load(std::memory_order_acquire) != 7) {
    const auto done = stream().is_done();
    ASSERT_OK(done);
    ASSERT_FALSE(*done) << "the residual did not wait";
  }
  EXPECT_EQ(std::memcmp(over.host_rows, h.data(), h.size() * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(over.host_ids, ids.data(), ids.size() * sizeof ids[0]), 0);
  EXPECT_EQ(std::memcmp(over.host_weights, weights.data(), weights.size() * sizeof(float)), 0);
  std::vector<float> expected(x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    sums[i] = (static_cast<std::int64_t>(i) - 2000) << 20;
    expected[i] = x[i] + static_cast<float>(std::ldexp(static_cast<double>(sums[i]), -24));
  }
  const auto done = stream().is_done();
  ASSERT_OK(done);
  EXPECT_FALSE(*done) << "the sums are not there";
  std::atomic_ref(*sums_flag).store(7, std::memory_order_release);
  EXPECT_EQUAL_FLOATS(download(args.x, kRows * n), expected, "x");
  EXPECT_THAT(download(args.failures, kRows), Each(kNoFailure));
}

TEST_F(CardTrunkOps, ExpertRows_EqualsSiluAndQuantise) {
  constexpr std::uint32_t kPairs = 5;
  for (const std::uint32_t n : {256u, 768u, 2048u}) {
    for (const ActivationClass activation : kClasses) {
      auto gate = random(kPairs * n);
      const auto up = random(kPairs * n);
      float* expected = upload(gate);
      ASSERT_OK(silu_mul(stream(), expected, upload(up), kPairs * n, expected));
      ExpertRowsArgs args;
      args.gate = upload(gate);
      args.up = upload(up);
      args.n_pairs = kPairs;
      args.n = n;
      args.out = {activation, zeros(kPairs * stride(activation, n)), stride(activation, n)};
      args.x_rows = upload(std::vector<std::uint32_t>{2, 0, 1, 2, 0});
      args.code = 6;
      args.failures = no_failures(3);
      ASSERT_OK(expert_rows(stream(), args));
      EXPECT_EQ(download(args.out.rows, kPairs * args.out.stride), card_rows(activation, expected, kPairs, n));
      EXPECT_THAT(download(args.failures, 3), Each(kNoFailure));
      gate[2 * n + 255] = kNaN;  // pair 2, of row 1
      args.gate = upload(gate);
      ASSERT_OK(expert_rows(stream(), args));
      EXPECT_THAT(download(args.failures, 3), ElementsAre(kNoFailure, 6, kNoFailure));
    }
  }
}

// Nobody wrote their values: NaN lies there, and no row fails. Few pairs and many, which different kernels take.
TEST_F(CardTrunkOps, ExpertRows_OfPairsElsewhere_FailNoRow) {
  constexpr std::uint32_t n = 256;
  for (const std::uint32_t n_pairs : {4u, 300u}) {
    auto values = random(n_pairs * n);
    std::vector<std::uint32_t> rows(n_pairs, 1);
    for (std::uint32_t pair = 0; pair < n_pairs; pair += 2) {
      rows[pair] = kPairElsewhere;
      std::fill_n(values.begin() + pair * n, n, kNaN);
    }
    ExpertRowsArgs args;
    args.gate = args.up = upload(values);
    args.n_pairs = n_pairs;
    args.n = n;
    const std::size_t apart = stride(ActivationClass::kA8x256, n);
    args.out = {ActivationClass::kA8x256, zeros(n_pairs * apart), apart};
    args.x_rows = upload(rows);
    args.failures = no_failures(2);
    ASSERT_OK(expert_rows(stream(), args));
    EXPECT_THAT(download(args.failures, 2), Each(kNoFailure)) << n_pairs << " pairs";
  }
}

TEST_F(CardTrunkOps, AttentionToRows_EqualsAttentionAndQuantise) {
  constexpr std::uint32_t kRows = 3, kHeads = 8, kDim = 64, kKeys = 600, kBlocks = (kKeys + 31) / 32;
  constexpr std::uint32_t kWidth = kHeads * kDim;
  std::vector<std::uint32_t> table(kBlocks);
  for (std::uint32_t i = 0; i < kBlocks; ++i) table[i] = kBlocks - 1 - i;
  AttentionArgs args;
  args.cache = {reinterpret_cast<std::byte*>(upload(random(kBlocks * 2 * 32 * kDim))),
                reinterpret_cast<std::byte*>(upload(random(kBlocks * 2 * 32 * kDim))),
                KvType::kF32,
                2,
                kDim,
                kDim,
                upload(table),
                kBlocks};
  args.q = upload(random(kRows * kWidth));
  args.q_stride = kWidth;
  args.out = room<float>(kRows * kWidth);
  args.out_stride = kWidth;
  args.streams = upload(std::vector<std::uint32_t>(kRows));
  args.n_keys = upload(std::vector<std::uint32_t>{600, 1, 257});
  args.n_rows = kRows;
  args.n_heads = kHeads;
  args.max_keys = kKeys;
  args.scale = 0.125f;
  args.scratch_bytes = attention_scratch_bytes(kRows, kHeads, kDim, kKeys);
  args.scratch = reinterpret_cast<float*>(room<std::byte>(args.scratch_bytes));
  ASSERT_OK(attend(stream(), args));
  for (const ActivationClass activation : kClasses) {
    AttentionRows rows;
    rows.out = {activation, zeros(kRows * stride(activation, kWidth)), stride(activation, kWidth)};
    rows.failures = no_failures(kRows);
    ASSERT_OK(attend(stream(), args, rows));
    EXPECT_EQ(download(rows.out.rows, kRows * rows.out.stride), card_rows(activation, args.out, kRows, kWidth));
    EXPECT_THAT(download(rows.failures, kRows), Each(kNoFailure));
  }
}

}  // namespace
}  // namespace terrace::kernels::cuda
