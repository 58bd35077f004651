// Which nodes pay, and what is left when they are lost; predictions as JSON and back.
#include "coordinator/planner/outlook.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "coordinator/planner/prediction_file.h"

namespace terrace::planner {
namespace outlook_test {

using ::testing::HasSubstr;

// A host and two nodes, each with a third of six experts; all alike, but for what a test changes.
class OutlookTest : public ::testing::Test {
 protected:
  OutlookTest() {
    model_.d_model = 64;
    model_.n_experts = 6;
    model_.top_k = 6;
    model_.kinds = {LayerKind{1000, ActivationClass::kF32, ActivationClass::kF32}};
    model_.kind_of_layer = {0};
    model_.owned_of_layer = {{2, 2, 2}};
    for (const char* name : {"host", "a:1", "b:1"}) {
      LegMeasurement leg;
      leg.name = name;
      leg.is_host = leg.name == "host";
      leg.machine = measured_.legs.size() + 1;
      ExpertCost cost;
      cost.each = {1e-3, 1e-3, 1e-3, 1e-3};
      leg.alone = leg.together = {cost};
      measured_.legs.push_back(leg);
    }
    measured_.disk.direct_bytes_per_second = 5e5;  // a slab in 2 ms
  }
  OutlookInput input() const { return {model_, measured_, room_}; }

