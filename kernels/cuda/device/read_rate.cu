#include "kernels/cuda/device/read_rate.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device/launch.h"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 512, kBlocksOfMultiprocessor = 4;
constexpr int kPasses = 6;  // the first only wakes the card

// `sink` is null: nothing is ever written, and the compiler does not know it.
__global__ void __launch_bounds__(kThreads) read_all(const uint4* memory, std::size_t n, std::uint32_t* sink) {
  std::uint32_t all = 0;
  const std::size_t step = std::size_t{gridDim.x} * kThreads;
#pragma unroll 8
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += step) {
    const uint4 value = __ldcs(memory + i);
    all ^= value.x ^ value.y ^ value.z ^ value.w;
  }
  if (sink != nullptr) atomicXor(sink, all);
}

}  // namespace

Result<double> measure_read_rate(const Card& card, std::span<const std::byte> memory) {
  const std::size_t n = memory.size() / sizeof(uint4);
  if (n == 0) return invalid_shape("a read of all memory", {{"bytes", memory.size()}});
  TERRACE_ASSIGN_OR_RETURN(const Stream stream, card.make_stream());
  TERRACE_ASSIGN_OR_RETURN(const Event begin, card.make_event());
  TERRACE_ASSIGN_OR_RETURN(const Event end, card.make_event());
  const std::uint32_t blocks = kBlocksOfMultiprocessor * card.info().multiprocessors;
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    TERRACE_RETURN_IF_ERROR(before_launch(stream));
    TERRACE_RETURN_IF_ERROR(stream.record(begin));
    read_all<<<blocks, kThreads, 0, stream.native()>>>(reinterpret_cast<const uint4*>(memory.data()), n, nullptr);
    TERRACE_RETURN_IF_ERROR(after_launch(stream, "a read of all memory", {{"bytes", memory.size()}}));
    TERRACE_RETURN_IF_ERROR(stream.record(end));
    TERRACE_RETURN_IF_ERROR(stream.synchronize());
    TERRACE_ASSIGN_OR_RETURN(const float milliseconds, end.milliseconds_since(begin));
    if (pass > 0) best = std::max(best, static_cast<double>(n * sizeof(uint4)) / (double{milliseconds} * 1e-3));
  }
  return best;
}

}  // namespace terrace::kernels::cuda
