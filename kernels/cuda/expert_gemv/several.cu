// Several matrices of K-types and the same few rows in one launch.
#include "kernels/cuda/expert_gemv/block_kernel.cuh"

namespace terrace::kernels::cuda {
namespace {

__device__ __forceinline__ void run_product(const GemvKernelArgs& args, TensorType type, std::uint32_t tile_number,
                                            std::uint8_t* shared) {
  const Tile tile{args, args.only, tile_number << args.plan.log_tile_rows, shared};
  switch (type) {
    case TensorType::kQ4_K:
      return run_blocks<Q4K>(args, tile);
    case TensorType::kQ5_K:
      return run_blocks<Q5K>(args, tile);
    case TensorType::kQ6_K:
      return run_blocks<Q6K>(args, tile);
    default:
      return;
  }
}

// Grid: the tiles of one product behind those of the other.
__global__ void __launch_bounds__(256) gemv_several(const __grid_constant__ GemvSeveralArgs args) {
  extern __shared__ __align__(16) std::uint8_t shared[];
  let_next_begin();
  std::uint32_t tile = blockIdx.x, product = 0;
  for (; product + 1 < args.n && tile >= args.products[product].plan.tiles; ++product)
    tile -= args.products[product].plan.tiles;
  run_product(args.products[product], args.types[product], tile, shared);
}

}  // namespace

void launch_gemv_several(const GemvSeveralArgs& args, CUstream_st* stream) {
  std::uint32_t tiles = 0, threads = 0, shared_bytes = 0;
  for (std::uint32_t i = 0; i < args.n; ++i) {
    const GemvPlan& plan = args.products[i].plan;
    tiles += plan.tiles;
    threads = threads > plan.threads ? threads : plan.threads;
    shared_bytes = shared_bytes > plan.shared_bytes ? shared_bytes : plan.shared_bytes;
  }
  cudaFuncSetAttribute(gemv_several, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  launch_overlapped(args.products[0].overlap, gemv_several, tiles, threads, shared_bytes, stream, args);
}

}  // namespace terrace::kernels::cuda