  ModelNumbers model_;
  Measurements measured_;
  std::vector<std::uint64_t> room_ = {1 << 20, 1 << 20, 1 << 20};
};

TEST_F(OutlookTest, NodesThatPay_AreFasterWith) {
  const Outlook outlook = make_outlook(input());
  EXPECT_NEAR(outlook.decode.tokens_per_second, 500, 1e-6);  // 2 of 1 ms each, at once
  ASSERT_EQ(outlook.without.size(), 2u);
  for (const Without& without : outlook.without) {
    EXPECT_TRUE(without.decode_pays && without.prompt_pays);
    EXPECT_EQ(without.experts_on, "the others");  // 3 and 3, better than 4 and 2
    EXPECT_NEAR(without.decode->tokens_per_second, 1 / 3e-3, 1e-6);
  }
}

TEST_F(OutlookTest, LostNodeWithHeirs_IsAsFastAsTheNewShareOnceItsBytesHaveMoved) {
  measured_.legs[2].weights_per_second = 500;
  OutlookInput asked = input();
  // b takes one of a's two, the other stays with the host, which has room for it.
  asked.inherited = {{{{2, 1, 1000}}, {{2, 1, 3}}}, {{}, {{2, 2, 2}}}};
  const Outlook outlook = make_outlook(asked);
  const Loss& a = outlook.losses[0];
  ASSERT_EQ(a.heirs.size(), 1u);
  EXPECT_NEAR(a.move_seconds, 2, 1e-9);
  EXPECT_NEAR(a.move_beside_seconds, 6, 1e-9) << "a quarter of the link would take 8 s; no more than 4 s are lost so";
  EXPECT_NEAR(a.moved.tokens_per_second, 1 / 3e-3, 1e-6);    // 3 and 3
  EXPECT_NEAR(a.settled.tokens_per_second, 1 / 4e-3, 1e-6);  // 4 and 2
  EXPECT_TRUE(outlook.losses[1].heirs.empty());
  const auto json = prediction_json(asked, outlook, "2026-03-14T15:09:26Z");
  EXPECT_EQ(json["lost"][0]["heirs"][0]["node"], "b:1");
  EXPECT_EQ(json["lost"][0]["bytes_to_move"], 1000);
  EXPECT_EQ(json["lost"][0]["seconds_to_move"], 2);
  EXPECT_NEAR(json["lost"][0]["seconds_to_move_beside_streams"].get<double>(), 6, 1e-9);
  EXPECT_NEAR(json["lost"][0]["decode_moved"]["tokens_per_second"].get<double>(), 1 / 3e-3, 1e-6);
  EXPECT_TRUE(json["lost"][1]["decode_moved"].is_null());
  EXPECT_FALSE(json["lost"][0]["experts_stay"].get<bool>()) << "3 and 3 is faster";
}

TEST_F(OutlookTest, MovingBesideStreams_TakesFourTimesAsLongUpToFourSecondsMore) {
  const auto seconds = [&](std::uint64_t bytes) {
    measured_.legs[2].weights_per_second = 1000;
    OutlookInput asked = input();
    asked.inherited = {{{{2, 1, bytes}}, {{2, 1, 3}}}, {{}, {{2, 2, 2}}}};
    return make_outlook(asked).losses[0].move_beside_seconds;
  };
  EXPECT_NEAR(seconds(1000), 4, 1e-9);
  EXPECT_NEAR(seconds(2000), 6, 1e-9);
  EXPECT_NEAR(seconds(100'000), 125, 1e-9) << "never more than four fifths of the link";
}

TEST_F(OutlookTest, HeirThatIsSlowerThanTheHost_TakesNothingOverUnlessTheHostHasNoRoom) {
  for (ExpertCost* cost : {&measured_.legs[2].alone[0], &measured_.legs[2].together[0]}) cost->each.fill(3e-3);
  OutlookInput asked = input();
  asked.inherited = {{{{2, 2, 2000}}, {{2, 0, 4}}}, {{}, {{2, 2, 2}}}};
  EXPECT_TRUE(stays_here(make_outlook(asked).losses[0]));
  EXPECT_FALSE(stays_here(make_outlook(asked).losses[1])) << "nobody could";
  asked.room[0] = 1999;
  EXPECT_FALSE(stays_here(make_outlook(asked).losses[0]));
}

TEST_F(OutlookTest, ASlowLink_DoesNotPay) {
  measured_.legs[1].round_trip = 50e-3;
  const Outlook outlook = make_outlook(input());
  EXPECT_FALSE(outlook.without[0].decode_pays);
  EXPECT_TRUE(outlook.without[0].prompt_pays) << "a prompt's round trip was not made worse";
  EXPECT_NEAR(outlook.without[0].decode->tokens_per_second, 1 / 3e-3, 1e-6);
}

TEST_F(OutlookTest, WithoutRoomElsewhere_ANodeIsNotMeasuredAgainstAnything) {
  measured_.legs[1].round_trip = 50e-3;
  room_ = {100, 100, 100};
  const Without without = make_outlook(input()).without[0];
  EXPECT_FALSE(without.decode.has_value());
  EXPECT_TRUE(without.decode_pays);
}

TEST_F(OutlookTest, RoomOnTheHostAlone_TakesTheExpertsThere) {
  room_ = {2000, 0, 0};
  const Without without = make_outlook(input()).without[0];
  ASSERT_TRUE(without.decode.has_value());
  EXPECT_EQ(without.experts_on, "the host");
  EXPECT_NEAR(without.decode->tokens_per_second, 250, 1e-6);
}

TEST_F(OutlookTest, ANodeLost_FromTheFileThenFromMemory) {
  const Loss loss = make_outlook(input()).losses[0];
  EXPECT_NEAR(loss.decode.tokens_per_second, 1 / 6e-3, 1e-6);  // own 2 ms, then two reads of 2 ms
  EXPECT_TRUE(loss.has_room);
  EXPECT_NEAR(loss.settled.tokens_per_second, 1 / 4e-3, 1e-6);
  room_[0] = 1999;
  EXPECT_FALSE(make_outlook(input()).losses[0].has_room);
}

TEST_F(OutlookTest, WorstOfTwoLosses_IsBoth) {
  const WorstLoss worst = worst_loss(input(), 2);
  EXPECT_EQ(worst.loss.legs, (std::vector<std::size_t>{1, 2}));
  EXPECT_NEAR(worst.loss.decode.tokens_per_second, 1 / 10e-3, 1e-6);
  EXPECT_TRUE(worst.tried_all());
  EXPECT_EQ(tried_text(worst), "");
}

// Of 32 nodes there are 601,080,390 sets of 16: some are tried, the worst of them is told, and that there are others.
TEST_F(OutlookTest, MoreSetsThanCanBeTried_TheNodesWithMostAndWhatIsSlower) {
  model_.n_experts = 6 * 33;
  model_.owned_of_layer = {std::vector<std::uint32_t>(33, 6)};
  measured_.legs.resize(1);
  for (std::size_t i = 1; i < 33; ++i) {
    LegMeasurement leg = measured_.legs.front();
    leg.name = fmt::format("box{}:9000", i);
    leg.is_host = false;
    leg.machine = i + 1;
    measured_.legs.push_back(leg);
  }
  room_.assign(33, 0);
  for (const std::size_t leg : {3, 20, 32}) model_.owned_of_layer[0][leg] = 9;
  model_.n_experts += 9;
  const WorstLoss worst = worst_loss(input(), 16);
  EXPECT_DOUBLE_EQ(worst.n_sets, 601'080'390);
  EXPECT_LE(worst.n_tried, kMostLossSets);
  EXPECT_FALSE(worst.tried_all());
  EXPECT_EQ(worst.loss.legs.size(), 16u);
  for (const std::size_t leg : {3, 20, 32}) EXPECT_THAT(worst.loss.legs, ::testing::Contains(leg));
  EXPECT_THAT(tried_text(worst), HasSubstr("tried of the 6.0108e+08 sets of 16 nodes"));
  const Status refused = check_survives(input(), make_outlook(input()), worst, 1e9);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().text(), HasSubstr("another may be slower"));
}

// What is tried where not all can be: here the few sets that all are.
TEST_F(OutlookTest, SearchThatMayNotTryAll_FindsTheSlowestOfThese) {
  model_.owned_of_layer = {{1, 4, 1}};
  EXPECT_EQ(worst_loss(input(), 1, 1).loss.legs, (std::vector<std::size_t>{1}));
  model_.owned_of_layer = {{2, 2, 2}};
  measured_.legs[1].round_trip = 50e-3;  // the node with as many experts whose loss makes decoding faster
  EXPECT_EQ(worst_loss(input(), 1, 1).n_tried, 1u);
  EXPECT_EQ(worst_loss(input(), 1).loss.legs, (std::vector<std::size_t>{2}));
}

// It begins with the first two, all having the same bytes; that one of them stays is slower.
TEST_F(OutlookTest, SearchThatMayNotTryAll_ExchangesANodeForOneWhoseLossIsSlower) {
  model_.n_experts = 8;
  model_.owned_of_layer = {{2, 2, 2, 2}};
  LegMeasurement third = measured_.legs[2];
  third.name = "c:1";
  third.machine = 4;
  measured_.legs.push_back(third);
  room_.push_back(1 << 20);
  measured_.legs[1].round_trip = 50e-3;
  const WorstLoss worst = worst_loss(input(), 2, 2);
  EXPECT_EQ(worst.n_tried, 2u);
  EXPECT_EQ(worst.loss.legs, (std::vector<std::size_t>{2, 3}));
}

TEST_F(OutlookTest, WorstOfOne_IsTheNodeWithMost) {
  model_.owned_of_layer = {{1, 4, 1}};
  EXPECT_EQ(worst_loss(input(), 1).loss.legs, (std::vector<std::size_t>{1}));
}

TEST_F(OutlookTest, Survive_RefusesWithTheNumbers) {
  const Outlook outlook = make_outlook(input());
  EXPECT_TRUE(check_survives(input(), outlook, worst_loss(input(), 1), 166).ok());
  const Status refused = check_survives(input(), outlook, worst_loss(input(), 1), 167);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kRefused);
  for (const char* part : {"166.67", "167.00", "500.00", "250.00 once", "--min-decode"})
    EXPECT_THAT(refused.error().text(), HasSubstr(part));
  EXPECT_THAT(check_survives(input(), outlook, worst_loss(input(), 2), 1e6).error().text(), HasSubstr("a:1 and b:1"));
}

class PredictionFile : public OutlookTest {
 protected:
  nlohmann::ordered_json prediction() const {
    return prediction_json(input(), make_outlook(input()), "2026-03-14T15:09:26Z");
  }
  Result<std::optional<StatedPrediction>> read(const nlohmann::ordered_json& plan) const {
    return read_prediction(nlohmann::json::parse(plan.dump()), "prediction-plan.json");
  }
};

TEST_F(PredictionFile, IsReadBackAsItWasWritten) {
  const auto stated = read({{"prediction", prediction()}});
  ASSERT_TRUE(stated.ok() && stated->has_value());
  EXPECT_EQ((*stated)->date, "2026-03-14T15:09:26Z");
  EXPECT_DOUBLE_EQ((*stated)->decode, make_outlook(input()).decode.tokens_per_second);
  EXPECT_DOUBLE_EQ((*stated)->prompt, make_outlook(input()).prompt.tokens_per_second);
  EXPECT_EQ((*stated)->prompt_rows, 512u);
  EXPECT_EQ((*stated)->decode_halves_pay, make_outlook(input()).decode.halves_pay);
  EXPECT_EQ((*stated)->prompt_parts, 2u) << "a run with nodes has two by itself";
  EXPECT_DOUBLE_EQ((*stated)->prompt_trunk, measured_.prompt.trunk);
  EXPECT_TRUE((*stated)->links.empty()) << "no rate was measured";
}

TEST_F(PredictionFile, HasTheLinksThatWereMeasured) {
  measured_.legs[2].bytes_per_second = 3e8;
  const auto stated = read({{"prediction", prediction()}});
  ASSERT_TRUE(stated.ok() && stated->has_value());
  ASSERT_EQ((*stated)->links.size(), 1u);
  EXPECT_EQ((*stated)->links[0].node, measured_.legs[2].name);
  EXPECT_DOUBLE_EQ((*stated)->links[0].bytes_per_second, 3e8);
}

TEST_F(PredictionFile, PartsOfAPrompt_TwoToFour) {
  auto json = prediction();
  const auto parts_of = [&](const nlohmann::ordered_json& parts) {
    json["prompt"]["parts"] = parts;
    const auto stated = read({{"prediction", json}});
    return stated.ok() ? std::optional((*stated)->prompt_parts) : std::nullopt;
  };
  EXPECT_EQ(parts_of(1), 2u);
  EXPECT_EQ(parts_of(4), 4u);
  for (const nlohmann::ordered_json& bad : {nlohmann::ordered_json(5), nlohmann::ordered_json(-1),
                                            nlohmann::ordered_json(2.5), nlohmann::ordered_json("2")})
    EXPECT_EQ(parts_of(bad), std::nullopt) << bad;
  json["prompt"].erase("parts");  // of an older plan
  const auto older = read({{"prediction", json}});
  ASSERT_TRUE(older.ok() && older->has_value());
  EXPECT_EQ((*older)->prompt_parts, 2u);
}

TEST_F(PredictionFile, WhoseExpertsStay_IsReadBack) {
  auto json = prediction();
  json["lost"][1]["experts_stay"] = true;
  auto stated = read({{"prediction", json}});
  ASSERT_TRUE(stated.ok() && stated->has_value());
  EXPECT_EQ((*stated)->staying, std::vector<std::string>{measured_.legs[2].name});
  for (auto& lost : json["lost"]) lost.erase("experts_stay");  // of an older plan
  stated = read({{"prediction", json}});
  ASSERT_TRUE(stated.ok() && stated->has_value());
  EXPECT_TRUE((*stated)->staying.empty());
  json["lost"][0]["experts_stay"] = 1;
  EXPECT_FALSE(read({{"prediction", json}}).ok());
  json["lost"] = 7;
  EXPECT_FALSE(read({{"prediction", json}}).ok());
}

TEST_F(PredictionFile, HoldsWhatItWasMadeFrom) {
  const auto json = prediction();
  ASSERT_EQ(json["measured"]["legs"].size(), 3u);
  EXPECT_DOUBLE_EQ((json["measured"]["legs"][1]["kinds"][0]["alone"]["expert_us_at_rows"]["64"].get<double>()), 1000);
  ASSERT_EQ(json["lost"].size(), 2u);
  for (const auto& lost : json["lost"]) {
    EXPECT_EQ(lost["bytes_to_read"], 2000);
    EXPECT_DOUBLE_EQ(lost["seconds_to_read"].get<double>(), 4e-3);
    for (const char* step : {"decode", "decode_settled"}) EXPECT_GT(lost[step]["layers_ms"].get<double>(), 0) << step;
  }
  EXPECT_EQ(json["without"].size(), 2u);
}

TEST_F(PredictionFile, APlanWithoutOne_HasNone) {
  const auto stated = read({{"layers", nlohmann::ordered_json::array()}});
  ASSERT_TRUE(stated.ok());
  EXPECT_FALSE(stated->has_value());
}

TEST_F(PredictionFile, Damaged_IsRefusedByName) {
  for (const char* key : {"date", "prompt_rows", "decode", "prompt"}) {
    for (const auto& value : std::vector<nlohmann::ordered_json>{nullptr, -1, nlohmann::ordered_json::array()}) {
      auto json = prediction();
      json[key] = value;
      const auto stated = read({{"prediction", json}});
      ASSERT_FALSE(stated.ok()) << key << " " << value;
      EXPECT_THAT(stated.error().text(), HasSubstr("prediction-plan.json"));
    }
  }
  EXPECT_FALSE(read({{"prediction", 7}}).ok());
}

}  // namespace outlook_test
}  // namespace terrace::planner
