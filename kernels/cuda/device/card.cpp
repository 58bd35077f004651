#include "kernels/cuda/device/card.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "common/base/units.h"
#include "kernels/cuda/device/driver.h"
#include "kernels/cuda/device/probe.h"

namespace terrace::kernels::cuda {
namespace {

Error no_card(cudaError_t error) {
  cudaGetLastError();
  if (error == cudaErrorInsufficientDriver)
    return Error(ErrorCode::kUnsupported, "no NVIDIA driver on this machine, or one older than this build's CUDA 13");
  return Error(ErrorCode::kUnsupported, fmt::format("no usable card: {}", cudaGetErrorString(error)));
}

Result<CardInfo> describe(int index) {
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, index); error != cudaSuccess)
    return no_card(error);
  CardInfo info;
  info.index = index;
  info.name = properties.name;
  info.compute_major = properties.major;
  info.compute_minor = properties.minor;
  info.multiprocessors = static_cast<std::uint32_t>(properties.multiProcessorCount);
  info.shared_bytes_per_block = static_cast<std::uint32_t>(properties.sharedMemPerBlockOptin);
  info.integrated = properties.integrated != 0;
  int ends_long_kernels = 0;
  TERRACE_RETURN_IF_ERROR(driver_status(info,
                                        cudaDeviceGetAttribute(&ends_long_kernels, cudaDevAttrKernelExecTimeout, index),
                                        "asking whether kernels are ended"));
  info.ends_long_kernels = ends_long_kernels != 0;
  TERRACE_RETURN_IF_ERROR(make_current(info));
  std::size_t free = 0, total = 0;
  TERRACE_RETURN_IF_ERROR(driver_status(info, cudaMemGetInfo(&free, &total), "asking for free memory"));
  info.free_bytes = free;
  info.total_bytes = total;
  return info;
}

std::uint64_t round_up(std::uint64_t bytes) {
  return (bytes + Card::kAlignment - 1) / Card::kAlignment * Card::kAlignment;
}

}  // namespace

Result<std::vector<CardInfo>> list_cards() {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) return no_card(error);
  std::vector<CardInfo> cards;
  for (int index = 0; index < count; ++index) {
    TERRACE_ASSIGN_OR_RETURN(CardInfo info, describe(index));
    cards.push_back(std::move(info));
  }
  return cards;
}

void PinnedBuffer::Free::operator()(std::byte* data) const { cudaFreeHost(data); }

Result<std::unique_ptr<Card>> Card::open(int index, std::uint64_t budget_bytes) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) return no_card(error);
  if (index < 0 || index >= count)
    return Error(ErrorCode::kNotFound, fmt::format("there is no card {}: this machine has {}", index, count));
  TERRACE_ASSIGN_OR_RETURN(CardInfo info, describe(index));
  if (!has_code_for_current_card())
    return Error(ErrorCode::kUnsupported,
                 fmt::format("card {} ({}) is of architecture {}{}, this build has kernels for {}: build it with "
                             "-DTERRACE_CUDA_ARCHITECTURES={}{}",
                             index, info.name, info.compute_major, info.compute_minor, TERRACE_CUDA_ARCHITECTURES,
                             info.compute_major, info.compute_minor));
  const std::uint64_t budget = budget_bytes / kAlignment * kAlignment;
  if (budget > info.free_bytes)
    return Error(
        ErrorCode::kOutOfMemory,
        fmt::format("card {} ({}): the budget is {}, {} of {} are free; ask for less or end what uses it", index,
                    info.name, format_size(budget), format_size(info.free_bytes), format_size(info.total_bytes)));
  void* memory = nullptr;
  TERRACE_RETURN_IF_ERROR(
      driver_status(info, cudaMalloc(&memory, budget), fmt::format("taking a budget of {}", format_size(budget))));
  return std::unique_ptr<Card>(new Card(std::move(info), static_cast<std::byte*>(memory), budget));
}

Card::Card(CardInfo info, std::byte* memory, std::uint64_t budget)
    : info_(std::move(info)), memory_(memory), budget_(budget) {}

Card::~Card() { cudaFree(memory_); }

Result<std::byte*> Card::take(std::uint64_t bytes, std::string_view what) {
  if (bytes > budget_ - used_)
    return Error(ErrorCode::kOutOfMemory,
                 fmt::format("card {} ({}): {} needs {}, {} of the budget of {} are left", info_.index, info_.name,
                             what, format_size(bytes), format_size(budget_ - used_), format_size(budget_)));
  std::byte* const taken = memory_ + used_;
  used_ = std::min(budget_, used_ + round_up(bytes));
  return taken;
}

void Card::release_to(std::uint64_t used) {
  TERRACE_CHECK(used <= used_, "more card memory given back than was taken");
  used_ = used;
}

Result<Stream> Card::make_stream() const {
  TERRACE_RETURN_IF_ERROR(make_current(info_));
  cudaStream_t stream = nullptr;
  TERRACE_RETURN_IF_ERROR(
      driver_status(info_, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream"));
  return Stream(info_, stream);
}

Result<Event> Card::make_event(unsigned flags) const {
  TERRACE_RETURN_IF_ERROR(make_current(info_));
  cudaEvent_t event = nullptr;
  TERRACE_RETURN_IF_ERROR(driver_status(info_, cudaEventCreateWithFlags(&event, flags), "making an event"));
  return Event(info_, event);
}

Result<Event> Card::make_event() const { return make_event(cudaEventDefault); }

Result<Event> Card::make_event_to_sleep_for() const {
  return make_event(cudaEventBlockingSync | cudaEventDisableTiming);
}

Result<PinnedBuffer> Card::make_pinned(std::size_t bytes) const {
  TERRACE_RETURN_IF_ERROR(make_current(info_));
  void* data = nullptr;
  TERRACE_RETURN_IF_ERROR(driver_status(info_, cudaHostAlloc(&data, bytes, cudaHostAllocMapped | cudaHostAllocPortable),
                                        fmt::format("pinning {} bytes of host memory", bytes)));
  return PinnedBuffer(static_cast<std::byte*>(data), bytes);
}

}  // namespace terrace::kernels::cuda
