// Families as the library's own structs, for its serializer and its HTTP server.
#pragma once

#include <prometheus/metric_family.h>

#include <span>
#include <vector>

#include "common/metrics/families.h"

namespace terrace::metrics {

std::vector<prometheus::MetricFamily> to_library(std::span<const Family> families);

}  // namespace terrace::metrics
