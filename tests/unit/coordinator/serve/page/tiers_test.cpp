#include "coordinator/serve/page/tiers.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace terrace::serve::page {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

SchedulerStatus status_with(const std::string& node) {
  SchedulerStatus status;
  status.slots.resize(3);
  status.slots[0].state = SlotState::kDecoding;
  status.slots[2].state = SlotState::kPrompt;
  status.queued = 5;
  status.queue_limit = 64;
  status.counters.tokens = 900;
  status.counters.prompt_tokens = 4000;
  status.counters.prompt_tokens_cached = 1000;
  status.counters.steps = 2;
  status.step_seconds.add(0.25);
  status.step_seconds.add(0.5);
  status.cache_bytes = 1 << 20;
  LegStatus host{"host", legs::LegKind::kHost, legs::LegState::kOk, 4, {}, {}};
  LegStatus box{node, legs::LegKind::kNode, legs::LegState::kLost, 2, {}, {}};
  box.counters = {.batches = 7,
                  .rows = 8,
                  .pairs = 9,
                  .bytes_sent = 10,
                  .bytes_received = 11,
                  .weight_bytes_sent = 12,
                  .wait_us = 13,
                  .compute_us = 14,
                  .round_trip_us = 15,
                  .hedged_pairs = 16,
                  .losses = 17,
                  .rejoins = 18};
  box.reason = "box1:9000: the node is lost";
  status.legs = {host, box};
  return status;
}

legs::OwnerTable two_layers() { return {3, {"host", "box1:9000"}, 2, 3, {0, 0, 1, 0, 1, 0}}; }

TEST(Tiers, MapOfExperts_IsTheOwnersAndTheirUse) {
  legs::ExpertUse use(2, 3);
  use.add(0, 2, 5);
  use.add(1, 0, 1);
  use.add(0, 2, 2);
  const json tiers = json::parse(tiers_json(status_with("box1:9000"), two_layers(), &use, milliseconds(1234)));
  EXPECT_EQ(tiers.at("at_ms"), 1234);
  EXPECT_EQ(tiers.at("epoch"), 3);
  EXPECT_EQ(tiers.at("layers"), 2);
  EXPECT_EQ(tiers.at("experts_per_layer"), 3);
  EXPECT_EQ(tiers.at("experts").at("owners"), json::parse("[[0,0,1],[0,1,0]]"));
  EXPECT_EQ(tiers.at("experts").at("use"), json::parse("[[0,0,7],[1,0,0]]"));
}

TEST(Tiers, NumbersAreTheStatus_AndTheMapCanBeLeftOut) {
  const json tiers = json::parse(tiers_json(status_with("box1:9000"), two_layers(), nullptr, milliseconds(0)));
  EXPECT_FALSE(tiers.contains("experts"));
  EXPECT_FALSE(tiers.contains("step_error"));
  EXPECT_EQ(tiers.at("slots"), json::parse(R"({"total":3,"idle":1,"waiting":0,"prompt":1,"decoding":1})"));
  EXPECT_EQ(tiers.at("queue"), json::parse(R"({"waiting":5,"limit":64})"));
  EXPECT_EQ(tiers.at("tokens"), json::parse(R"({"made":900,"prompt_computed":4000,"prompt_cached":1000})"));
  EXPECT_EQ(tiers.at("steps").at("count"), 2);
  EXPECT_EQ(tiers.at("steps").at("seconds"), 0.75);
  EXPECT_EQ(tiers.at("cache").at("bytes"), 1 << 20);
}

TEST(Tiers, ANodeHasALink_TheHostHasNone) {
  const json tiers = json::parse(tiers_json(status_with("box1:9000"), two_layers(), nullptr, milliseconds(0)));
  EXPECT_EQ(tiers.at("legs").at(1), json::parse(R"({"name":"box1:9000","kind":"node","state":"lost","experts":2,
    "batches":7,"rows":8,"pairs":9,"wait_us":13,"compute_us":14,"round_trip_us":15,"bytes_sent":10,
    "bytes_received":11,"weight_bytes_sent":12,"losses":17,"rejoins":18,"hedged_pairs":16,
    "reason":"box1:9000: the node is lost"})"));
  for (const char* of_a_link : {"round_trip_us", "bytes_sent", "bytes_received", "weight_bytes_sent", "losses",
                                "rejoins", "hedged_pairs", "reason"})
    EXPECT_FALSE(tiers.at("legs").at(0).contains(of_a_link)) << of_a_link;
}

TEST(Tiers, StepsThatFail_SayWhy_AndNoBytesOfANameBreakTheJson) {
  SchedulerStatus status = status_with("box\xff\"\n");
  status.step_error = Error(ErrorCode::kPeerGone, "box1:9000: closed");
  const json tiers = json::parse(tiers_json(status, two_layers(), nullptr, milliseconds(0)));
  EXPECT_EQ(tiers.at("step_error"), "box1:9000: closed");
  EXPECT_EQ(tiers.at("legs").at(1).at("name"), "box\xEF\xBF\xBD\"\n");
}

}  // namespace
}  // namespace terrace::serve::page
