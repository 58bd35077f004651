#include "coordinator/app/bandwidth.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "common/base/machine_limits.h"
#include "kernels/cpu/read_stream/read_stream.h"

namespace terrace::app {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
// The default buffer: the largest bounds the time of a run and the memory it needs.
constexpr std::uint64_t kSmallestBuffer = 256ULL << 20;
constexpr std::uint64_t kLargestBuffer = 1024ULL << 20;
constexpr int kPasses = 3;  // of each way to read; the fastest counts, since what disturbs only slows down

// Anonymous memory that begins at a 2M boundary, with or without huge pages.
class Pages {
 public:
  static Result<Pages> map(std::size_t bytes, bool huge) {
    void* const mapping = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED)
      return Error(ErrorCode::kOutOfMemory, fmt::format("the system gives no {} to measure the read bandwidth with: {}",
                                                        format_size(bytes), std::strerror(errno)));
    Pages pages(static_cast<std::byte*>(mapping), bytes);
    pages.advised_ = madvise(pages.data(), bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) == 0;
    return pages;
  }
  Pages(Pages&& other) noexcept
      : mapping_(std::exchange(other.mapping_, nullptr)), bytes_(other.bytes_), advised_(other.advised_) {}
  Pages& operator=(Pages&&) = delete;
  ~Pages() {
    if (mapping_ != nullptr) munmap(mapping_, bytes_ + kHugePage);
  }

  std::byte* data() const {
    const auto address = reinterpret_cast<std::uintptr_t>(mapping_);
    return mapping_ + (kHugePage - address % kHugePage) % kHugePage;
  }
  // The system took the advice; only /proc tells whether it also follows it.
  bool advised() const { return advised_; }

 private:
  Pages(std::byte* mapping, std::size_t bytes) : mapping_(mapping), bytes_(bytes) {}
  std::byte* mapping_;
  std::size_t bytes_;
  bool advised_ = false;
};

// Bytes of huge pages in the mappings that overlap [begin, begin + bytes), as /proc/self/smaps tells.
std::uint64_t huge_bytes(const std::byte* begin, std::size_t bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(begin);
  std::ifstream smaps("/proc/self/smaps");
  std::uint64_t sum = 0;
  bool ours = false;
  for (std::string line; std::getline(smaps, line);) {
    std::istringstream words(line);
    std::uintptr_t low = 0, high = 0;
    char dash = 0;
    if (words >> std::hex >> low >> dash >> high && dash == '-') {
      ours = low < first + bytes && first < high;
    } else if (ours && line.starts_with("AnonHugePages:")) {
      sum += std::strtoull(line.c_str() + std::strlen("AnonHugePages:"), nullptr, 10) * 1024;
    }
  }
  return sum;
}

class Measurement {
 public:
  Measurement(Parallel& parallel, kernels::Isa isa, const std::byte* data, std::size_t bytes)
      : parallel_(parallel),
        read_(kernels::read_stream_of(isa)),
        data_(data),
        n_units_(bytes / kReadUnit),
        sums_(parallel.n_workers() * kSumStride) {}

  ReadRate run(ReadRate rate) {
    for (int pass = 0; pass < kPasses; ++pass) {
      const auto begin = std::chrono::steady_clock::now();
      read_all(rate);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      const double bytes = static_cast<double>(n_units_ * kReadUnit);
      rate.gb_per_second = std::max(rate.gb_per_second, bytes / std::max(seconds.count(), 1e-9) / 1e9);
    }
    return rate;
  }

 private:
  static constexpr std::size_t kSumStride = 8;  // words; a cache line for each worker

  void read_all(const ReadRate& rate) {
    parallel_.run(n_units_, [&](std::size_t unit, std::size_t worker) {
      sums_[worker * kSumStride] ^= read_({.data = data_ + unit * kReadUnit,
                                           .bytes = kReadUnit,
                                           .n_streams = rate.n_streams,
                                           .prefetch_bytes = rate.prefetch_bytes});
    });
  }

  Parallel& parallel_;
  kernels::ReadStreamFn read_;
  const std::byte* data_;
  std::size_t n_units_;
  std::vector<std::uint64_t> sums_;
};

Status measure(Parallel& parallel, ReadBandwidth& result, bool huge) {
  const auto bytes = static_cast<std::size_t>(result.buffer.value);
  TERRACE_ASSIGN_OR_RETURN(const Pages pages, Pages::map(bytes, huge));
  parallel.run(bytes / kReadUnit,
               [&](std::size_t unit, std::size_t) { std::memset(pages.data() + unit * kReadUnit, 1, kReadUnit); });
  if (huge) {
    const std::uint64_t got = pages.advised() ? huge_bytes(pages.data(), bytes) : 0;
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
