#include "coordinator/serve/routes/health.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace terrace::serve {
namespace {

using nlohmann::json;

SchedulerStatus with_legs(legs::LegState first, legs::LegState second) {
  SchedulerStatus status;
  LegStatus leg;
  leg.name = "host";
  status.legs.push_back(leg);
  leg.kind = legs::LegKind::kNode;
  for (const auto& [name, state] : {std::pair("box1:9000", first), std::pair("box2:9000", second)}) {
    leg.name = name;
    leg.state = state;
    status.legs.push_back(leg);
  }
  return status;
}

constexpr auto kOk = legs::LegState::kOk;
constexpr auto kLost = legs::LegState::kLost;
constexpr auto kSuspect = legs::LegState::kSuspect;
constexpr auto kWrong = legs::LegState::kWrong;

TEST(Health, EverythingThere_IsOkAsClientsOfLlamaServerReadIt) {
  for (const SchedulerStatus& status : {SchedulerStatus(), with_legs(kOk, kOk), with_legs(kSuspect, kOk)}) {
    const http::Reply reply = health(status);
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(json::parse(reply.body), json({{"status", "ok"}}));
  }
}

TEST(Health, LostNodeWhoseWorkOthersDo_IsToldWithoutItsName) {
  const http::Reply reply = health(with_legs(kOk, kLost));
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(json::parse(reply.body), json({{"status", "degraded"}, {"nodes", 2}, {"nodes_lost", 1}}));
}

TEST(Health, WrongNode_IsToldBesideLostOnes) {
  EXPECT_EQ(json::parse(health(with_legs(kLost, kWrong)).body),
            json({{"status", "degraded"}, {"nodes", 2}, {"nodes_lost", 1}, {"nodes_wrong", 1}}));
}

TEST(Health, FailedStepWithoutALostNode_IsTold_AndLeavesTheServerInService) {
  SchedulerStatus status = with_legs(kOk, kOk);
  status.step_error = Error(ErrorCode::kDeadline, "box2:9000: no answer in time");
  const http::Reply reply = health(status);
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(json::parse(reply.body), json({{"status", "degraded"}, {"last_step_failed", true}}));
}

TEST(Health, StepsThatFailForALostNode_Are503_UntilOneWorks) {
  SchedulerStatus status = with_legs(kOk, kLost);
  status.step_error = Error(ErrorCode::kPeerGone, "box2:9000: the connection is closed");
  const http::Reply reply = health(status);
  EXPECT_EQ(reply.status, 503);
  const json body = json::parse(reply.body);
  EXPECT_EQ(body.at("error").at("type"), "unavailable_error");
  EXPECT_EQ(body.at("error").at("message"), "steps fail: 1 of 2 nodes lost");
  EXPECT_EQ(reply.body.find("box2"), std::string::npos);
  EXPECT_EQ(health(with_legs(kOk, kLost)).status, 200);
}

}  // namespace
}  // namespace terrace::serve
