#include "coordinator/legs/backstop.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/check.h"
#include "common/base/time.h"
#include "common/threads/start.h"

namespace terrace::legs {
namespace {

using DiskClock = std::chrono::steady_clock;

constexpr std::uint32_t kLeastSlots = 4;
// What is read at load to learn the rate: enough for a disk to come to speed, too little to be noticed.
constexpr std::uint64_t kMeasuredBytes = std::uint64_t{64} << 20;
constexpr std::chrono::milliseconds kMeasuredTime{200};
// Of a new measurement in the running mean: some twenty slabs back nothing is left.
constexpr double kNewestRead = 0.2;

}  // namespace

std::uint32_t backstop_slots(std::uint32_t top_k) { return std::max(top_k, kLeastSlots); }

std::uint64_t backstop_bytes(const manifest::ModelExperts& experts) {
  return backstop_slots(experts.top_k) * std::uint64_t{slab_slot_bytes(experts)} + SlabReader::kAlignment;
}

Result<std::unique_ptr<Backstop>> Backstop::open(BackstopParts parts) {
  const std::size_t slot_bytes = parts.reader->slot_bytes();
  TERRACE_ASSIGN_OR_RETURN(AlignedBuffer ring,
                           AlignedBuffer::allocate(backstop_slots(parts.top_k) * slot_bytes + SlabReader::kAlignment));
  ring.touch();
  TERRACE_ASSIGN_OR_RETURN(transport::EventFd slab_came, transport::EventFd::create());
  std::unique_ptr<Backstop> backstop(new Backstop(std::move(parts), std::move(ring), std::move(slab_came)));
  TERRACE_RETURN_IF_ERROR(backstop->measure());
  backstop->describe_ = backstop->parts_.reader->describe();
  backstop->parts_.reader->use_page_cache();
  if (backstop->parts_.read_ahead) {
    TERRACE_ASSIGN_OR_RETURN(backstop->thread_,
                             start_thread("terrace-disk", [b = backstop.get()] { b->read_thread(); }));
  }
  return backstop;
}

Backstop::Backstop(BackstopParts parts, AlignedBuffer ring, transport::EventFd slab_came)
    : parts_(std::move(parts)),
      executor_(parts_.parallel, parts_.ops),
      ring_(std::move(ring)),
      slots_(backstop_slots(parts_.top_k)),
      slab_came_(std::move(slab_came)) {
  const auto begin = reinterpret_cast<std::uintptr_t>(ring_.data());
  std::byte* at = ring_.data() + (SlabReader::kAlignment - begin % SlabReader::kAlignment) % SlabReader::kAlignment;
  for (Slot& slot : slots_) {
    slot.memory = {at, parts_.reader->slot_bytes()};
    at += slot.memory.size();
  }
  groups_.reserve(parts_.n_experts);
}

Backstop::~Backstop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  queued_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// Experts of the first layer that has any, one after the other.
Status Backstop::measure() {
  const auto layer = std::find_if(parts_.kernels.begin(), parts_.kernels.end(),
                                  [](const kernels::ExpertKernels& k) { return k.shape.slab_bytes() > 0; });
  if (layer == parts_.kernels.end()) return {};
  const auto start = DiskClock::now();
  std::uint64_t bytes = 0;
  for (std::uint32_t expert = 0; expert < parts_.n_experts; ++expert) {
    TERRACE_ASSIGN_OR_RETURN(const kernels::SlabView read,
                             parts_.reader->read(static_cast<std::uint32_t>(layer - parts_.kernels.begin()),
                                                 static_cast<std::uint16_t>(expert), slots_[0].memory));
    (void)read;
    bytes += layer->shape.slab_bytes();
    if (bytes >= kMeasuredBytes || DiskClock::now() - start >= kMeasuredTime) break;
  }
  note_rate(bytes, seconds_since(start));
  return {};
}

void Backstop::note_rate(std::uint64_t bytes, double seconds) {
  const double rate = static_cast<double>(bytes) / std::max(seconds, 1e-9);
  const double before = bytes_per_second();
  bytes_per_second_.store(before == 0 ? rate : before + kNewestRead * (rate - before), std::memory_order_relaxed);
}

void Backstop::begin(const Work& work) {
  TERRACE_CHECK(!work_, "the backstop has one work at a time");
  TERRACE_CHECK(!work.pairs.empty() && work.layer < parts_.kernels.size(), "a work without pairs, or of no layer");
  work_ = work;
  groups_.clear();
  next_queued_ = next_computed_ = 0;
  for (std::size_t i = 0; i < work.pairs.size(); ++i) {
    if (i == 0 || work.pairs[i].expert != work.pairs[i - 1].expert) {
      groups_.push_back({.first = i});
      if (parts_.in_memory) groups_.back().there = parts_.in_memory(work.layer, work.pairs[i].expert);
    }
    ++groups_.back().count;
  }
  // The others are read meanwhile.
  const auto to_read =
      std::partition(groups_.begin(), groups_.end(), [](const Group& g) { return g.there.has_value(); });
  next_queued_ = static_cast<std::size_t>(to_read - groups_.begin());
  queue_reads();
}

void Backstop::queue_reads() {
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t slot = 0; slot < slots_.size() && next_queued_ < groups_.size(); ++slot) {
      if (slots_[slot].state != SlotState::kFree) continue;
      Group& group = groups_[next_queued_++];
      group.slot = slot;
      slots_[slot].state = SlotState::kQueued;
      slots_[slot].layer = work_->layer;
      slots_[slot].expert = work_->pairs[group.first].expert;
      slots_[slot].order = next_order_++;
      slots_[slot].error.reset();
    }
  }
  queued_.notify_one();
}

