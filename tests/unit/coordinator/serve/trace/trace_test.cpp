#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "coordinator/serve/trace/recorder.h"
#include "coordinator/serve/trace/traced.h"
#include "tests/unit/common/threads/no_threads.h"

namespace terrace::serve {
namespace {

using Json = nlohmann::json;

class Trace : public ::testing::Test {
 protected:
  ~Trace() override { std::filesystem::remove(file_); }

  std::unique_ptr<TraceRecorder> open(const std::vector<std::string>& legs, TraceRecorder::Options options = {}) {
    auto recorder = TraceRecorder::open(file_, legs, options);
    EXPECT_TRUE(recorder.ok()) << recorder.error().text();
    return std::move(*recorder);
  }
  Json written() const { return Json::parse(std::ifstream(file_)); }
  // The events of a name.
  std::vector<Json> events(const std::string& name) const {
    std::vector<Json> found;
    for (const Json& event : written())
      if (event["name"] == name) found.push_back(event);
    return found;
  }

  const std::filesystem::path file_ =
      std::filesystem::temp_directory_path() / ("terrace-trace-" + std::to_string(::getpid()) + ".json");
};

// Counts 7 us of computing at each collect().
class FakeLeg final : public legs::Leg {
 public:
  const std::string& name() const override { return name_; }
  legs::LegKind kind() const override { return legs::LegKind::kNode; }
  legs::LegState state() const override { return legs::LegState::kOk; }
  std::uint64_t experts() const override { return 3; }
  Result<legs::Ticket> submit(const legs::LegBatch&) override {
    if (refuses) return Error(ErrorCode::kBusy, "too much is open");
    return legs::Ticket{5};
  }
  Status collect(legs::Ticket, kernels::SumsView, std::span<std::uint8_t>) override {
    counters_.compute_us += 7;
    return {};
  }
  legs::LegCounters counters() const override { return counters_; }

  bool refuses = false;

 private:
  std::string name_ = "box1:9000";
  legs::LegCounters counters_;
};

TEST_F(Trace, SpansOfALeg_CarryLayerAndRowsAndLieWithinTheirBatch) {
  const auto recorder = open({"host", "box1:9000"});
  FakeLeg leg;
  TracedLeg traced(leg, *recorder, 2);
  const std::vector<kernels::Pair> pairs(4);
  legs::LegBatch batch;
  batch.layer = 9;
  batch.n_rows = 3;
  batch.pairs = pairs;
  const auto ticket = traced.submit(batch);
  ASSERT_TRUE(ticket.ok());
  ASSERT_TRUE(traced.collect(*ticket, {}, {}).ok());
  ASSERT_TRUE(recorder->close().ok());

  const Json outer = events("batch").at(0);
  EXPECT_EQ(outer["args"], Json({{"layer", 9}, {"rows", 3}, {"pairs", 4}}));
  EXPECT_EQ(events("collect").at(0)["args"]["compute_us"], 7);
  for (const char* inner : {"submit", "collect"}) {
    const Json event = events(inner).at(0);
    EXPECT_EQ(event["tid"], 2);
    EXPECT_GE(event["ts"], outer["ts"]);
    EXPECT_LE(event["ts"].get<double>() + event["dur"].get<double>(),
              outer["ts"].get<double>() + outer["dur"].get<double>() + 1e-6);
  }
}

TEST_F(Trace, BatchThatALegDoesNotTake_IsASpanToo) {
  const auto recorder = open({"box1:9000"});
  FakeLeg leg;
  leg.refuses = true;
  TracedLeg traced(leg, *recorder, 1);
  EXPECT_FALSE(traced.submit({}).ok());
  ASSERT_TRUE(recorder->close().ok());
  EXPECT_EQ(events("batch").size(), 1u);
}

TEST_F(Trace, TracksAreNamed_WhateverTheNames) {
  ASSERT_TRUE(open({"host", "a\"b\\c\n"})->close().ok());
  std::vector<std::string> names;
  for (const Json& event : events("thread_name")) names.push_back(event["args"]["name"]);
  EXPECT_THAT(names, testing::ElementsAre("steps", "host", "a\"b\\c\n"));
}

TEST_F(Trace, ItsBeginIsToldByTheSystemsClock) {
  const auto now_us = [] {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
  };
  const double before = now_us();
  ASSERT_TRUE(open({})->close().ok());
  const double began = events("began").at(0)["args"]["monotonic_us"];
  EXPECT_GE(began, before);
  EXPECT_LE(began, now_us());
}

TEST_F(Trace, TimesAreMicroseconds) {
  const auto recorder = open({});
  recorder->record({.begin_ns = 1'000'234'567, .end_ns = 1'000'234'570, .rows = 8});
  ASSERT_TRUE(recorder->close().ok());
  const Json step = events("step").at(0);
  EXPECT_DOUBLE_EQ(step["ts"], 1'000'234.567);
  EXPECT_DOUBLE_EQ(step["dur"], 0.003);
  EXPECT_EQ(step["args"]["rows"], 8);
}

TEST_F(Trace, MoreThanTheRingHolds_EachSpanIsWrittenOrCounted) {
  const auto recorder = open({}, {.ring_spans = 8});
  for (int i = 0; i < 100'000; ++i) recorder->record({});
  ASSERT_TRUE(recorder->close().ok());
  EXPECT_EQ(events("step").size() + recorder->dropped(), 100'000u);
  EXPECT_GT(recorder->dropped(), 0u);
}

TEST_F(Trace, FileAtItsLimit_StaysWholeAndBelow) {
  const auto recorder = open({}, {.max_bytes = 2'000});
  for (int i = 0; i < 1'000; ++i) recorder->record({});
  ASSERT_TRUE(recorder->close().ok());
  EXPECT_LE(std::filesystem::file_size(file_), 2'010u);  // and the closing bracket
  EXPECT_EQ(events("step").size() + recorder->dropped(), 1'000u);
}

TEST_F(Trace, FileThatCannotBe_ErrorNamesIt) {
  const auto recorder = TraceRecorder::open("/nonexistent/trace.json", {});
  ASSERT_FALSE(recorder.ok());
  EXPECT_THAT(recorder.error().text(), testing::HasSubstr("/nonexistent/trace.json"));
}

TEST_F(Trace, NoThread_ErrorNamesIt) {
  const terrace::test::NoThreads limit;
  const auto recorder = TraceRecorder::open(file_, {});
  ASSERT_FALSE(recorder.ok());
  EXPECT_THAT(recorder.error().text(), testing::HasSubstr("terrace-trace"));
}

TEST_F(Trace, FullDisk_CloseSaysSo) {
  const auto recorder = TraceRecorder::open("/dev/full", {});
  ASSERT_TRUE(recorder.ok()) << recorder.error().text();
  (*recorder)->record({});
  const Status closed = (*recorder)->close();
  ASSERT_FALSE(closed.ok());
  EXPECT_EQ(closed.error().code(), ErrorCode::kIo);
}

}  // namespace
}  // namespace terrace::serve
