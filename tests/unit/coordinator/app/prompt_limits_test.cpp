#include "coordinator/app/prompt_limits.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace terrace::app {
namespace {

// 2 runs of 512 tokens: 2 MB out and 8 MB back over a link of 10 MB/s, 0.5 s of kernels at the node and 0.25 s here.
class PromptLimits : public testing::Test {
 protected:
  PromptLimits() {
    legs_[0].name = "host";
    legs_[1].name = "box1:9000";
    legs_[1].kind = legs::LegKind::kNode;
    result_.test = {.depth = 0, .n_prompt = 512, .n_gen = 0};
    result_.measured_tokens = 1024;
    result_.tokens_per_second = 1024;
    result_.counters.resize(2);
    result_.counters[0].compute_us = 250'000;
    result_.counters[1].compute_us = 500'000;
    result_.counters[1].bytes_sent = 2'000'000;
    result_.counters[1].bytes_received = 8'000'000;
    plan_.prompt_rows = 512;
    plan_.prompt_trunk = 0.1;
    plan_.links = {{"box1:9000", 1e7}};
  }
  std::vector<PromptLimit> limits() const { return prompt_limits(result_, legs_, plan_); }

  std::vector<legs::LegReport> legs_{2};
  BenchResult result_;
  planner::StatedPrediction plan_;
};

TEST_F(PromptLimits, TrunkLegsAndTheSlowerDirectionOfEachLink) {
  const auto json = to_json(limits());
  EXPECT_EQ(json.size(), 5u);
  EXPECT_DOUBLE_EQ(json["trunk"], 5120);
  EXPECT_DOUBLE_EQ(json["host"], 4096);
  EXPECT_DOUBLE_EQ(json["trunk and host"], 1 / (1.0 / 5120 + 1.0 / 4096))
      << "one behind the other, on the same threads";
  EXPECT_DOUBLE_EQ(json["box1:9000"], 2048);
  EXPECT_DOUBLE_EQ(json["box1:9000 (its link)"], 1280);
  const auto all = limits();
  ASSERT_NE(least(all), nullptr);
  EXPECT_EQ(least(all)->of, "box1:9000 (its link)");
  EXPECT_NE(to_text(result_, all).find("0.800 of the least"), std::string::npos) << to_text(result_, all);
}

TEST_F(PromptLimits, WhatWasNotMeasuredIsNoLimit_AndDecodingHasNone) {
  plan_.links.clear();
  plan_.prompt_trunk = 0;
  result_.counters[0] = {};
  const auto all = limits();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].of, "box1:9000");
  result_.test = {.depth = 0, .n_prompt = 0, .n_gen = 64};
  EXPECT_TRUE(limits().empty());
  EXPECT_EQ(least({}), nullptr);
}

}  // namespace
}  // namespace terrace::app
