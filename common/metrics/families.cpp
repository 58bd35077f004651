#include "common/metrics/families.h"

#include <prometheus/text_serializer.h>

#include "common/metrics/convert.h"

namespace terrace::metrics {
namespace {

prometheus::MetricType to_library(Kind kind) {
  switch (kind) {
    case Kind::kCounter:
      return prometheus::MetricType::Counter;
    case Kind::kGauge:
      return prometheus::MetricType::Gauge;
    case Kind::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

// The library's buckets are cumulative, and it adds the one without a bound itself.
prometheus::ClientMetric::Histogram to_library(const HistogramCounts& counts) {
  prometheus::ClientMetric::Histogram histogram;
  histogram.sample_sum = counts.sum;
  for (std::size_t i = 0; i < counts.counts.size(); ++i) {
    histogram.sample_count += counts.counts[i];
    if (i < counts.bounds.size()) histogram.bucket.push_back({histogram.sample_count, counts.bounds[i]});
  }
  return histogram;
}

prometheus::ClientMetric to_library(const Sample& sample, Kind kind) {
  prometheus::ClientMetric metric;
  for (const auto& [label, value] : sample.labels) metric.label.push_back({label, value});
  if (kind == Kind::kCounter) metric.counter.value = sample.value;
  if (kind == Kind::kGauge) metric.gauge.value = sample.value;
  if (kind == Kind::kHistogram) metric.histogram = to_library(sample.histogram);
  return metric;
}

}  // namespace

const char* name(Kind kind) {
  switch (kind) {
    case Kind::kCounter:
      return "counter";
    case Kind::kGauge:
      return "gauge";
    case Kind::kHistogram:
      return "histogram";
  }
  return "gauge";
}

std::vector<prometheus::MetricFamily> to_library(std::span<const Family> families) {
  std::vector<prometheus::MetricFamily> converted;
  for (const Family& family : families) {
    prometheus::MetricFamily& out = converted.emplace_back();
    out.name = family.name;
    out.help = family.help;
    out.type = to_library(family.kind);
    for (const Sample& sample : family.samples) out.metric.push_back(to_library(sample, family.kind));
  }
  return converted;
}

std::string to_text(std::span<const Family> families) {
  return prometheus::TextSerializer().Serialize(to_library(families));
}

}  // namespace terrace::metrics
