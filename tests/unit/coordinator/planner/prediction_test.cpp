// Predictions against cases that can be worked out by hand.
#include "coordinator/planner/prediction.h"

#include <gtest/gtest.h>

#include <map>

namespace terrace::planner {
namespace prediction_test {

constexpr double kMs = 1e-3;

ExpertCost flat_cost(double each, double fixed = 0) {
  ExpertCost cost;
  cost.each = {each, each, each, each};
  cost.decode_fixed = fixed;
  return cost;
}

LegMeasurement measured_leg(const char* name, double each, std::uint64_t machine) {
  LegMeasurement leg;
  leg.name = name;
  leg.machine = machine;
  leg.alone = leg.together = {flat_cost(each)};
  return leg;
}

// Two layers of four experts, two a row; the host and a node on machines of their own, an expert takes each 1 ms.
struct Case {
  Case() {
    model.d_model = 64;
    model.n_experts = 4;
    model.top_k = 2;
    model.kinds = {LayerKind{1000, ActivationClass::kF32, ActivationClass::kF32}};
    model.kind_of_layer = {0, 0};
    model.owned_of_layer = {{2, 2}, {2, 2}};
    model.prompt_rows = 512;
    model.range_rows = 256;
    measured.legs = {measured_leg("host", kMs, 1), measured_leg("box1:9000", kMs, 2)};
    measured.legs[0].is_host = true;
    measured.legs[1].round_trip = measured.legs[1].prompt_round_trip = kMs;
    measured.decode.trunk = 1 * kMs;
    measured.prompt.trunk = 10 * kMs;
  }
  ModelNumbers model;
  Measurements measured;
  Places places = {Place::kItself, Place::kItself};
};

TEST(Prediction, ExpertTime_StraightBetweenThePointsAndBeyondTheLast) {
  ExpertCost cost;
  cost.each = {1, 8, 16, 464};
  EXPECT_DOUBLE_EQ(expert_time(cost, 1), 1);
  EXPECT_DOUBLE_EQ(expert_time(cost, 4.5), 4.5);
  EXPECT_DOUBLE_EQ(expert_time(cost, 36), 12);
  EXPECT_DOUBLE_EQ(expert_time(cost, 64), 16);
  EXPECT_DOUBLE_EQ(expert_time(cost, 512), 464);
  EXPECT_DOUBLE_EQ(expert_time(cost, 960), 912);
}

TEST(Prediction, ExpectedRowsAndExperts_OfAUniformDraw) {
  EXPECT_NEAR(expected_rows(4, 2, 2, 60), 50, 1e-9);  // one of six draws misses both
  EXPECT_NEAR(expected_rows(4, 2, 3, 60), 60, 1e-9);
  EXPECT_NEAR(expected_distinct(4, 2, 2, 1), 1, 1e-12);
  EXPECT_NEAR(expected_distinct(4, 2, 2, 2), 1.5, 1e-12);
}

TEST(Prediction, Draws_EveryWayWithItsProbability) {
  std::map<std::vector<std::uint32_t>, double> seen;
  ASSERT_TRUE(for_each_draw(std::vector<std::uint32_t>{2, 2}, 2, [&](std::span<const std::uint32_t> counts, double p) {
    seen[{counts.begin(), counts.end()}] += p;
  }));
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_NEAR((seen[{0, 2}]), 1.0 / 6, 1e-12);
  EXPECT_NEAR((seen[{1, 1}]), 4.0 / 6, 1e-12);
  EXPECT_NEAR((seen[{2, 0}]), 1.0 / 6, 1e-12);
}

TEST(Prediction, Draws_TooManyWays_NoneIsVisited) {
  const std::vector<std::uint32_t> owned(40, 8);
  EXPECT_FALSE(for_each_draw(owned, 8, [](std::span<const std::uint32_t>, double) { FAIL(); }));
}

TEST(Prediction, LegsOfOneMachine_SlowEachOtherWhileTheyCompute) {
  const std::vector<std::size_t> both = {2};
  const auto ends = [&](std::vector<LegTask> tasks) { return finish_times(tasks, both); };
  // Equal parts: twice as long. Unequal: the longer goes on alone, and nothing of the cores is lost.
  EXPECT_EQ(ends({{0, 0, 1, 2, 0, 0}, {0, 0, 1, 2, 0, 0}}), (std::vector<double>{2, 2}));
  EXPECT_EQ(ends({{0, 0, 1, 2, 0, 0}, {0, 0, 3, 2, 0, 0}}), (std::vector<double>{2, 4}));
  // The second begins later.
  EXPECT_EQ(ends({{0, 0, 2, 2, 0, 0}, {0, 1, 1, 2, 0, 0}}), (std::vector<double>{3, 3}));
  // Reading and travelling back take no core.
  EXPECT_EQ(ends({{0, 0, 1, 2, 5, 0}, {0, 0, 1, 2, 0, 3}}), (std::vector<double>{5, 5}));
}

TEST(Prediction, LegsOfTwoMachines_DoNotSlowEachOther) {
  const std::vector<LegTask> tasks = {{0, 0, 1, 2, 0, 0}, {1, 0, 3, 2, 0, 0}};
  EXPECT_EQ(finish_times(tasks, std::vector<std::size_t>{1, 1}), (std::vector<double>{1, 3}));
}

TEST(Prediction, HostAlone_TrunkAndExpertsAddUp) {
  Case c;
  c.measured.legs.resize(1);
  c.measured.legs[0].alone = c.measured.legs[0].together = {flat_cost(1 * kMs, 0.5 * kMs)};
  c.measured.decode = {4 * kMs, 0.25 * kMs, 1.5};  // whole_over_terms is of plans with nodes
  c.model.owned_of_layer = {{4}, {4}};
  const StepPrediction step = predict_decode(c.model, c.measured, {Place::kItself});
  EXPECT_NEAR(step.step, (4 + 2 * (0.25 + 0.5 + 2)) * kMs, 1e-12);
  EXPECT_NEAR(step.tokens_per_second, 1 / 9.5e-3, 1e-6);
  EXPECT_EQ(step.limited_by, "host (its computing)");
  EXPECT_NEAR(step.legs[0].experts, 2, 1e-12);
}

TEST(Prediction, Decode_IsTheMeanOfTheSlowestLegOverAllDraws) {
  const Case c;
  // Node takes 0, 1, 2 of them with 1/6, 4/6, 1/6: host 2, node 1 + 1, node 1 + 2 ms.
  const StepPrediction step = predict_decode(c.model, c.measured, c.places);
  EXPECT_NEAR(step.layers, 2 * (2 + 4 * 2 + 3) / 6.0 * kMs, 1e-12);
  EXPECT_NEAR(step.step, step.layers + 1 * kMs, 1e-12);
  EXPECT_EQ(step.limited_by, "box1:9000 (its computing)");
  EXPECT_NEAR(step.legs[1].experts, 1, 1e-12);
  EXPECT_NEAR(step.legs[1].round_trip, 5.0 / 6 * kMs, 1e-12) << "only draws that it has a part of";
  Case slower;
  slower.measured.legs[1].round_trip = 3 * kMs;
  EXPECT_EQ(predict_decode(slower.model, slower.measured, slower.places).limited_by, "box1:9000 (its link)");
  slower.measured.decode.trunk = 1;
  EXPECT_EQ(predict_decode(slower.model, slower.measured, slower.places).limited_by, "trunk");
}

TEST(Prediction, Decode_BytesOverTheRateOfTheLink) {
  Case c;
  c.model.owned_of_layer = {{0, 4}, {0, 4}};
  c.measured.legs[1].bytes_per_second = 1e5;
  const StepPrediction step = predict_decode(c.model, c.measured, c.places);
  // docs/wire.md 9: one row of 64 f32, two pairs; one packed row of 193 bytes.
  const double out = 64 + (16 + 32) + (16 + 256) + (16 + 16) + (16 + 16), back = 64 + (16 + 16) + (16 + 208);
  EXPECT_DOUBLE_EQ(step.legs[1].bytes_out, out);
  EXPECT_DOUBLE_EQ(step.legs[1].bytes_back, back);
  EXPECT_NEAR(step.layers, 2 * (1 * kMs + 2 * kMs + (out + back) / 1e5), 1e-12);
}

TEST(Prediction, WhatALayerTakesWhole_IsATermOfItsOwn) {
  Case c;
  const double terms = predict_decode(c.model, c.measured, c.places).layers;
  c.measured.decode.whole_over_terms = 1.25;
  const StepPrediction step = predict_decode(c.model, c.measured, c.places);
  EXPECT_NEAR(step.whole, terms / 4, 1e-12);
  EXPECT_NEAR(step.step, 1 * kMs + terms * 1.25, 1e-12);
}

// What a layer took more when it was measured was not the disk's.
TEST(Prediction, WhatIsReadForALostNode_HasNothingBeyondTheTerms) {
  Case c;
  c.model.owned_of_layer = {{2, 1, 1}, {2, 1, 1}};
  c.measured.legs.push_back(measured_leg("box2:9000", kMs, 3));
  c.measured.disk.direct_bytes_per_second = 5e5;  // a slab in 2 ms
  c.measured.decode.whole_over_terms = 1.25;
  const StepPrediction read = predict_decode(c.model, c.measured, {Place::kItself, Place::kHostFile, Place::kItself});
  const StepPrediction settled =
      predict_decode(c.model, c.measured, {Place::kItself, Place::kHostMemory, Place::kItself});
  EXPECT_GT(read.layers, settled.layers);
  EXPECT_GT(settled.whole, 0);
  EXPECT_NEAR(read.whole, settled.whole, 1e-12);
}

TEST(Prediction, LostNode_ReadsOrComputes_WhicheverIsLonger) {
  Case c;
  const Places lost = {Place::kItself, Place::kHostFile};
  c.measured.disk.direct_bytes_per_second = 5e5;  // a slab in 2 ms
  // 2 lost: 4 ms of reading; one of each: 1 + 2; none: 2.
  EXPECT_NEAR(predict_decode(c.model, c.measured, lost).layers, 2 * (4 + 4 * 3 + 2) / 6.0 * kMs, 1e-12);
  c.measured.disk.direct_bytes_per_second = 1e9;
  EXPECT_NEAR(predict_decode(c.model, c.measured, lost).layers, 2 * 2 * kMs, 1e-12);
  const Places settled = {Place::kItself, Place::kHostMemory};
  EXPECT_NEAR(predict_decode(c.model, c.measured, settled).layers, 2 * 2 * kMs, 1e-12);
}

TEST(Prediction, LostNode_DiskLimits_IsSaid) {
  Case c;
  c.measured.disk.direct_bytes_per_second = 1e4;
  EXPECT_EQ(predict_decode(c.model, c.measured, {Place::kItself, Place::kHostFile}).limited_by,
            "host (reading its file)");
}

TEST(Prediction, Prompt_EveryExpertOnceForItsRows) {
  Case c;
  c.measured.legs.resize(1);
  c.model.owned_of_layer = {{4}, {4}};
  ExpertCost cost;
  cost.each = {1 * kMs, 1 * kMs, 1 * kMs, 449 * kMs};
  c.measured.legs[0].alone = c.measured.legs[0].together = {cost};
  // 1,024 pairs of 4 experts: 256 rows each, 1 + 448 * (256 - 64) / 448 ms.
  const StepPrediction step = predict_prompt(c.model, c.measured, {Place::kItself});
  EXPECT_NEAR(step.layers, 2 * 4 * 193 * kMs, 1e-9);
  EXPECT_NEAR(step.tokens_per_second, 512 / (0.010 + 8 * 0.193), 1e-6);
}

TEST(Prediction, Prompt_ANodeComputesRangeByRange) {
  Case c;
  c.model.owned_of_layer = {{0, 4}, {0, 4}};
  // Two ranges, each of 4 experts of 1 ms however many rows they have.
  EXPECT_NEAR(predict_prompt(c.model, c.measured, c.places).layers, 2 * (1 + 8) * kMs, 1e-9);
  // Replies that take longer than computing queue behind each other.
  c.measured.legs[1].bytes_per_second = 1e6;
  const StepPrediction step = predict_prompt(c.model, c.measured, c.places);
  const double out = step.legs[1].bytes_out / 1e6, back = step.legs[1].bytes_back / 1e6;
  EXPECT_GT(back / 2, 4 * kMs);
  EXPECT_NEAR(step.layers, 2 * (1 * kMs + out + 4 * kMs + back), 1e-9);
}

// A half has 256 rows: its trunk 2.5 ms a layer, the host's experts 2 ms, the node's trip 1 ms and experts 2 ms. At the
// ends of a step a node waits for its first half, and the last half for its sums.
TEST(Prediction, PromptInHalves_IsAsLongAsWhatIsBusiest) {
  Case c;
  const StepPrediction whole = predict_prompt(c.model, c.measured, c.places);
  EXPECT_NEAR(whole.step, 20 * kMs, 1e-5);  // the trunk, and in each layer the node's trip and two ranges of 2 ms
  EXPECT_EQ(whole.hidden, 0);
  c.model.prompt_parts = 2;
  const StepPrediction here = predict_prompt(c.model, c.measured, c.places);
  EXPECT_NEAR(here.step, 18 * kMs, 1e-5) << "trunk and host: 9 ms a layer for both halves";
  EXPECT_NEAR(here.step, here.trunk + here.dispatch + here.layers + here.whole - here.hidden, 1e-9);
  EXPECT_EQ(here.limited_by, "trunk");
  c.measured.legs[1].alone = c.measured.legs[1].together = {flat_cost(3 * kMs)};
  const StepPrediction there = predict_prompt(c.model, c.measured, c.places);
  EXPECT_NEAR(there.step, 27.5 * kMs, 1e-5) << "the node: 12 ms a layer for both halves, behind a trunk and a trip";
  EXPECT_EQ(there.limited_by, "box1:9000 (its computing)");
  c.measured.legs[1].prompt_round_trip = 20 * kMs;
  EXPECT_NEAR(predict_prompt(c.model, c.measured, c.places).step, 63 * kMs, 1e-5) << "one half, there and back";
  EXPECT_EQ(predict_prompt(c.model, c.measured, c.places).parts, 2u);
  // Alone nobody computes elsewhere.
  c.places[1] = Place::kHostMemory;
  EXPECT_EQ(predict_prompt(c.model, c.measured, c.places).hidden, 0);
}

// Parts of 128 rows: trunk 5 ms a layer, the node's trip 20 ms and experts 2 ms however few rows: 27 ms there and back,
// in which the trunk takes 20 ms for all four.
TEST(Prediction, PromptInParts_AsManyAsTakeTheLeastTime) {
  Case c;
  c.model.owned_of_layer = {{0, 4}, {0, 4}};
  c.measured.legs[1].alone = c.measured.legs[1].together = {flat_cost(0.5 * kMs)};
  c.measured.prompt.trunk = 40 * kMs;
  c.model.prompt_parts = 2;
  const StepPrediction two = predict_prompt(c.model, c.measured, c.places);
  EXPECT_EQ(two.parts, 2u);
  c.model.prompt_parts = 4;
  EXPECT_EQ(predict_prompt(c.model, c.measured, c.places).parts, 2u) << "the trunk is never without work";
  c.measured.legs[1].prompt_round_trip = 20 * kMs;
  const StepPrediction four = predict_prompt(c.model, c.measured, c.places);
  EXPECT_EQ(four.parts, 4u);
  EXPECT_NEAR(four.step, (2 * 27 + 3 * 5) * kMs, 1e-5);
  EXPECT_NEAR(four.step, four.trunk + four.dispatch + four.layers + four.whole - four.hidden, 1e-9);
}

TEST(Prediction, DecodeInHalves_PaysWhereALayersWaitIsLongerThanASecondTrunkAndTheHostsExperts) {
  Case c;
  EXPECT_FALSE(predict_decode(c.model, c.measured, c.places).halves_pay);
  c.measured.legs[1].round_trip = 6 * kMs;
  EXPECT_TRUE(predict_decode(c.model, c.measured, c.places).halves_pay);
  c.measured.decode.trunk = 20 * kMs;
  EXPECT_FALSE(predict_decode(c.model, c.measured, c.places).halves_pay);
  c.measured.decode.trunk = 0;
  c.places[1] = Place::kHostMemory;
  EXPECT_FALSE(predict_decode(c.model, c.measured, c.places).halves_pay) << "no node";
}

TEST(Prediction, FanOut_ForEachFurtherNodeOfALayer) {
  Case c;
  c.measured.legs.push_back(measured_leg("box2:9000", kMs, 3));
  c.measured.fan_out = 1 * kMs;
  c.model.owned_of_layer = {{0, 4, 0}, {0, 2, 2}};
  c.model.top_k = 4;
  c.places.push_back(Place::kItself);
  // All four of the first layer at one node; two and two of the second, box2's without a round trip.
  EXPECT_NEAR(predict_decode(c.model, c.measured, c.places).layers, ((1 + 4) + (1 + 2) + 1) * kMs, 1e-12);
}

}  // namespace prediction_test
}  // namespace terrace::planner
