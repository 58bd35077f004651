// The last product of a layer's experts: SILU(gate) * up of a pair is made and quantised by every thread block that
// meets it with a tile of weights. That is done several times over, but a launch of its own takes longer, and the tile
// arrives while gate and up are still computed.
#include "kernels/cuda/activations/quantize.cuh"
#include "kernels/cuda/expert_gemv/block_kernel.cuh"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;

// What lies behind the plan's shared memory: the row's values, then its card row.
struct MadeRow {
  float* values;  // [cols]
  std::uint8_t* row;
  CardRowLayout at;
};
template <class Type>
__device__ __forceinline__ MadeRow made_row(const GemvKernelArgs& args, std::uint8_t* shared) {
  std::uint8_t* const begin = shared + args.plan.shared_bytes;
  return {reinterpret_cast<float*>(begin), begin + round_up_to_16(args.cols * sizeof(float)),
          card_row_layout(Type::kValues, args.cols)};
}

// All threads; what was read of the row before has been read.
template <class Type>
__device__ __forceinline__ void make_row(const ExpertDownKernelArgs& args, std::uint32_t pair, const MadeRow& made) {
  const std::uint32_t cols = args.gemv.cols;
  const float* const gate = args.gate + std::size_t{pair} * cols;
  const float* const up = args.up + std::size_t{pair} * cols;
  bool finite = true;
  for (std::uint32_t i = threadIdx.x; i < cols; i += kThreads) {
    const float value = silu_exact(gate[i]) * up[i];
    made.values[i] = value;
    finite = finite && is_finite(value);
  }
  finite = __syncthreads_and(finite) != 0;
  if (!finite && threadIdx.x == 0) atomicMin(args.failures + args.failure_rows[pair], args.code);
  write_card_blocks<BlockLanes<Type::kValues>>(made.values, 0, cols / Type::kValues,
                                               reinterpret_cast<std::byte*>(made.row), cols);
}

// Grid: (tiles of a matrix, groups).
template <class Type>
__global__ void __launch_bounds__(kThreads) down_kernel(const ExpertDownKernelArgs args) {
  extern __shared__ __align__(16) std::uint8_t shared[];
  let_next_begin();
  const GemvKernelArgs& gemv = args.gemv;
  // Older than the kernel before this one, and not from a cache that may be older still.
  const uint4 words = __ldcg(reinterpret_cast<const uint4*>(gemv.groups + blockIdx.y));
  const GemvGroup group{reinterpret_cast<const std::byte*>(std::uint64_t{words.y} << 32 | words.x), words.z,
                        min(words.w, gemv.max_rows)};
  if (group.n == 0) return wait_for_previous();
  const Tile tile{gemv, group, blockIdx.x << gemv.plan.log_tile_rows, shared};
  const MadeRow made = made_row<Type>(gemv, shared);
  const CardRows x{made.row, 0, made.at.d, Type::kXSumValues == 16 ? made.at.sums16 : made.at.sums32};
  Copies copies(shared + gemv.plan.barrier_offset);
  tile.stage_weights(copies);
  copies.started();
  wait_for_previous();
  const std::uint32_t n_blocks = gemv.cols / Type::kValues;
  for (std::uint32_t j = 0; j < group.n; ++j) {
    make_row<Type>(args, group.first + j, made);
    if (j == 0) copies.wait();
    __syncthreads();
    for (std::uint32_t i = threadIdx.x; i < n_blocks << gemv.plan.log_tile_rows; i += kThreads) {
      const std::uint32_t r = i & (gemv.plan.tile_rows - 1), c = i >> gemv.plan.log_tile_rows;
      tile.chunk_value(c, 0, r) = Type::value(tile.weight_row<Type::kBlockBytes>(r) + c * Type::kBlockBytes, x, c);
    }
    __syncthreads();
    tile.add_chunks(j, n_blocks);
  }
}
static_assert(sizeof(GemvGroup) == sizeof(uint4), "a group is read in one load");

template <class Type>
void launch(const ExpertDownKernelArgs& args, CUstream_st* stream) {
  const std::uint32_t bytes = expert_down_shared_bytes(args.gemv);
  cudaFuncSetAttribute(down_kernel<Type>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  launch_overlapped(args.gemv.overlap, down_kernel<Type>, dim3(args.gemv.plan.tiles, args.gemv.n_groups), kThreads,
                    bytes, stream, args);
}

}  // namespace

std::uint32_t expert_down_shared_bytes(const GemvKernelArgs& args) {
  return args.plan.shared_bytes + round_up_to_16(args.cols * sizeof(float)) +
         card_row_layout(Q4K::kValues, args.cols).bytes;
}

void launch_expert_down(TensorType type, const ExpertDownKernelArgs& args, CUstream_st* stream) {
  switch (type) {
    case TensorType::kQ4_K:
      return launch<Q4K>(args, stream);
    case TensorType::kQ5_K:
      return launch<Q5K>(args, stream);
    case TensorType::kQ6_K:
      return launch<Q6K>(args, stream);
    default:
      return;
  }
}

}  // namespace terrace::kernels::cuda