// The slot is kReading: its memory is ours, the rest of it not.
void Backstop::read(Slot& slot) {
  const auto start = DiskClock::now();
  auto view = parts_.reader->read(slot.layer, slot.expert, slot.memory);
  if (view.ok()) {
    const std::uint64_t bytes = parts_.kernels[slot.layer].shape.slab_bytes();
    note_rate(bytes, seconds_since(start));
    bytes_read_.fetch_add(bytes, std::memory_order_relaxed);
  }
  const std::lock_guard lock(mutex_);
  if (slot.state == SlotState::kDropped) {
    slot.state = SlotState::kFree;
  } else if (view.ok()) {
    slot.view = *view;
    slot.state = SlotState::kReady;
  } else {
    slot.error = view.error();
    slot.state = SlotState::kFailed;
  }
  slab_came_.signal();
}

void Backstop::read_thread() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    Slot* next = nullptr;
    for (Slot& slot : slots_)
      if (slot.state == SlotState::kQueued && (next == nullptr || slot.order < next->order)) next = &slot;
    if (next == nullptr) {
      queued_.wait(lock);
      continue;
    }
    next->state = SlotState::kReading;
    lock.unlock();
    read(*next);
    lock.lock();
  }
}

kernels::BatchView Backstop::view_of(const Group& group) const {
  return {work_->gate_rows, work_->up_rows, work_->n_rows, work_->pairs.subspan(group.first, group.count)};
}

Result<Backstop::Progress> Backstop::advance_with(
    FunctionRef<Status(const Group& group, const kernels::SlabView& slab)> compute) {
  TERRACE_CHECK(work_.has_value(), "advance() of no work");
  if (next_computed_ == next_queued_) {  // every slot was still being read for a work that was given up
    queue_reads();
    if (next_computed_ == next_queued_) {
      const std::lock_guard lock(mutex_);
      slab_came_.clear();
      return Progress::kWaiting;
    }
  }
  const Group& group = groups_[next_computed_];
  if (group.there) return after(compute(group, *group.there));
  Slot& slot = slots_[group.slot];
  if (!parts_.read_ahead) {
    {
      const std::lock_guard lock(mutex_);
      slot.state = SlotState::kReading;
    }
    read(slot);
  }
  Status status;
  {
    const std::lock_guard lock(mutex_);
    slab_came_.clear();
    if (slot.state == SlotState::kFailed)
      status = *slot.error;
    else if (slot.state != SlotState::kReady)
      return Progress::kWaiting;
  }
  if (status.ok()) status = compute(group, slot.view);
  if (status.ok()) {
    const std::lock_guard lock(mutex_);
    slot.state = SlotState::kFree;
  }
  return after(status);
}

// The next expert's pairs.
Result<Backstop::Progress> Backstop::after(const Status& computed) {
  if (!computed.ok()) {
    end();
    return computed.error();
  }
  if (++next_computed_ == groups_.size()) {
    work_.reset();
    return Progress::kDone;
  }
  if (next_queued_ < groups_.size()) queue_reads();
  return Progress::kComputed;
}

Result<Backstop::Progress> Backstop::advance(kernels::SumsView sums, std::span<std::uint8_t> failed,
                                             kernels::Executor::BetweenSlices between_slices) {
  return advance_with([&](const Group& group, const kernels::SlabView& slab) -> Status {
    const auto slab_of = [&](std::uint16_t) { return slab; };
    const auto stats =
        executor_.run(parts_.kernels[work_->layer], slab_of, view_of(group), sums, failed, between_slices);
    return stats.ok() ? Status() : Status(stats.error());
  });
}

void Backstop::end() {
  if (!work_) return;
  work_.reset();
  const std::lock_guard lock(mutex_);
  for (Slot& slot : slots_) {
    if (slot.state == SlotState::kReading)
      slot.state = SlotState::kDropped;
    else if (slot.state != SlotState::kDropped)
      slot.state = SlotState::kFree;
  }
}

Status Backstop::run_with(const Work& work,
                          FunctionRef<Status(const Group& group, const kernels::SlabView& slab)> compute) {
  begin(work);
  for (;;) {
    TERRACE_ASSIGN_OR_RETURN(const Progress progress, advance_with(compute));
    if (progress == Progress::kDone) return {};
    if (progress == Progress::kComputed) continue;
    pollfd entry{wait_fd(), POLLIN, 0};
    (void)::poll(&entry, 1, -1);
  }
}

Status Backstop::run(const Work& work, kernels::SumsView sums, std::span<std::uint8_t> failed) {
  return run_with(work, [&](const Group& group, const kernels::SlabView& slab) -> Status {
    const auto slab_of = [&](std::uint16_t) { return slab; };
    const auto stats =
        executor_.run(parts_.kernels[work_->layer], slab_of, view_of(group), sums, failed, [] { return true; });
    return stats.ok() ? Status() : Status(stats.error());
  });
}

Status Backstop::run_slots(const Work& work, std::span<float> out, std::span<std::uint8_t> failed) {
  return run_with(work, [&](const Group& group, const kernels::SlabView& slab) -> Status {
    const auto slab_of = [&](std::uint16_t) { return slab; };
    const kernels::ExpertKernels& layer = parts_.kernels[work_->layer];
    const std::size_t width = layer.shape.d_model;
    const auto stats =
        executor_.run_slots(layer, slab_of, view_of(group), out.subspan(group.first * width, group.count * width),
                            failed, [] { return true; });
    return stats.ok() ? Status() : Status(stats.error());
  });
}

}  // namespace terrace::legs
