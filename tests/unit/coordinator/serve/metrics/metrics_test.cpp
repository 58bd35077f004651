#include "coordinator/serve/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <string>

#include "coordinator/serve/metrics/http_counts.h"
#include "tests/test_data.h"

namespace terrace::serve {
namespace {

using metrics::Family;
using metrics::Labels;
using metrics::Sample;

SchedulerStatus status_of_a_busy_server() {
  SchedulerStatus status;
  status.slots.resize(4);
  status.slots[0].state = SlotState::kDecoding;
  status.slots[1].state = SlotState::kDecoding;
  status.slots[2].state = SlotState::kPrompt;
  status.queued = 5;
  status.queue_limit = 64;
  status.counters.tokens = 900;
  status.counters.decode_seconds = 30;
  status.counters.prompt_tokens = 4000;
  status.counters.prompt_tokens_cached = 1000;
  status.counters.prompt_seconds = 8;
  status.counters.steps = 400;
  status.counters.busy_slots = 1000;
  status.counters.requests_cancelled = 2;
  status.cache_bytes = 1000;
  status.cache_bytes_resting = 400;
  for (const double seconds : {0.0001, 0.02, 0.02, 5000.0}) status.first_token_seconds.add(seconds);
  LegStatus node;
  node.name = "box1:9000";
  node.kind = legs::LegKind::kNode;
  node.state = legs::LegState::kLost;
  node.counters.wait_us = 2'500'000;
  node.counters.bytes_sent = 77;
  node.counters.losses = 3;
  node.counters.rejoins = 2;
  node.counters.hedged_pairs = 40;
  node.counters.backstop_us = 1'500'000;
  for (const double seconds : {0.001, 0.25}) node.steps.wait_seconds.add(seconds);
  status.legs = {LegStatus{"host", legs::LegKind::kHost, legs::LegState::kOk, 96, {}}, node};
  return status;
}

const Family& family(const std::vector<Family>& families, const std::string& name) {
  const auto found = std::find_if(families.begin(), families.end(), [&](const Family& f) { return f.name == name; });
  if (found == families.end()) throw std::runtime_error("no family " + name);
  return *found;
}

double value(const std::vector<Family>& families, const std::string& name, const Labels& labels = {}) {
  for (const Sample& sample : family(families, name).samples)
    if (sample.labels == labels) return sample.value;
  throw std::runtime_error("no sample of " + name + " with these labels");
}

TEST(ServerMetrics, RequestsTokensAndCache_SayWhatTheStatusSays) {
  const auto families = scheduler_families(status_of_a_busy_server());
  EXPECT_EQ(value(families, "terrace_slots", {{"state", "decoding"}}), 2);
  EXPECT_EQ(value(families, "terrace_slots", {{"state", "idle"}}), 1);
  EXPECT_EQ(value(families, "terrace_requests_queued"), 5);
  EXPECT_EQ(value(families, "terrace_requests_ended_total", {{"outcome", "cancelled"}}), 2);
  EXPECT_EQ(value(families, "terrace_prompt_tokens_total", {{"source", "cached"}}), 1000);
  EXPECT_EQ(value(families, "terrace_cache_bytes", {{"state", "running"}}), 600);
  EXPECT_EQ(value(families, "terrace_step_error"), 0);
}

TEST(ServerMetrics, LegsAreSamplesWithTheirNames) {
  const auto families = scheduler_families(status_of_a_busy_server());
  const Labels node = {{"leg", "box1:9000"}, {"kind", "node"}};
  EXPECT_EQ(value(families, "terrace_leg_up", node), 0);
  EXPECT_EQ(value(families, "terrace_leg_up", {{"leg", "host"}, {"kind", "host"}}), 1);
  EXPECT_EQ(value(families, "terrace_leg_wait_seconds_total", node), 2.5);
  EXPECT_EQ(value(families, "terrace_leg_sent_bytes_total", node), 77);
}

TEST(ServerMetrics, StepsByLeg_AreAHistogramOfEachLeg) {
  const auto families = scheduler_families(status_of_a_busy_server());
  const Family& wait = family(families, "terrace_leg_step_wait_seconds");
  EXPECT_EQ(wait.kind, metrics::Kind::kHistogram);
  ASSERT_EQ(wait.samples.size(), 2U);
  EXPECT_EQ(wait.samples[0].labels, (Labels{{"leg", "host"}, {"kind", "host"}}));
  EXPECT_EQ(wait.samples[0].histogram.sum, 0);
  EXPECT_EQ(wait.samples[1].labels, (Labels{{"leg", "box1:9000"}, {"kind", "node"}}));
  EXPECT_DOUBLE_EQ(wait.samples[1].histogram.sum, 0.251);
  EXPECT_EQ(family(families, "terrace_leg_step_compute_seconds").samples.size(), 2U);
}

TEST(ServerMetrics, WhatWentWrongWithANode_IsCounted) {
  const auto families = scheduler_families(status_of_a_busy_server());
  const Labels node = {{"leg", "box1:9000"}, {"kind", "node"}};
  EXPECT_EQ(value(families, "terrace_leg_losses_total", node), 3);
  EXPECT_EQ(value(families, "terrace_leg_rejoins_total", node), 2);
  EXPECT_EQ(value(families, "terrace_leg_hedged_pairs_total", node), 40);
  EXPECT_EQ(value(families, "terrace_leg_backstop_seconds_total", node), 1.5);
  const auto in_state = [&](const char* state) {
    return value(families, "terrace_leg_state", {{"leg", "box1:9000"}, {"kind", "node"}, {"state", state}});
  };
  EXPECT_EQ(in_state("lost"), 1);
  for (const char* other : {"ok", "suspect", "wrong"}) EXPECT_EQ(in_state(other), 0) << other;
}

TEST(ServerMetrics, SuspectNode_IsUp) {
  SchedulerStatus status = status_of_a_busy_server();
  status.legs.at(1).state = legs::LegState::kSuspect;
  EXPECT_EQ(value(scheduler_families(status), "terrace_leg_up", {{"leg", "box1:9000"}, {"kind", "node"}}), 1);
}

TEST(ServerMetrics, Histograms_KeepEveryValueAndTheOneAboveAllBounds) {
  const auto families = scheduler_families(status_of_a_busy_server());
  const auto& histogram = family(families, "terrace_first_token_seconds").samples.at(0).histogram;
  ASSERT_EQ(histogram.counts.size(), histogram.bounds.size() + 1);
  EXPECT_EQ(histogram.counts.front(), 1u);
  EXPECT_EQ(histogram.counts.back(), 1u);
  EXPECT_DOUBLE_EQ(histogram.sum, 5000.0401);
}

TEST(ServerMetrics, NamesOfLlamaServer_MeanTheSame) {
  const auto families = scheduler_families(status_of_a_busy_server());
  EXPECT_EQ(value(families, "llamacpp:prompt_tokens_total"), 4000);
  EXPECT_EQ(value(families, "llamacpp:tokens_predicted_total"), 900);
  EXPECT_EQ(value(families, "llamacpp:prompt_tokens_seconds"), 500);
  EXPECT_EQ(value(families, "llamacpp:predicted_tokens_seconds"), 30);
  EXPECT_EQ(value(families, "llamacpp:n_busy_slots_per_decode"), 2.5);
  EXPECT_EQ(value(families, "llamacpp:requests_processing"), 3);
  EXPECT_EQ(value(families, "llamacpp:requests_deferred"), 5);
}

TEST(ServerMetrics, NothingHappenedYet_NoRateIsInfinite) {
  const auto families = scheduler_families(SchedulerStatus());
  EXPECT_EQ(value(families, "llamacpp:prompt_tokens_seconds"), 0);
  EXPECT_EQ(value(families, "llamacpp:n_busy_slots_per_decode"), 0);
}

TEST(ServerMetrics, Http_RequestsByRouteAndStatus_LimitsAndBytes) {
  HttpCounts counts;
  const auto serve = [&](const char* route, int status, std::uint64_t in, std::uint64_t out) {
    http::Served served;
    served.path = route;
    served.status = status;
    served.bytes_in = in;
    served.bytes_out = out;
    counts.add(served);
  };
  serve("/completion", 200, 10, 1000);
  serve("/completion", 200, 20, 2000);
  serve("/completion", 429, 0, 90);
  serve("", 404, 0, 80);
  serve("", 431, 0, 70);
  http::ServerCounts server;
  server.connections = 3;
  server.refused = 4;
  server.cut_off = 5;
  const auto families = counts.families(server);
  const char* requests = "terrace_http_requests_total";
  EXPECT_EQ(value(families, requests, {{"route", "/completion"}, {"status", "200"}}), 2);
  EXPECT_EQ(value(families, requests, {{"route", "/completion"}, {"status", "429"}}), 1);
  EXPECT_EQ(value(families, requests, {{"route", "none"}, {"status", "404"}}), 1);
  const char* refused = "terrace_http_refused_total";
  EXPECT_EQ(value(families, refused, {{"limit", "rate"}}), 1);
  EXPECT_EQ(value(families, refused, {{"limit", "head"}}), 1);
  EXPECT_EQ(value(families, refused, {{"limit", "time"}}), 0);
  EXPECT_EQ(value(families, refused, {{"limit", "connections"}}), 4);
  EXPECT_EQ(value(families, refused, {{"limit", "unread"}}), 5);
  EXPECT_EQ(value(families, "terrace_http_connections"), 3);
  EXPECT_EQ(value(families, "terrace_http_bytes_total", {{"direction", "in"}}), 30);
  EXPECT_EQ(value(families, "terrace_http_bytes_total", {{"direction", "out"}}), 3240);
}

// The rows "| `name` | type |" below the heading.
std::map<std::string, std::string> documented() {
  std::ifstream file(test::source_dir() / "docs/operations.md");
  const std::regex row("^\\| `([a-z_:]+)` \\| ([a-z]+) \\|.*");
  std::map<std::string, std::string> rows;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) inside = line == "### Metrics of `terrace serve`";
    std::smatch match;
    if (inside && std::regex_match(line, match, row)) rows[match[1]] = match[2];
  }
  return rows;
}

TEST(ServerMetrics, TableOfTheDocuments_IsWhatIsEmitted) {
  std::map<std::string, std::string> emitted;
  auto families = scheduler_families(status_of_a_busy_server());
  for (Family& own : metrics::process_families()) families.push_back(std::move(own));
  for (Family& own : HttpCounts().families({})) families.push_back(std::move(own));
  for (const Family& each : families) emitted[each.name] = metrics::name(each.kind);
  EXPECT_EQ(emitted, documented());
}

}  // namespace
}  // namespace terrace::serve
