// How fast the model file's experts can be read again, for a node that is lost: past the page cache, one read at a time
// as a step does, and what more at one time would give.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/result.h"
#include "common/gguf/file.h"
#include "common/manifest/experts.h"
#include "coordinator/planner/prediction.h"

namespace terrace::app {

struct DiskRate {
  bool direct = false;
  std::uint32_t depth = 0;  // reads at one time, each by a thread of its own
  double bytes_per_second = 0;
};

struct DiskRates {
  std::vector<DiskRate> rates;   // direct at rising depths, then buffered at the best of them
  std::uint64_t read_bytes = 0;  // of one read: a part of an expert, in whole blocks
  planner::DiskMeasurement best() const;
};

// Reads for about a second. A file system that does not read past its cache has no direct rates.
// kIo: names the file.
Result<DiskRates> measure_disk(const gguf::File& file, const manifest::ModelExperts& experts);

}  // namespace terrace::app
