// Many rows of x and K-types: what a GEMV unpacks for each eight rows anew is unpacked once for `columns` of them.
//
// A warp takes 16 weight rows. It takes a block of 256 values apart in registers (planes.cuh) and multiplies it with
// rows of x on the int8 tensor cores (eight at a time, or on sm_90a 32, together with the other warps of its warp
// group: about as fast there, for the rest of the kernel is what takes time); the block's chunk values are added to f32
// sums that stay in registers, block after block: the contract's order. Weights and rows of x arrive in shared memory
// one block ahead.
#pragma once

#include "kernels/cuda/expert_gemv/gemm_plan.h"
#include "kernels/cuda/expert_gemv/planes.cuh"
#include "kernels/cuda/expert_gemv/stage.cuh"
#include "kernels/cuda/expert_gemv/wgmma.cuh"

namespace terrace::kernels::cuda {

__device__ __forceinline__ std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}
__device__ __forceinline__ void copy_16(std::uint8_t* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_4(std::uint8_t* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

// Four matrices of eight rows of 16 bytes; `at`: row lane % 8 of matrix lane / 8.
__device__ __forceinline__ void load_matrices(const std::uint8_t* at, std::uint32_t (&words)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared_address(at))
               : "memory");
}

// c + weights * x, over 32 values; weights unsigned or signed bytes.
template <bool kSigned>
__device__ __forceinline__ void add_mma_32(std::int32_t (&c)[4], const std::uint32_t (&w)[4], std::uint32_t x0,
                                           std::uint32_t x1) {
  if constexpr (kSigned) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(x0), "r"(x1));
  } else {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(x0), "r"(x1));
  }
}
// M_c: minima times sums, 16 values: eight low parts, then eight high ones.
__device__ __forceinline__ void mma_mins(float (&c)[4], const std::uint32_t (&mins)[2],
                                         const std::uint32_t (&mins64)[2], std::uint32_t low, std::uint32_t high) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
      : "r"(mins[0]), "r"(mins[1]), "r"(mins64[0]), "r"(mins64[1]), "r"(low), "r"(high), "f"(0.0f));
}

template <class Type, int kColumns>
struct Gemm {
  static constexpr std::uint32_t kBlockBytes = Type::kBlockBytes, kWStride = gemm_w_stride(kBlockBytes);
  static constexpr std::uint32_t kStage = gemm_stage_bytes(kBlockBytes, kColumns);

  const GemvKernelArgs& args;
  const GemvGroup& group;
  std::uint32_t first_row;
  std::uint8_t* shared;

  __device__ __forceinline__ std::uint8_t* stage(std::uint32_t c) const { return shared + c % 2 * kStage; }
  __device__ __forceinline__ std::uint32_t* x_rows() const {
    return reinterpret_cast<std::uint32_t*>(shared + 2 * kStage);
  }
  // Bytes from the matrix's begin to block c of row r of the tile; rows behind the last are the last.
  __device__ __forceinline__ std::uint64_t w_offset(std::uint32_t r, std::uint32_t c) const {
    const std::uint32_t row = min(first_row + r, args.weight_rows - 1);
    return std::uint64_t{row} * (args.cols / 256 * kBlockBytes) + c * kBlockBytes;
  }

  __device__ __forceinline__ void copy_weights(std::uint32_t c) const {
    constexpr std::uint32_t kSixteens = kWStride / 16;
    for (std::uint32_t i = threadIdx.x; i < kGemmTileRows * kSixteens; i += kGemmThreads) {
      const std::uint32_t r = i / kSixteens, part = i % kSixteens;
      const std::uint64_t at = w_offset(r, c), begin = at & ~std::uint64_t{15};
      if (kBlockBytes % 16 == 0 || begin + 16 * part < at + kBlockBytes)
        copy_16(stage(c) + r * kWStride + 16 * part, group.w + begin + 16 * part);
    }
  }
  // n rows, a multiple of eight.
  __device__ __forceinline__ void copy_x(std::uint32_t c, std::uint32_t n) const {
    const CardRowLayout at = card_row_layout(256, args.cols);
    std::uint8_t* const to = stage(c) + gemm_x_offset(kBlockBytes);
    for (std::uint32_t i = threadIdx.x; i < n * 16; i += kGemmThreads) {
      const std::uint32_t r = i / 16, part = i % 16;
      copy_16(to + r / 8 * kGemmEightRows + part * kGemmPartStride + r % 8 * 16,
              args.x + x_rows()[r] * args.x_stride + 256 * c + 16 * part);
    }
    for (std::uint32_t r = threadIdx.x; r < n; r += kGemmThreads) {
      const std::byte* const row = args.x + x_rows()[r] * args.x_stride;
      if (Planes<Type>::kHasMins) copy_16(sums_of_x(c) + r * kGemmSumBytes, row + at.sums32 + 16 * c);
      copy_4(stage(c) + gemm_d_offset(kBlockBytes, kColumns) + 4 * r, row + at.d + 4 * c);
    }
  }
  __device__ __forceinline__ std::uint8_t* sums_of_x(std::uint32_t c) const {
    return stage(c) + gemm_sums_offset(kBlockBytes, kColumns);
  }
  // Rows of x of columns first .. first + n - 1 of the group; behind its last row the last.
  __device__ __forceinline__ void look_up_x(std::uint32_t first, std::uint32_t n) const {
    for (std::uint32_t j = threadIdx.x; j < n; j += kGemmThreads) {
      const std::uint32_t index = group.first + min(first + j, group.n - 1);
      x_rows()[j] = args.x_rows != nullptr ? args.x_rows[index] : index;
    }
    __syncthreads();
  }

