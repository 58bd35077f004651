#include "coordinator/app/bandwidth.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "common/base/machine_limits.h"
#include "coordinator/app/best_rate.h"
#include "coordinator/app/pages.h"
#include "kernels/cpu/read_stream/read_stream.h"

namespace terrace::app {
namespace {

// The default buffer: the largest bounds the time of a run and the memory it needs.
constexpr std::uint64_t kSmallestBuffer = 256ULL << 20;
constexpr std::uint64_t kLargestBuffer = 1024ULL << 20;
constexpr int kPasses = 3;  // of each way to read
constexpr std::size_t kWindowUnits = kReadWindow / kReadUnit;

class Measurement {
 public:
  Measurement(Parallel& parallel, kernels::Isa isa, const std::byte* data, std::size_t bytes)
      : parallel_(parallel),
        read_(kernels::read_stream_of(isa)),
        data_(data),
        n_units_(bytes / kReadUnit),
        sums_(parallel.n_workers() * kSumStride) {}

  ReadRate run(ReadRate rate) {
    const double units =
        best_rate(parallel_, n_units_, kWindowUnits, kPasses, [&](std::size_t unit, std::size_t worker) {
          sums_[worker * kSumStride] ^= read_({.data = data_ + unit * kReadUnit,
                                               .bytes = kReadUnit,
                                               .n_streams = rate.n_streams,
                                               .prefetch_bytes = rate.prefetch_bytes});
        });
    rate.gb_per_second = units * static_cast<double>(kReadUnit) / 1e9;
    return rate;
  }

 private:
  static constexpr std::size_t kSumStride = 8;  // words; a cache line for each worker

  Parallel& parallel_;
  kernels::ReadStreamFn read_;
  const std::byte* data_;
  std::size_t n_units_;
  std::vector<std::uint64_t> sums_;
};

Status measure(Parallel& parallel, ReadBandwidth& result, bool huge) {
  const auto bytes = static_cast<std::size_t>(result.buffer.value);
  const auto mapped = Pages::map(bytes, huge);
  if (!mapped.ok()) return mapped.error().in("measuring the read bandwidth");
  const Pages& pages = *mapped;
  parallel.run(bytes / kReadUnit,
               [&](std::size_t unit, std::size_t) { std::memset(pages.data() + unit * kReadUnit, 1, kReadUnit); });
  if (huge) {
    const std::uint64_t got = pages.huge_bytes();
    if (got < bytes) {
      result.note = fmt::format("2M pages: the system gave {} of {} in such pages, so they are not measured",
                                format_size(got), format_size(bytes));
      return {};
    }
  }
  Measurement measurement(parallel, result.isa, pages.data(), bytes);
  for (const int streams : {1, 2, 4})
    for (const std::size_t prefetch : {0, 2048, 4096, 8192})
      result.rates.push_back(
          measurement.run({.huge_pages = huge, .n_streams = streams, .prefetch_bytes = prefetch, .gb_per_second = 0}));
  return {};
}

}  // namespace

const ReadRate& ReadBandwidth::best() const {
  return *std::max_element(rates.begin(), rates.end(),
                           [](const ReadRate& a, const ReadRate& b) { return a.gb_per_second < b.gb_per_second; });
}

Bytes default_read_buffer() {
  const long last_level = std::max({sysconf(_SC_LEVEL2_CACHE_SIZE), sysconf(_SC_LEVEL3_CACHE_SIZE), 0L});
  const std::uint64_t wanted = 4 * static_cast<std::uint64_t>(last_level);
  return Bytes{std::clamp(wanted / kReadUnit * kReadUnit, kSmallestBuffer, kLargestBuffer)};
}

Result<ReadBandwidth> measure_read_bandwidth(Parallel& parallel, kernels::Isa isa, Bytes buffer) {
  ReadBandwidth result;
  result.threads = parallel.n_workers();
  result.isa = isa;
  result.buffer.value = buffer.value / kReadUnit * kReadUnit;
  if (result.buffer.value == 0)
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("a buffer of {} is too small to measure the read bandwidth with; {} is the least",
                             format_size(buffer.value), format_size(kReadUnit)));
  TERRACE_ASSIGN_OR_RETURN(const std::uint64_t available, memory_available());
  if (result.buffer.value > available)
    return Error(ErrorCode::kOutOfMemory,
                 fmt::format("measuring the read bandwidth takes a buffer of {}, {} are free; lower --limits-buffer",
                             format_size(result.buffer.value), format_size(available)));
  for (const bool huge : {false, true}) TERRACE_RETURN_IF_ERROR(measure(parallel, result, huge));
  return result;
}

}  // namespace terrace::app
