// Bringing a tile of weight rows and the rows of x of one pass into shared memory, and adding chunk values in order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device/overlap.cuh"
#include "kernels/cuda/expert_gemv/kernel_args.h"
#include "kernels/cuda/portable.h"
#include "kernels/cuda/weights/card_rows.h"

namespace terrace::kernels::cuda {

// Copies to shared memory that a thread block starts and later waits for, by what the card has: from sm_90 on one
// instruction a row and an mbarrier that counts bytes, before that 16 bytes an instruction. Addresses and sizes are
// multiples of 16.
class Copies {
 public:
#if __CUDA_ARCH__ >= 900
  // `barrier`: eight bytes of shared memory. All threads call; it ends with a barrier of theirs.
  __device__ __forceinline__ explicit Copies(std::uint8_t* barrier) : barrier_(address(barrier)) {
    if (threadIdx.x == 0) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 32;" ::"r"(barrier_) : "memory");
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
  }
  // Row r of `n` goes to `to(r)` from `from(r)`, bytes(r) of it; n <= 32. Called by all threads, any number of times,
  // then started() once.
  template <class To, class From, class Bytes>
  __device__ __forceinline__ void rows(std::uint32_t n, To to, From from, Bytes bytes) {
    if (threadIdx.x >= n) return;
    const std::uint32_t size = bytes(threadIdx.x);
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier_), "r"(size) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     address(to(threadIdx.x))),
                 "l"(from(threadIdx.x)), "r"(size), "r"(barrier_)
                 : "memory");
  }
  __device__ __forceinline__ void started() {
    if (threadIdx.x < 32) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier_) : "memory");
  }
  // Until what was started before the last started() has arrived; others see it after a barrier.
  __device__ __forceinline__ void wait() {
    std::uint32_t done = 0;
    while (done == 0)
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                   : "=r"(done)
                   : "r"(barrier_), "r"(parity_)
                   : "memory");
    parity_ ^= 1;
  }

 private:
  static __device__ __forceinline__ std::uint32_t address(const void* shared) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  }
  std::uint32_t barrier_;
  std::uint32_t parity_ = 0;
#else
  __device__ __forceinline__ explicit Copies(std::uint8_t*) {}
  template <class To, class From, class Bytes>
  __device__ __forceinline__ void rows(std::uint32_t n, To to, From from, Bytes bytes) {
    for (std::uint32_t r = threadIdx.x / 32; r < n; r += blockDim.x / 32)
      for (std::uint32_t at = threadIdx.x % 32 * 16; at < bytes(r); at += 32 * 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                         static_cast<std::uint32_t>(__cvta_generic_to_shared(to(r) + at))),
                     "l"(from(r) + at)
                     : "memory");
  }
  __device__ __forceinline__ void started() {}
  __device__ __forceinline__ void wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#endif
};

// Where staged row r of the tile begins: rows keep their place within 16 bytes.
__device__ __forceinline__ std::uint32_t row_shift(std::uint32_t row, std::uint32_t row_bytes) {
  return row * row_bytes & 15;
}

// One thread block's work: a tile of a group's matrix.
struct Tile {
  const GemvKernelArgs& args;
  const GemvGroup& group;
  std::uint32_t first_row;  // of the tile
  std::uint8_t* shared;

  __device__ __forceinline__ const GemvPlan& plan() const { return args.plan; }

  // Copies of the tile's rows that the matrix has: from the multiple of 16 bytes before a row to the one behind it.
  __device__ __forceinline__ void stage_weights(Copies& copies) const {
    const auto shift = [&](std::uint32_t r) { return row_shift(first_row + r, plan().w_row_bytes); };
    copies.rows(
        min(plan().tile_rows, args.weight_rows - first_row),
        [&](std::uint32_t r) { return shared + r * plan().w_stride; },
        [&](std::uint32_t r) {
          return group.w + static_cast<std::uint64_t>(first_row + r) * plan().w_row_bytes - shift(r);
        },
        [&](std::uint32_t r) { return (shift(r) + plan().w_row_bytes + 15) & ~15u; });
  }

