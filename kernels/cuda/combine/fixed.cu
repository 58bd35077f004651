#include "kernels/cuda/combine/fixed.cuh"

#include "kernels/cuda/combine/combine.h"
#include "kernels/cuda/device/launch.h"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;

__global__ void add_fixed_kernel(const AddFixedArgs args) {
  const std::uint32_t i = blockIdx.x * kThreads + threadIdx.x, row = blockIdx.y;
  if (i >= args.n) return;
  const ToFixed to_fixed(args.shift);
  std::int64_t sum = 0;
  bool good = true;
  for (std::uint32_t s = 0; s < args.n_slots; ++s) {
    const std::int32_t slot = args.slots[row * args.n_slots + s];
    if (slot < 0) continue;
    const float t =
        args.weights[row * args.n_slots + s] * args.out[static_cast<std::size_t>(slot) * args.out_stride + i];
    good = good && to_fixed.takes(t);
    sum += to_fixed(t);
  }
  if (!good) args.failed[row] = 1;
  args.sums[std::size_t{row} * args.n + i] += sum;
}

__global__ void from_fixed_kernel(const FromFixedArgs args) {
  const std::uint32_t i = blockIdx.x * kThreads + threadIdx.x, row = blockIdx.y;
  if (i >= args.n) return;
  const std::int64_t sum = args.sums[std::size_t{row} * args.n + i];
  if (!is_total(sum)) args.failed[row] = 1;
  const float value = from_fixed_value(sum, args.shift);
  float& x = args.x[std::size_t{row} * args.n + i];
  x = args.add ? x + value : value;
}

bool is_possible(std::uint32_t n_rows, std::uint32_t n, int shift) {
  return n_rows > 0 && n_rows <= kMaxGridRows && n > 0 && shift >= kMinShift && shift <= kMaxShift;
}

}  // namespace

Status add_fixed(const Stream& stream, const AddFixedArgs& args) {
  const std::initializer_list<LaunchSize> sizes = {{"rows", args.n_rows},
                                                   {"values", args.n},
                                                   {"slots", args.n_slots},
                                                   {"shift", static_cast<std::uint64_t>(args.shift)}};
  if (!is_possible(args.n_rows, args.n, args.shift)) return invalid_shape("the sum over experts", sizes);
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  add_fixed_kernel<<<dim3(divide_up(args.n, kThreads), args.n_rows), kThreads, 0, stream.native()>>>(args);
  return after_launch(stream, "the sum over experts", sizes);
}

Status from_fixed(const Stream& stream, const FromFixedArgs& args) {
  const std::initializer_list<LaunchSize> sizes = {
      {"rows", args.n_rows}, {"values", args.n}, {"shift", static_cast<std::uint64_t>(args.shift)}};
  if (!is_possible(args.n_rows, args.n, args.shift)) return invalid_shape("integer sums to floats", sizes);
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  from_fixed_kernel<<<dim3(divide_up(args.n, kThreads), args.n_rows), kThreads, 0, stream.native()>>>(args);
  return after_launch(stream, "integer sums to floats", sizes);
}

}  // namespace terrace::kernels::cuda
