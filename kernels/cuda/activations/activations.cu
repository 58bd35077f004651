#include "kernels/cuda/activations/activations.h"

#include "kernels/cpu/activations/block.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/exact_math.h"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;

__device__ std::uint32_t pack(const float (&x)[4], float inverse) {
  std::uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float q = fminf(fmaxf(rintf(x[i] * inverse), -127.0f), 127.0f);
    word |= (static_cast<std::uint32_t>(static_cast<std::int32_t>(q)) & 0xff) << 8 * i;
  }
  return word;
}

// Lanes in groups of kValues / (4 * kWords) take a block together, kWords words of four values each.
template <int kValues, int kWords>
__global__ void quantize(const QuantizeArgs args) {
  constexpr int kLanesPerBlock = kValues / (4 * kWords);
  constexpr std::uint32_t kBlockWords = kValues / 4 + 1;
  const std::uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  const std::uint32_t block = thread / kLanesPerBlock, lane = thread % kLanesPerBlock;
  const bool valid = block < args.cols / kValues;
  const float* x = args.x + blockIdx.y * args.x_stride + block * kValues;
  float values[kWords][4];
  float amax = 0.0f;
#pragma unroll
  for (int w = 0; w < kWords; ++w)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      values[w][i] = valid ? x[4 * (lane + kLanesPerBlock * w) + i] : 0.0f;
      amax = fmaxf(amax, fabsf(values[w][i]));
    }
#pragma unroll
  for (int apart = 1; apart < kLanesPerBlock; apart *= 2) amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, apart));
  if (!valid) return;
  const bool zero = amax < kSmallestAmax;
  const float inverse = zero ? 0.0f : 127.0f / amax;
  auto* out = reinterpret_cast<std::uint32_t*>(args.out + blockIdx.y * args.out_stride) + block * kBlockWords;
  if (lane == 0) out[0] = __float_as_uint(zero ? 0.0f : amax / 127.0f);
#pragma unroll
  for (int w = 0; w < kWords; ++w) out[1 + lane + kLanesPerBlock * w] = zero ? 0u : pack(values[w], inverse);
}

__global__ void copy_rows(const QuantizeArgs args) {
  const std::uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i < args.cols)
    reinterpret_cast<float*>(args.out + blockIdx.y * args.out_stride)[i] = args.x[blockIdx.y * args.x_stride + i];
}

}  // namespace

Status quantize_rows(const Stream& stream, const QuantizeArgs& args) {
  if (args.n_rows == 0 || args.n_rows > kMaxGridRows || args.cols == 0 ||
      args.cols % block_values(args.activation) != 0)
    return invalid_shape("quantising rows", {{"rows", args.n_rows}, {"cols", args.cols}});
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  const auto grid = [&](std::uint32_t threads) { return dim3(divide_up(threads, kThreads), args.n_rows); };
  switch (args.activation) {
    case ActivationClass::kA8x32:
      quantize<32, 1><<<grid(args.cols / 4), kThreads, 0, stream.native()>>>(args);
      break;
    case ActivationClass::kA8x256:
      quantize<256, 2><<<grid(args.cols / 8), kThreads, 0, stream.native()>>>(args);
      break;
    case ActivationClass::kF32:
      copy_rows<<<grid(args.cols), kThreads, 0, stream.native()>>>(args);
      break;
  }
  return after_launch(stream, "quantising rows", {{"rows", args.n_rows}, {"cols", args.cols}});
}

}  // namespace terrace::kernels::cuda
