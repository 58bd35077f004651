#include "coordinator/legs/slab_prefetch.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace terrace::legs {
namespace {

// What is read between two looks at whether it is still wanted.
constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;
// Pieces that the disk is told of before they are waited for: a queue deep enough for any drive.
constexpr std::size_t kAhead = 8;

// Linux 5.14; libraries may be older than the system.
constexpr int kPopulateRead = 22;

// Advice for the pages that the bytes lie in. True: it was taken.
bool advise(std::span<const std::byte> bytes, int advice) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t first = begin / page * page;
  while (::madvise(reinterpret_cast<void*>(first), begin - first + bytes.size(), advice) != 0)
    if (errno != EINTR && errno != EAGAIN) return false;
  return true;
}

std::vector<kernels::ExpertShape> shapes_of(const std::vector<kernels::ExpertKernels>& kernels) {
  std::vector<kernels::ExpertShape> shapes;
  for (const kernels::ExpertKernels& layer : kernels) shapes.push_back(layer.shape);
  return shapes;
}

}  // namespace

SlabPrefetch::SlabPrefetch(SlabLookup lookup, const std::vector<kernels::ExpertKernels>& kernels, std::uint64_t room)
    : lookup_(std::move(lookup)), shapes_(shapes_of(kernels)), room_(room) {
  thread_ = std::thread([this] { read_thread(); });
}

SlabPrefetch::~SlabPrefetch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void SlabPrefetch::append(std::vector<Piece>& pieces, const std::byte* part, std::uint64_t bytes) const {
  while (bytes > 0) {
    const std::uint64_t size = std::min(bytes, kPieceBytes);
    pieces.emplace_back(part, size);
    part += size;
    bytes -= size;
  }
}

void SlabPrefetch::want(const OwnerTable& planned, const OwnerTable& now) {
  std::vector<Piece> pieces;
  std::uint64_t bytes = 0;
  for (std::uint32_t layer = 0; layer < now.n_layers(); ++layer) {
    const kernels::ExpertShape& shape = shapes_[layer];
    for (const std::uint16_t expert : now.experts(0, layer)) {
      if (planned.owners(layer)[expert] == 0) continue;
      const kernels::SlabView slab = lookup_(layer, expert);
      append(pieces, slab.gate, shape.gate_bytes());
      append(pieces, slab.up, shape.up_bytes());
      append(pieces, slab.down, shape.down_bytes());
      bytes += shape.slab_bytes();
    }
  }
  if (bytes > room_) pieces.clear();
  {
    const std::lock_guard lock(mutex_);
    pieces_ = std::move(pieces);
    ++order_;
  }
  changed_.notify_all();
}

void SlabPrefetch::read_thread() {
  std::uint64_t order = 0;
  std::size_t told = 0, done = 0;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (order != order_) {
      order = order_;
      told = done = 0;
    }
    if (done == pieces_.size()) {
      changed_.wait(lock, [&] { return stopping_ || order != order_; });
      continue;
    }
    const std::vector<Piece> next(
        pieces_.begin() + static_cast<std::ptrdiff_t>(done),
        pieces_.begin() + static_cast<std::ptrdiff_t>(std::min(done + kAhead, pieces_.size())));
    lock.unlock();
    for (std::size_t i = told - done; i < next.size(); ++i) (void)advise(next[i], MADV_WILLNEED);
    // An older system does no more than the advice before. Where a page cannot be read, the step that needs it says so.
    if (advise(next.front(), kPopulateRead)) bytes_read_.fetch_add(next.front().size(), std::memory_order_relaxed);
    lock.lock();
    told = done + next.size();
    ++done;
  }
}

}  // namespace terrace::legs
