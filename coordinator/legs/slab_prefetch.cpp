#include "coordinator/legs/slab_prefetch.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "common/threads/start.h"

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

Result<std::unique_ptr<SlabPrefetch>> SlabPrefetch::start(SlabLookup lookup,
                                                          const std::vector<kernels::ExpertKernels>& kernels,
                                                          std::uint32_t n_experts, std::uint64_t room) {
  std::unique_ptr<SlabPrefetch> prefetch(new SlabPrefetch(std::move(lookup), kernels, n_experts, room));
  TERRACE_ASSIGN_OR_RETURN(prefetch->thread_, start_thread("terrace-near", [p = prefetch.get()] { p->read_thread(); }));
  return prefetch;
}

SlabPrefetch::SlabPrefetch(SlabLookup lookup, const std::vector<kernels::ExpertKernels>& kernels,
                           std::uint32_t n_experts, std::uint64_t room)
    : lookup_(std::move(lookup)),
      shapes_(shapes_of(kernels)),
      n_experts_(n_experts),
      room_(room),
      in_memory_(shapes_.size() * n_experts),
      is_wanted_(in_memory_.size(), false) {}

SlabPrefetch::~SlabPrefetch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void SlabPrefetch::append_slab(std::vector<Piece>& pieces, std::size_t slab) const {
  const auto layer = static_cast<std::uint32_t>(slab / n_experts_);
  const kernels::ExpertShape& shape = shapes_[layer];
  const std::size_t first = pieces.size();
  const kernels::SlabView view = lookup_(layer, static_cast<std::uint16_t>(slab % n_experts_));
  for (std::span<const std::byte> part :
       {std::span(view.gate, shape.gate_bytes()), std::span(view.up, shape.up_bytes()),
        std::span(view.down, shape.down_bytes())})
    for (; !part.empty(); part = part.subspan(pieces.back().bytes.size()))
      pieces.push_back({part.first(std::min<std::uint64_t>(part.size(), kPieceBytes)), slab});
  pieces[first].first = true;
  pieces.back().last = true;
}

std::uint64_t SlabPrefetch::bytes_of(const std::vector<std::size_t>& slabs) const {
  std::uint64_t bytes = 0;
  for (const std::size_t slab : slabs) bytes += shapes_[slab / n_experts_].slab_bytes();
  return bytes;
}

std::vector<std::size_t> SlabPrefetch::wanted(const OwnerTable& planned, const OwnerTable& owners,
                                              const OwnerTable& if_lost) const {
  std::vector<std::size_t> all;
  // Of several lost nodes layer by layer, as the file has them, and not node by node: each slab that is there spares a
  // step the same read, whosever it was, and what was read of a suspect is there already.
  for (std::uint32_t layer = 0; layer < owners.n_layers(); ++layer)
    for (const std::uint16_t expert : owners.experts(0, layer))
      if (planned.owners(layer)[expert] != 0) all.push_back(index_of(layer, expert));
  std::uint64_t bytes = bytes_of(all);
  if (bytes > room_) return {};
  std::map<std::uint16_t, std::vector<std::size_t>> suspects;  // by leg
  for (std::uint32_t layer = 0; layer < if_lost.n_layers(); ++layer)
    for (const std::uint16_t expert : if_lost.experts(0, layer)) {
      const std::uint16_t leg = owners.owners(layer)[expert];
      if (planned.owners(layer)[expert] != 0 && leg != 0) suspects[leg].push_back(index_of(layer, expert));
    }
  // A further suspect takes nothing from one whose slabs are being read, or are there.
  for (const bool is_wanted : {true, false})
    for (const auto& [leg, slabs] : suspects) {
      if (is_wanted_[slabs.front()] != is_wanted || bytes + bytes_of(slabs) > room_) continue;
      all.insert(all.end(), slabs.begin(), slabs.end());
      bytes += bytes_of(slabs);
    }
  return all;
}

// The pages are the system's to take: nothing is given back.
void SlabPrefetch::drop_all_but(const std::vector<bool>& wanted) {
  for (std::size_t slab = 0; slab < wanted.size(); ++slab)
    if (!wanted[slab] && in_memory_[slab].exchange(false))
      bytes_dropped_.fetch_add(shapes_[slab / n_experts_].slab_bytes(), std::memory_order_relaxed);
}

void SlabPrefetch::want(const OwnerTable& planned, const OwnerTable& owners, const OwnerTable& if_lost) {
  const std::vector<std::size_t> slabs = wanted(planned, owners, if_lost);
  std::vector<bool> is_wanted(in_memory_.size(), false);
  for (const std::size_t slab : slabs) is_wanted[slab] = true;
  {
    const std::lock_guard lock(mutex_);
    if (is_wanted == is_wanted_) return;  // a suspect that is lost then, say
    drop_all_but(is_wanted);
    is_wanted_ = std::move(is_wanted);
    pieces_.clear();
    for (const std::size_t slab : slabs)
      if (!in_memory_[slab]) append_slab(pieces_, slab);
    ++order_;
  }
  changed_.notify_all();
}

void SlabPrefetch::read_thread() {
  std::uint64_t order = 0;
  std::size_t told = 0, done = 0;
  bool whole = false;  // all of the slab so far
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
    for (std::size_t i = told - done; i < next.size(); ++i) (void)advise(next[i].bytes, MADV_WILLNEED);
    // An older system does no more than the advice before. Where a page cannot be read, the step that needs it says so.
    const bool read = advise(next.front().bytes, kPopulateRead);
    lock.lock();
    if (read) bytes_read_.fetch_add(next.front().bytes.size(), std::memory_order_relaxed);
    if (order != order_) continue;
    whole = read && (whole || next.front().first);
    if (whole && next.front().last) in_memory_[next.front().slab].store(true, std::memory_order_release);
    told = done + next.size();
    ++done;
  }
}

}  // namespace terrace::legs