  // Copies of the rows of x of the pass that begins with row `first` of the group. What lies at rows behind the group's
  // last is anything; their results are not written.
  __device__ __forceinline__ void stage_x(Copies& copies, std::uint32_t first, std::uint32_t buffer) const {
    copies.rows(
        min(plan().pass_rows, group.n - first), [&](std::uint32_t j) { return x_buffer(buffer) + j * plan().x_stride; },
        [&](std::uint32_t j) {
          const std::uint32_t index = group.first + first + j;
          const std::uint64_t row = args.x_rows != nullptr ? args.x_rows[index] : index;
          return args.x + row * args.x_stride;
        },
        [&](std::uint32_t) { return plan().x_row_bytes; });
    copies.started();
  }
  __device__ __forceinline__ std::uint8_t* x_buffer(std::uint32_t buffer) const {
    return shared + plan().x_offset + buffer * plan().pass_rows * plan().x_stride;
  }

  // Weight row r of the tile, staged; kAlignment divides the bytes of a row.
  template <int kAlignment>
  __device__ __forceinline__ const std::uint8_t* weight_row(std::uint32_t r) const {
    const std::uint32_t shift = kAlignment % 16 == 0 ? 0 : row_shift(first_row + r, plan().w_row_bytes);
    return shared + r * plan().w_stride + shift;
  }
  // Chunk value of block c, row j of the pass, weight row r of the tile.
  __device__ __forceinline__ float& chunk_value(std::uint32_t c, std::uint32_t j, std::uint32_t r) const {
    return reinterpret_cast<float*>(shared + plan().v_offset)[(c * plan().pass_rows + j) * plan().v_stride + r];
  }

  // The ordered add of the contract, a thread to a result.
  __device__ __forceinline__ void add_chunks(std::uint32_t first, std::uint32_t n_blocks) const {
    for (std::uint32_t i = threadIdx.x; i < plan().pass_rows << plan().log_tile_rows; i += blockDim.x) {
      const std::uint32_t r = i & (plan().tile_rows - 1), j = i >> plan().log_tile_rows;
      if (first + j >= group.n || first_row + r >= args.weight_rows) continue;
      float sum = 0.0f;
#pragma unroll 4
      for (std::uint32_t c = 0; c < n_blocks; ++c) sum = sum + chunk_value(c, j, r);
      write(first + j, r, sum);
    }
  }
  __device__ __forceinline__ void write(std::uint32_t row, std::uint32_t r, float sum) const {
    args.y[(group.first + row) * args.y_stride + first_row + r] = sum;
  }

  // All passes: `compute(first, buffer)` runs over staged rows; afterwards no thread may read them.
  template <class Compute>
  __device__ __forceinline__ void run(Compute compute) const {
    Copies copies(shared + plan().barrier_offset);
    stage_weights(copies);
    if (args.groups == nullptr) wait_for_previous();  // else group_of_block() has waited
    stage_x(copies, 0, 0);
    std::uint32_t buffer = 0;
    for (std::uint32_t first = 0; first < group.n; first += plan().pass_rows) {
      copies.wait();
      __syncthreads();
      const std::uint32_t next = first + plan().pass_rows;
      const bool ahead = plan().x_buffers == 2 && next < group.n;
      if (ahead) stage_x(copies, next, buffer ^ 1);
      compute(first, buffer);
      if (ahead) {
        buffer ^= 1;
      } else if (next < group.n) {
        __syncthreads();
        stage_x(copies, next, 0);
      }
    }
  }
};

// The block's group, with no more rows than were announced. The kernel's first call. Where groups lie on the card the
// next kernel begins only when they are there: it may read them before it waits (expert_down.cu).
__device__ __forceinline__ GemvGroup group_of_block(const GemvKernelArgs& args) {
  if (args.groups != nullptr) wait_for_previous();
  let_next_begin();
  GemvGroup group = args.groups != nullptr ? args.groups[blockIdx.y] : args.only;
  group.n = min(group.n, args.max_rows);
  return group;
}

template <class Kernel>
void launch_with_shared(Kernel kernel, const GemvKernelArgs& args, CUstream_st* stream) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(args.plan.shared_bytes));
  launch_overlapped(args.overlap, kernel, dim3(args.plan.tiles, args.n_groups), args.plan.threads,
                    args.plan.shared_bytes, stream, args);
}

}  // namespace terrace::kernels::cuda
