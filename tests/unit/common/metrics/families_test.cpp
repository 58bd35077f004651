#include "common/metrics/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace terrace::metrics {
namespace {

TEST(MetricFamilies, CountersAndGauges_AsPrometheusReadsThem) {
  const std::vector<Family> families = {
      {"a_total", Kind::kCounter, "How often.", {{3, {{"leg", "box1:9000"}}, {}}, {4, {{"leg", "host"}}, {}}}},
      {"b_bytes", Kind::kGauge, "How much.", {{16'532'259'840.0, {}, {}}}}};
  EXPECT_EQ(to_text(families),
            "# HELP a_total How often.\n"
            "# TYPE a_total counter\n"
            "a_total{leg=\"box1:9000\"} 3\n"
            "a_total{leg=\"host\"} 4\n"
            "# HELP b_bytes How much.\n"
            "# TYPE b_bytes gauge\n"
            "b_bytes 16532259840\n");
}

TEST(MetricFamilies, Histogram_BucketsAreCumulativeAndEndInAll) {
  const std::vector<Family> families = {
      {"c_seconds", Kind::kHistogram, "How long.", {{0, {}, {{0.5, 1}, {2, 0, 5}, 10.25}}}}};
  EXPECT_EQ(to_text(families),
            "# HELP c_seconds How long.\n"
            "# TYPE c_seconds histogram\n"
            "c_seconds_count 7\n"
            "c_seconds_sum 10.25\n"
            "c_seconds_bucket{le=\"0.5\"} 2\n"
            "c_seconds_bucket{le=\"1\"} 2\n"
            "c_seconds_bucket{le=\"+Inf\"} 7\n");
}

TEST(MetricFamilies, LabelFromAUser_CannotForgeALine) {
  const std::vector<Family> families = {{"d", Kind::kGauge, "x", {{1, {{"leg", "a\"} 1\nforged 2"}}, {}}}}};
  EXPECT_THAT(to_text(families), testing::Not(testing::HasSubstr("\nforged")));
  EXPECT_THAT(to_text(families), testing::HasSubstr("a\\\"} 1\\nforged 2"));
}

TEST(MetricFamilies, Process_TellsItsMemoryAndTime) {
  const std::vector<Family> families = process_families();
  for (const char* name : {"terrace_build_info", "process_start_time_seconds", "process_cpu_seconds_total",
                           "process_resident_memory_bytes", "process_page_faults_total", "process_open_fds"}) {
    const auto found = std::find_if(families.begin(), families.end(), [&](const Family& f) { return f.name == name; });
    ASSERT_NE(found, families.end()) << name;
    ASSERT_EQ(found->samples.size(), found->name == "process_page_faults_total" ? 2u : 1u) << name;
    for (const Sample& sample : found->samples) EXPECT_GE(sample.value, 0) << name;
    if (found->name == "process_start_time_seconds") {
      EXPECT_EQ(process_start_seconds(), found->samples[0].value);
    }
  }
}

}  // namespace
}  // namespace terrace::metrics
