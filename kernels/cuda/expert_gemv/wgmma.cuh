// The tensor cores of sm_90a: 64 rows of weights from registers, kColumns (32) rows of x from shared memory, 32 values.
// The results lie as those of four mma.m16n8k32. Source: PTX ISA, wgmma.mma_async.
//
// Works on its own from start() to wait(): until then nobody may touch its registers.
#pragma once

#include <cstdint>

namespace terrace::kernels::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
struct Wgmma {
  static constexpr int kColumns = 32;

  // Rows of x as "core matrices": eight rows of 16 values each, 128 bytes; `to_next_16` bytes to those of the next 16
  // values, `to_next_8` to those of the next eight rows.
  static __device__ __forceinline__ std::uint64_t descriptor(std::uint32_t shared_address, std::uint32_t to_next_16,
                                                             std::uint32_t to_next_8) {
    return std::uint64_t{(shared_address & 0x3ffff) >> 4} | std::uint64_t{to_next_16 >> 4} << 16 |
           std::uint64_t{to_next_8 >> 4} << 32;
  }
  static __device__ __forceinline__ void start() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
  static __device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
  // What comes later in the program does not read these registers earlier.
  static __device__ __forceinline__ void keep_order(std::int32_t (&c)[16]) {
#pragma unroll
    for (int i = 0; i < 16; ++i) asm volatile("" : "+r"(c[i])::"memory");
  }
  // Until at most `kLeft` of the groups that were committed are left.
  template <int kLeft>
  static __device__ __forceinline__ void wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
  }

  // c = weights * x, and what c was where it `adds`; weights unsigned or signed bytes.
  template <bool kSigned>
  static __device__ __forceinline__ void multiply(std::int32_t (&c)[16], const std::uint32_t (&w)[4], std::uint64_t x,
                                                  bool adds) {
#define TERRACE_WGMMA(WEIGHTS)                                                                                      \
  asm volatile(                                                                                                     \
      "{ .reg .pred p; setp.ne.b32 p, %21, 0; "                                                                     \
      "wgmma.mma_async.sync.aligned.m64n32k32.s32." WEIGHTS                                                         \
      ".s8 {"                                                                                                       \
      "%0, %1, %2, %3, %4, %5, %6, %7, "                                                                            \
      "%8, %9, %10, %11, %12, %13, %14, %15}, "                                                                     \
      "{%16, %17, %18, %19}, %20, p; }"                                                                             \
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]), "+r"(c[4]), "+r"(c[5]), "+r"(c[6]), "+r"(c[7]), "+r"(c[8]), \
        "+r"(c[9]), "+r"(c[10]), "+r"(c[11]), "+r"(c[12]), "+r"(c[13]), "+r"(c[14]), "+r"(c[15])                    \
      : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "l"(x), "r"(static_cast<int>(adds)))
    if constexpr (kSigned)
      TERRACE_WGMMA("s8");
    else
      TERRACE_WGMMA("u8");
#undef TERRACE_WGMMA
  }
};
#endif

}  // namespace terrace::kernels::cuda