  // Chunk values of block c and the eight rows of x of tile t, added to the sums.
  __device__ __forceinline__ void add_values(std::uint32_t c, const Planes<Type>& w, int t, const std::int32_t* low,
                                             const std::int32_t* high, float (&sums)[4]) const {
    float min_sums[4];
    if constexpr (Planes<Type>::kHasMins) {
      std::uint32_t low_sums, high_sums;
      const std::uint8_t* const at = sums_of_x(c) + (t * 8 + MmaBlocks::g()) * kGemmSumBytes + 4 * MmaBlocks::i();
      split_sums(*reinterpret_cast<const std::uint32_t*>(at), low_sums, high_sums);
      mma_mins(min_sums, w.mins, w.mins64, low_sums, high_sums);
    }
    const auto* const x_d = reinterpret_cast<const float*>(stage(c) + gemm_d_offset(kBlockBytes, kColumns));
    const float2 d = *reinterpret_cast<const float2*>(x_d + t * 8 + 2 * MmaBlocks::i());
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const float dx = n % 2 == 0 ? d.x : d.y, total = static_cast<float>(high[n] * 256 + low[n]);
      float value;
      if constexpr (Planes<Type>::kHasMins) {
        value = fused(w.d[n / 2] * dx, total, -((w.dmin[n / 2] * dx) * min_sums[n]));
      } else {
        value = (w.d[n / 2] * dx) * total;
      }
      sums[n] = sums[n] + value;
    }
  }

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  static constexpr int kAtOnce = Wgmma::kColumns / 8;  // tiles of eight rows of x
  struct Planned {
    std::int32_t low[4 * kAtOnce], high[4 * kAtOnce];
  };
  __device__ __forceinline__ void begin_tiles(std::uint32_t c, const Planes<Type>& w, int t, Planned& products) const {
    const std::uint32_t x = shared_address(stage(c) + gemm_x_offset(kBlockBytes)) + t * kGemmEightRows;
    const auto values = [x](int k) {
      return Wgmma::descriptor(x + 2 * k * kGemmPartStride, kGemmPartStride, kGemmEightRows);
    };
    Wgmma::keep_order(products.low);
    Wgmma::keep_order(products.high);
    Wgmma::start();
#pragma unroll
    for (int k = 0; k < 8; ++k) Wgmma::multiply<false>(products.low, w.low[k], values(k), k > 0);
#pragma unroll
    for (int k = 0; k < 8; ++k) Wgmma::multiply<true>(products.high, w.high[k], values(k), k > 0);
    Wgmma::commit();
  }
  // While some are multiplied, values are made of those before them.
  template <bool kAll>
  __device__ __forceinline__ void add_tiles(std::uint32_t c, const Planes<Type>& w, int tiles,
                                            float (&sums)[kColumns / 8][4]) const {
    constexpr int kSteps = kColumns / 8 / kAtOnce;
    Planned products[2] = {};
    if constexpr (kAll) {
      begin_tiles(c, w, 0, products[0]);
#pragma unroll
      for (int step = 0; step < kSteps - 1; ++step) {
        begin_tiles(c, w, (step + 1) * kAtOnce, products[(step + 1) % 2]);
        Wgmma::wait<1>();
        add_products(c, w, step * kAtOnce, kAtOnce, products[step % 2], sums);
      }
      Wgmma::wait<0>();
      add_products(c, w, (kSteps - 1) * kAtOnce, kAtOnce, products[(kSteps - 1) % 2], sums);
    } else {
#pragma unroll
      for (int t = 0; t < kColumns / 8; t += kAtOnce)
        if (t < tiles) {
          begin_tiles(c, w, t, products[0]);
          Wgmma::wait<0>();
          add_products(c, w, t, tiles - t, products[0], sums);
        }
    }
  }
  __device__ __forceinline__ void add_products(std::uint32_t c, const Planes<Type>& w, int t, int tiles,
                                               Planned& products, float (&sums)[kColumns / 8][4]) const {
    Wgmma::keep_order(products.low);
    Wgmma::keep_order(products.high);
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u)
      if (u < tiles) add_values(c, w, t + u, products.low + 4 * u, products.high + 4 * u, sums[t + u]);
  }
  // What was copied to shared memory is seen by the tensor cores.
  static __device__ __forceinline__ void hand_over() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#else
  static constexpr int kAtOnce = 2;  // chains that do not wait for each other
  __device__ __forceinline__ void add_some_tiles(std::uint32_t c, const Planes<Type>& w, int t,
                                                 float (&sums)[kColumns / 8][4]) const {
    const std::uint32_t lane = threadIdx.x % 32;
    const std::uint8_t* const x = stage(c) + gemm_x_offset(kBlockBytes) + lane / 8 * kGemmPartStride + lane % 8 * 16;
    std::int32_t low[kAtOnce][4] = {}, high[kAtOnce][4] = {};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      std::uint32_t words[kAtOnce][4];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) load_matrices(x + (t + u) * kGemmEightRows + 4 * k * kGemmPartStride, words[u]);
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
          add_mma_32<false>(low[u], w.low[2 * k + half], words[u][2 * half], words[u][2 * half + 1]);
          add_mma_32<true>(high[u], w.high[2 * k + half], words[u][2 * half], words[u][2 * half + 1]);
        }
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) add_values(c, w, t + u, low[u], high[u], sums[t + u]);
  }
  template <bool kAll>
  __device__ __forceinline__ void add_tiles(std::uint32_t c, const Planes<Type>& w, int tiles,
                                            float (&sums)[kColumns / 8][4]) const {
#pragma unroll
    for (int t = 0; t < kColumns / 8; t += kAtOnce)
      if (kAll || t < tiles) add_some_tiles(c, w, t, sums);
  }
  static __device__ __forceinline__ void hand_over() {}
