// Where words come from (quantised here, or rows from elsewhere) and what form they go to are two choices of two.
#include "kernels/cuda/activations/quantize.cuh"

#include "kernels/cuda/activations/activations.h"
#include "kernels/cuda/device/launch.h"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;

template <class S>
__device__ LaneWords<S> read_wire(const std::byte* row, std::uint32_t block, std::uint32_t lane, bool valid) {
  LaneWords<S> words{};
  if (!valid) return words;
  const auto* from = reinterpret_cast<const std::uint32_t*>(row) + block * (S::kValues / 4 + 1);
  words.d = __uint_as_float(from[0]);
#pragma unroll
  for (int w = 0; w < S::kWords; ++w) words.word[w] = from[1 + lane + S::kLanesOfBlock * w];
  return words;
}

template <class S>
__device__ void write_wire(const LaneWords<S>& words, std::byte* row, std::uint32_t block, std::uint32_t lane) {
  auto* to = reinterpret_cast<std::uint32_t*>(row) + block * (S::kValues / 4 + 1);
  if (lane == 0) to[0] = __float_as_uint(words.d);
#pragma unroll
  for (int w = 0; w < S::kWords; ++w) to[1 + lane + S::kLanesOfBlock * w] = words.word[w];
}

struct Place {
  std::uint32_t block, lane;
  bool valid;
};
template <class S>
__device__ Place place(std::uint32_t cols) {
  const std::uint32_t thread = blockIdx.x * kThreads + threadIdx.x, block = thread / S::kLanesOfBlock;
  return {block, thread % S::kLanesOfBlock, block < cols / S::kValues};
}

template <class S, bool kCardForm>
__global__ void quantize_kernel(const QuantizeArgs args) {
  const Place p = place<S>(args.cols);
  const float* x = args.x + blockIdx.y * args.x_stride + p.block * S::kValues;
  const LaneWords<S> words = quantize<S>(x, p.lane, p.valid);
  std::byte* row = args.out + blockIdx.y * args.out_stride;
  if constexpr (kCardForm) {
    write_card<S>(words, row, args.cols, p.block, p.lane, p.valid);
  } else if (p.valid) {
    write_wire<S>(words, row, p.block, p.lane);
  }
}

template <class S>
__global__ void card_rows_kernel(const CardRowsArgs args) {
  const Place p = place<S>(args.cols);
  const LaneWords<S> words = read_wire<S>(args.rows + blockIdx.y * args.row_stride, p.block, p.lane, p.valid);
  write_card<S>(words, args.out + blockIdx.y * args.out_stride, args.cols, p.block, p.lane, p.valid);
}

__global__ void copy_rows(const std::byte* from, std::size_t from_stride, std::uint32_t cols, std::byte* to,
                          std::size_t to_stride) {
  const std::uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= cols) return;
  reinterpret_cast<float*>(to + blockIdx.y * to_stride)[i] =
      reinterpret_cast<const float*>(from + blockIdx.y * from_stride)[i];
}

bool is_possible(ActivationClass activation, std::uint32_t n_rows, std::uint32_t cols) {
  return n_rows > 0 && n_rows <= kMaxGridRows && cols > 0 && cols % block_values(activation) == 0;
}

template <bool kCardForm>
Status launch_quantize(const Stream& stream, const QuantizeArgs& args) {
  const std::initializer_list<LaunchSize> sizes = {{"rows", args.n_rows}, {"cols", args.cols}};
  if (!is_possible(args.activation, args.n_rows, args.cols)) return invalid_shape("quantising rows", sizes);
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  const auto grid = [&](std::uint32_t threads) { return dim3(divide_up(threads, kThreads), args.n_rows); };
  switch (args.activation) {
    case ActivationClass::kA8x32:
      quantize_kernel<BlockLanes<32>, kCardForm><<<grid(args.cols / 4), kThreads, 0, stream.native()>>>(args);
      break;
    case ActivationClass::kA8x256:
      quantize_kernel<BlockLanes<256>, kCardForm><<<grid(args.cols / 8), kThreads, 0, stream.native()>>>(args);
      break;
    case ActivationClass::kF32:
      copy_rows<<<grid(args.cols), kThreads, 0, stream.native()>>>(reinterpret_cast<const std::byte*>(args.x),
                                                                   args.x_stride * sizeof(float), args.cols, args.out,
                                                                   args.out_stride);
      break;
  }
  return after_launch(stream, "quantising rows", sizes);
}

}  // namespace

Status quantize_rows(const Stream& stream, const QuantizeArgs& args) { return launch_quantize<false>(stream, args); }
Status quantize_card_rows(const Stream& stream, const QuantizeArgs& args) {
  return launch_quantize<true>(stream, args);
}

Status make_card_rows(const Stream& stream, const CardRowsArgs& args) {
  const std::initializer_list<LaunchSize> sizes = {{"rows", args.n_rows}, {"cols", args.cols}};
  if (!is_possible(args.activation, args.n_rows, args.cols)) return invalid_shape("card rows", sizes);
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  const auto grid = [&](std::uint32_t threads) { return dim3(divide_up(threads, kThreads), args.n_rows); };
  switch (args.activation) {
    case ActivationClass::kA8x32:
      card_rows_kernel<BlockLanes<32>><<<grid(args.cols / 4), kThreads, 0, stream.native()>>>(args);
      break;
    case ActivationClass::kA8x256:
      card_rows_kernel<BlockLanes<256>><<<grid(args.cols / 8), kThreads, 0, stream.native()>>>(args);
      break;
    case ActivationClass::kF32:
      copy_rows<<<grid(args.cols), kThreads, 0, stream.native()>>>(args.rows, args.row_stride, args.cols, args.out,
                                                                   args.out_stride);
      break;
  }
  return after_launch(stream, "card rows", sizes);
}

}  // namespace terrace::kernels::cuda
