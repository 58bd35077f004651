#include "kernels/cuda/elementwise/elementwise.h"

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/exact_math.h"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;

__global__ void rope_kernel(const RopeArgs args) {
  const std::uint32_t n_pairs = args.n_rot / 2;
  const std::uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n_pairs * args.n_heads) return;
  const std::uint32_t head = i / n_pairs, p = i % n_pairs;
  float* x = args.x + blockIdx.y * args.row_stride + head * args.head_dim;
  const bool neox = args.pairing == RopePairing::kNeox;
  float& first = neox ? x[p] : x[2 * p];
  float& second = neox ? x[p + n_pairs] : x[2 * p + 1];
  const float cosine = args.cosines[blockIdx.y * n_pairs + p], sine = args.sines[blockIdx.y * n_pairs + p];
  const float x0 = first, x1 = second;
  first = x0 * cosine - x1 * sine;
  second = x0 * sine + x1 * cosine;
}

// out[i] = operation(i): one thread a value.
template <class Operation>
__global__ void each(Operation operation, std::size_t n) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) operation(i);
}

struct Add {
  float* x;
  const float* y;
  __device__ void operator()(std::size_t i) const { x[i] = x[i] + y[i]; }
};
struct SiluMul {
  const float *gate, *up;
  float* h;
  __device__ void operator()(std::size_t i) const { h[i] = silu_exact(gate[i]) * up[i]; }
};
struct Exp {
  const float* x;
  float* y;
  __device__ void operator()(std::size_t i) const { y[i] = exp_exact(x[i]); }
};
struct Silu {
  const float* x;
  float* y;
  __device__ void operator()(std::size_t i) const { y[i] = silu_exact(x[i]); }
};

template <class Operation>
Status launch_each(const Stream& stream, const char* name, Operation operation, std::size_t n) {
  if (n == 0 || n > std::size_t{kThreads} * 0x7fffffff) return invalid_shape(name, {{"values", n}});
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  each<<<divide_up(n, kThreads), kThreads, 0, stream.native()>>>(operation, n);
  return after_launch(stream, name, {{"values", n}});
}

__global__ void mark_not_finite_kernel(const FiniteArgs args) {
  const float* x = args.x + blockIdx.y * args.x_stride;
  bool finite = true;
  for (std::uint32_t i = blockIdx.x * kThreads + threadIdx.x; i < args.n; i += gridDim.x * kThreads)
    finite = finite && is_finite(x[i]);
  if (!finite) args.failed[args.rows != nullptr ? args.rows[blockIdx.y] : blockIdx.y] = 1;
}

}  // namespace

Status rope(const Stream& stream, const RopeArgs& args) {
  const std::initializer_list<LaunchSize> sizes = {
      {"rows", args.n_rows}, {"heads", args.n_heads}, {"head values", args.head_dim}, {"rotated", args.n_rot}};
  if (args.n_rows == 0 || args.n_rows > kMaxGridRows || args.n_heads == 0 || args.n_rot == 0 || args.n_rot % 2 != 0 ||
      args.n_rot > args.head_dim)
    return invalid_shape("RoPE", sizes);
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  const dim3 grid(divide_up(std::uint64_t{args.n_rot / 2} * args.n_heads, kThreads), args.n_rows);
  rope_kernel<<<grid, kThreads, 0, stream.native()>>>(args);
  return after_launch(stream, "RoPE", sizes);
}

Status add(const Stream& stream, float* x, const float* y, std::size_t n) {
  return launch_each(stream, "adding", Add{x, y}, n);
}
Status silu_mul(const Stream& stream, const float* gate, const float* up, std::size_t n, float* h) {
  return launch_each(stream, "SILU(gate) * up", SiluMul{gate, up, h}, n);
}
Status exp(const Stream& stream, const float* x, std::size_t n, float* y) {
  return launch_each(stream, "EXP", Exp{x, y}, n);
}
Status silu(const Stream& stream, const float* x, std::size_t n, float* y) {
  return launch_each(stream, "SILU", Silu{x, y}, n);
}

Status mark_not_finite(const Stream& stream, const FiniteArgs& args) {
  if (args.n_rows == 0 || args.n_rows > kMaxGridRows || args.n == 0)
    return invalid_shape("looking for values that are not finite", {{"rows", args.n_rows}, {"values", args.n}});
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  mark_not_finite_kernel<<<dim3(1, args.n_rows), kThreads, 0, stream.native()>>>(args);
  return after_launch(stream, "looking for values that are not finite", {{"rows", args.n_rows}, {"values", args.n}});
}

}  // namespace terrace::kernels::cuda