#endif

  // Block c of this warp's rows with `tiles` times eight rows of x; kAll: all columns are.
  template <bool kAll>
  __device__ __forceinline__ void add_block(std::uint32_t c, int tiles, float (&sums)[kColumns / 8][4]) const {
    const std::uint8_t* w[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const std::uint32_t r = threadIdx.x / 32 * 16 + MmaBlocks::g() + 8 * row;
      w[row] = stage(c) + r * kWStride + (kBlockBytes % 16 == 0 ? 0 : w_offset(r, c) & 15);
    }
    Planes<Type> planes;
    unpack<Type>(w, planes);
    add_tiles<kAll>(c, planes, tiles, sums);
  }

  __device__ __forceinline__ void write(std::uint32_t first, std::uint32_t live,
                                        const float (&sums)[kColumns / 8][4]) const {
#pragma unroll
    for (int t = 0; t < kColumns / 8; ++t)
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const std::uint32_t column = t * 8 + 2 * MmaBlocks::i() + n % 2;
        const std::uint32_t row = first_row + threadIdx.x / 32 * 16 + MmaBlocks::g() + 8 * (n / 2);
        if (column < live && row < args.weight_rows)
          args.y[(group.first + first + column) * args.y_stride + row] = sums[t][n];
      }
  }

  // Columns first .. first + kColumns - 1 of the group, as far as there are.
  __device__ __forceinline__ void run(std::uint32_t first) const {
    const std::uint32_t live = min(static_cast<std::uint32_t>(kColumns), group.n - first);
    const std::uint32_t brought = (live + 15) / 16 * 16, n_blocks = args.cols / 256;
    look_up_x(first, brought);
    const auto bring = [&](std::uint32_t c) {
      copy_weights(c);
      copy_x(c, brought);
      asm volatile("cp.async.commit_group;" ::: "memory");
    };
    bring(0);
    float sums[kColumns / 8][4] = {};
    for (std::uint32_t c = 0; c < n_blocks; ++c) {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
      hand_over();
      __syncthreads();  // also: block c - 1, whose place is taken next, is done
      if (c + 1 < n_blocks) bring(c + 1);
      if (brought == kColumns) {
        add_block<true>(c, brought / 8, sums);
      } else {
        add_block<false>(c, brought / 8, sums);
      }
    }
    write(first, live, sums);
    __syncthreads();
  }
};

// Grid: (tiles of a matrix, groups, slices).
template <class Type, int kColumns>
__global__ void __launch_bounds__(kGemmThreads, 1) gemm(const GemvKernelArgs args) {
  extern __shared__ __align__(16) std::uint8_t shared[];
  const GemvGroup group = group_of_block(args);
  if (args.groups == nullptr) wait_for_previous();
  const Gemm<Type, kColumns> tile{args, group, blockIdx.x * kGemmTileRows, shared};
  for (std::uint32_t first = blockIdx.z * kColumns; first < group.n; first += gridDim.z * kColumns) tile.run(first);
}

template <class Type>
void launch_gemm(const GemvKernelArgs& args, CUstream_st* stream) {
  const GemmPlan& plan = args.gemm;
  const auto kernel = plan.columns == 128 ? gemm<Type, 128> : gemm<Type, 64>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(plan.shared_bytes));
  launch_overlapped(args.overlap, kernel, dim3(plan.tiles, args.n_groups, plan.slices), kGemmThreads, plan.shared_bytes,
                    stream, args);
}

}  // namespace terrace::kernels::cuda
