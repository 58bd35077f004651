#include "coordinator/app/probe_disk.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>

#include "common/base/aligned_buffer.h"
#include "common/base/descriptor.h"
#include "common/threads/start.h"
#include "coordinator/app/probe_timing.h"

namespace terrace::app {
namespace {

constexpr std::uint64_t kBlock = 4096;
constexpr std::uint64_t kLargestRead = std::uint64_t{4} << 20;
constexpr double kSecondsADepth = 0.15;

// Where in the first shard that has experts they lie, and what one read of them is.
struct Region {
  std::filesystem::path path;
  std::uint64_t begin = 0, end = 0;  // whole blocks
  std::uint64_t read = 0;
};

Region region_of(const gguf::File& file, const manifest::ModelExperts& experts) {
  Region region;
  std::uint32_t shard = 0;
  bool any = false;
  for (const manifest::LayerExperts& layer : experts.layers) {
    if (layer.shape.n_experts == 0) continue;
    for (const manifest::PartLocation* part : {&layer.gate, &layer.up, &layer.down}) {
      if (any && part->shard != shard) continue;
      const std::uint64_t end = part->file_offset + (layer.shape.n_experts - 1) * part->stride + part->bytes;
      region.begin = any ? std::min(region.begin, part->file_offset) : part->file_offset;
      region.end = any ? std::max(region.end, end) : end;
      shard = part->shard;
      if (!any) region.read = part->bytes;
      any = true;
    }
  }
  region.path = file.path(shard);
  region.begin = region.begin / kBlock * kBlock;
  region.end = region.end / kBlock * kBlock;
  region.read = std::clamp((region.read + kBlock - 1) / kBlock * kBlock, kBlock, kLargestRead);
  return region;
}

// Reads spread over the region, in steps that no read-ahead follows. Zero: the system refuses such reads.
Result<double> read_for_a_while(const Region& region, int fd, std::uint32_t depth, std::uint64_t& place) {
  const std::uint64_t n_places = std::max<std::uint64_t>((region.end - region.begin) / region.read, 1);
  std::atomic<std::uint64_t> next = place, bytes = 0;
  std::atomic<int> failed = 0;
  const auto begin = std::chrono::steady_clock::now();
  std::vector<AlignedBuffer> buffers;
  for (std::uint32_t i = 0; i < depth; ++i) {
    TERRACE_ASSIGN_OR_RETURN(AlignedBuffer buffer, AlignedBuffer::allocate(region.read + kBlock));
    buffers.push_back(std::move(buffer));
  }
  const auto reader = [&](std::byte* memory) {
    memory += (kBlock - reinterpret_cast<std::uintptr_t>(memory) % kBlock) % kBlock;
    while (failed == 0 && seconds_since(begin) < kSecondsADepth) {
      const std::uint64_t at = region.begin + (next++ * 0x9e3779b1ULL) % n_places * region.read;
      const ::ssize_t n = ::pread(fd, memory, region.read, static_cast<::off_t>(at));
      if (n < 0 && errno != EINTR) failed = errno;
      if (n > 0) bytes += static_cast<std::uint64_t>(n);
    }
  };
  {
    std::vector<std::thread> threads;
    Status started;
    for (std::uint32_t i = 1; i < depth && started.ok(); ++i) {
      auto thread = start_thread("terrace-probe", [&reader, memory = buffers[i].data()] { reader(memory); });
      if (thread.ok())
        threads.push_back(std::move(*thread));
      else
        started = thread.error();
    }
    if (started.ok()) reader(buffers[0].data());
    for (std::thread& thread : threads) thread.join();
    TERRACE_RETURN_IF_ERROR(started);
  }
  place = next;
  if (failed == EINVAL) return 0.0;
  if (failed != 0)
    return Error(ErrorCode::kIo, fmt::format("{}: cannot be read to measure its disk: {}", region.path.string(),
                                             std::generic_category().message(failed)));
  return static_cast<double>(bytes) / seconds_since(begin);
}

}  // namespace

planner::DiskMeasurement DiskRates::best() const {
  planner::DiskMeasurement best;
  for (const DiskRate& rate : rates) {
    if (!rate.direct) best.buffered_bytes_per_second = std::max(best.buffered_bytes_per_second, rate.bytes_per_second);
    if (rate.direct && rate.depth == 1) best.direct_bytes_per_second = rate.bytes_per_second;
    if (!rate.direct || rate.bytes_per_second <= best.best_direct_bytes_per_second) continue;
    best.best_direct_bytes_per_second = rate.bytes_per_second;
    best.best_depth = rate.depth;
  }
  return best;
}

Result<DiskRates> measure_disk(const gguf::File& file, const manifest::ModelExperts& experts) {
  const Region region = region_of(file, experts);
  DiskRates result;
  result.read_bytes = region.read;
  std::uint64_t place = 0;
  std::uint32_t best_depth = 1;
  const Descriptor direct{::open(region.path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC)};
  double best = 0;
  for (const std::uint32_t depth : {1u, 2u, 4u, 8u, 16u}) {
    if (direct.get() < 0) break;  // tmpfs, some network file systems
    TERRACE_ASSIGN_OR_RETURN(const double rate, read_for_a_while(region, direct.get(), depth, place));
    if (rate == 0) break;
    result.rates.push_back({true, depth, rate});
    if (rate <= best) continue;
    best = rate;
    best_depth = depth;
  }
  const Descriptor buffered{::open(region.path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (buffered.get() < 0)
    return Error(ErrorCode::kIo, fmt::format("{}: cannot be opened to measure its disk: {}", region.path.string(),
                                             std::generic_category().message(errno)));
  TERRACE_ASSIGN_OR_RETURN(const double rate, read_for_a_while(region, buffered.get(), best_depth, place));
  result.rates.push_back({false, best_depth, rate});
  return result;
}

}  // namespace terrace::app
