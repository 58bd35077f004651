// How fast the card's kernels are, beside a copy on the same card: gigabytes of weights read each second, and
// microseconds of what is too small for that. Nothing is judged here.
//
// usage: terrace_gpu_bench [CARD]      weights are random bytes and larger than the card's caches
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <vector>

#include "common/base/function_ref.h"
#include "kernels/cuda/activations/activations.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/device/card.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/expert_gemv/expert_gemv.h"
#include "tests/gpu/bench_card.h"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint64_t kBudget = std::uint64_t{6} << 30;
constexpr std::uint64_t kWeightBytes = test::BenchCard::kWeightBytes;
constexpr std::uint64_t kCopyBytes = std::uint64_t{2} << 30;

class Bench {
 public:
  explicit Bench(test::BenchCard& bench)
      : bench_(bench), card_(bench.card()), stream_(bench.stream()), weights_(bench.weights()) {}

  Status run() {
    TERRACE_RETURN_IF_ERROR(take_memory());
    TERRACE_RETURN_IF_ERROR(copy());
    fmt::print("{:8} {:>11} {:>4} {:>9} {:>9} {:>8}\n", "type", "shape", "rows", "us", "GB/s", "of copy");
    for (const TensorType type :
         {TensorType::kQ4_K, TensorType::kQ6_K, TensorType::kQ5_K, TensorType::kQ3_K, TensorType::kQ8_0,
          TensorType::kQ4_0, TensorType::kF16, TensorType::kBF16, TensorType::kF32})
      for (const std::uint32_t n : {1u, 2u, 4u, 8u}) {
        TERRACE_RETURN_IF_ERROR(experts(type, 768, 2048, n));
        TERRACE_RETURN_IF_ERROR(experts(type, 2048, 768, n));
      }
    fmt::print("\nmany rows: a GEMV, then the kernel for many\n");
    for (const TensorType type : {TensorType::kQ4_K, TensorType::kQ5_K, TensorType::kQ6_K, TensorType::kQ3_K})
      for (const std::uint32_t n : {4u, 16u, 32u, 64u, 128u, 256u})
        for (const std::uint32_t from : {~0u, 1u}) {
          TERRACE_RETURN_IF_ERROR(experts(type, 768, 2048, n, 128, from));
          TERRACE_RETURN_IF_ERROR(experts(type, 2048, 768, n, 128, from));
        }
    for (const std::uint32_t n : {16u, 32u, 64u, 128u, 512u, 4096u})
      for (const std::uint32_t from : {~0u, 1u}) {
        TERRACE_RETURN_IF_ERROR(experts(TensorType::kQ4_K, 512, 2048, n, 1, from));
        TERRACE_RETURN_IF_ERROR(experts(TensorType::kQ4_K, 4096, 2048, n, 1, from));
        TERRACE_RETURN_IF_ERROR(experts(TensorType::kQ4_K, 2048, 4096, n, 1, from));
      }
    fmt::print("\none launch of few matrices, in a graph of 64, each its own weights\n");
    for (const TensorType type : {TensorType::kQ4_K, TensorType::kQ6_K}) {
      TERRACE_RETURN_IF_ERROR(few(type, 768, 2048, 16));
      TERRACE_RETURN_IF_ERROR(few(type, 2048, 768, 8));
      TERRACE_RETURN_IF_ERROR(few(type, 4096, 2048, 1));
      TERRACE_RETURN_IF_ERROR(few(type, 2048, 4096, 1));
    }
    TERRACE_RETURN_IF_ERROR(few(TensorType::kF32, 128, 2048, 1));
    fmt::print("\none row, in a graph of 64\n");
    TERRACE_RETURN_IF_ERROR(small_operations());
    for (const std::uint32_t depth : {512u, 4096u, 32768u}) TERRACE_RETURN_IF_ERROR(attention(depth, 1));
    fmt::print("\n");
    for (const std::uint32_t rows : {32u, 128u, 512u, 4096u}) TERRACE_RETURN_IF_ERROR(attention(4096, rows));
    return {};
  }

 private:
  Status take_memory() {
    TERRACE_ASSIGN_OR_RETURN(other_, card_.take(kCopyBytes + (std::uint64_t{1} << 30), "everything else"));
    return stream_.fill(other_, 1, kCopyBytes);  // small numbers in every form
  }

  Status copy() {
    TERRACE_ASSIGN_OR_RETURN(const double rate, bench_.copy_rate());
    copy_rate_ = rate * 1e-9;
    fmt::print("copy of {} MiB: {:.0f} GB/s read and written\n\n", kWeightBytes >> 20, copy_rate_);
    return {};
  }

  // Groups over matrices `first`, `first` + 1, ... of the weights, n rows each; x and y lie in other_.
  Result<GemvArgs> make(TensorType type, std::uint32_t rows, std::uint32_t cols, std::uint32_t n_groups,
                        std::uint32_t n, std::uint32_t first) {
    const std::uint64_t bytes = rows * row_bytes(type, cols), stride = (bytes + 255) / 256 * 256;
    std::vector<GemvGroup> groups;
    std::vector<std::uint32_t> x_rows;
    for (std::uint32_t g = 0; g < n_groups; ++g) {
      groups.push_back({weights_ + (first + g) % (kWeightBytes / stride) * stride, g * n, n});
      for (std::uint32_t j = 0; j < n; ++j) x_rows.push_back(n == 1 ? 0 : (g * n + j) % 512);
    }
    GemvArgs args;
    args.type = type;
    args.weight_rows = rows;
    args.cols = cols;
    TERRACE_ASSIGN_OR_RETURN(args.groups, bench_.upload(groups));
    args.n_groups = n_groups;
    args.max_rows = n;
    args.x = other_ + kCopyBytes / 2;
    args.x_stride = card_row_bytes(type, cols);
    TERRACE_ASSIGN_OR_RETURN(args.x_rows, bench_.upload(x_rows));
    args.y = reinterpret_cast<float*>(other_);
    args.y_stride = rows;
    return args;
  }

  Status experts(TensorType type, std::uint32_t rows, std::uint32_t cols, std::uint32_t n,
                 std::uint32_t at_most = 65535, std::uint32_t gemm_from = kGemmFromRows) {
    const std::uint64_t used = card_.used_bytes(), bytes = rows * row_bytes(type, cols);
    const auto n_groups = std::min(at_most, static_cast<std::uint32_t>(kWeightBytes / ((bytes + 255) / 256 * 256)));
    TERRACE_ASSIGN_OR_RETURN(GemvArgs args, make(type, rows, cols, n_groups, n, 0));
    args.gemm_from = gemm_from;
    TERRACE_ASSIGN_OR_RETURN(const double us, bench_.microseconds([&] { return expert_gemv(stream_, args); }));
    print(type, rows, cols, n, us, bytes * n_groups);
    if (at_most < 65535)
      fmt::print("{:>36.1f} T multiply-adds/s {}\n", 1e-6 * n_groups * n * rows * cols / us, gemm_from == 1 ? "*" : "");
    card_.release_to(used);
    return {};
  }

  Status few(TensorType type, std::uint32_t rows, std::uint32_t cols, std::uint32_t n_groups) {
    const std::uint64_t used = card_.used_bytes(), bytes = rows * row_bytes(type, cols);
    std::vector<GemvArgs> all;
    for (std::uint32_t i = 0; i < 64; ++i) {
      TERRACE_ASSIGN_OR_RETURN(const GemvArgs args, make(type, rows, cols, n_groups, 1, i * n_groups));
      all.push_back(args);
    }
    TERRACE_ASSIGN_OR_RETURN(const double us, bench_.microseconds_in_graph([&](int i) {
      return expert_gemv(stream_, all[static_cast<std::size_t>(i)]);
    }));
    print(type, rows, cols, n_groups, us, bytes * n_groups);
    card_.release_to(used);
    return {};
  }

  void print(TensorType type, std::uint32_t rows, std::uint32_t cols, std::uint32_t n, double us, std::uint64_t bytes) {
    const double rate = static_cast<double>(bytes) / us * 1e-3;
    fmt::print("{:8} {:>11} {:>4} {:>9.2f} {:>9.0f} {:>7.0f}%\n", info(type).name, fmt::format("{}x{}", rows, cols), n,
               us, rate, 100 * rate / copy_rate_);
  }

  Status small_operations() {
    auto* x = reinterpret_cast<float*>(other_);
    auto* y = reinterpret_cast<float*>(other_ + (1 << 20));
    const auto show = [&](const char* what, FunctionRef<Status()> call) -> Status {
      TERRACE_ASSIGN_OR_RETURN(const double us, bench_.microseconds_in_graph([&](int) { return call(); }));
      fmt::print("{:24} {:>8.2f} us\n", what, us);
      return {};
    };
    TERRACE_RETURN_IF_ERROR(show("RMSNorm 2048", [&] {
      return rms_norm(stream_, {x, 2048, y, y, 2048, 1, 2048, 1e-6f});
    }));
    TERRACE_RETURN_IF_ERROR(show("RMSNorm 32 heads of 128", [&] {
      return rms_norm(stream_, {x, 128, y, y, 128, 32, 128, 1e-6f});
    }));
    TERRACE_RETURN_IF_ERROR(show("quantise 2048", [&] {
      return quantize_card_rows(stream_, {ActivationClass::kA8x256, x, 2048, 1, 2048, other_ + (2 << 20), 4096});
    }));
    return show("SILU * up, 8 x 768", [&] { return silu_mul(stream_, x, y, 8 * 768, y); });
  }

  // The last n_rows positions of a stream of `depth`.
  Status attention(std::uint32_t depth, std::uint32_t n_rows) {
    const std::uint64_t used = card_.used_bytes();
    std::vector<std::uint32_t> table(depth / 32);
    for (std::uint32_t i = 0; i < table.size(); ++i) table[i] = i;
    AttentionArgs args;
    args.cache = {other_, other_ + (std::uint64_t{512} << 20), KvType::kF16, 4, 128, 128, nullptr, depth / 32};
    TERRACE_ASSIGN_OR_RETURN(args.cache.block_tables, bench_.upload(table));
    args.q_stride = args.out_stride = 32 * 128;
    args.q = reinterpret_cast<float*>(other_ + (std::uint64_t{1} << 30));
    args.out = reinterpret_cast<float*>(weights_);
    TERRACE_ASSIGN_OR_RETURN(args.streams, bench_.upload(std::vector<std::uint32_t>(n_rows, 0)));
    std::vector<std::uint32_t> n_keys(n_rows);
    double products = 0;
    for (std::uint32_t i = 0; i < n_rows; ++i) {
      n_keys[i] = depth - n_rows + 1 + i;
      products += 2.0 * 32 * 128 * n_keys[i];
    }
    TERRACE_ASSIGN_OR_RETURN(args.n_keys, bench_.upload(n_keys));
    args.n_rows = n_rows;
    args.n_heads = 32;
    args.max_keys = depth;
    args.scale = 0.088f;
    args.scratch = reinterpret_cast<float*>(weights_ + (1 << 28));
    args.scratch_bytes = std::uint64_t{1} << 27;
    TERRACE_ASSIGN_OR_RETURN(const double us, bench_.microseconds_in_graph([&](int) { return attend(stream_, args); }));
    fmt::print("{:32} {:>8.2f} us, {:.1f} T multiply-adds/s\n",
               fmt::format("attention, {} keys, {} rows", depth, n_rows), us, 1e-6 * products / us);
    card_.release_to(used);
    return {};
  }

  test::BenchCard& bench_;
  Card& card_;
  const Stream& stream_;
  std::byte* const weights_;
  std::byte* other_ = nullptr;
  double copy_rate_ = 0;
};

Status run(int index) {
  TERRACE_ASSIGN_OR_RETURN(test::BenchCard bench, test::BenchCard::open(index, kBudget));
  const CardInfo& card = bench.card().info();
  fmt::print("card {}: {}, {}.{}, {} multiprocessors, {} MiB\n", index, card.name, card.compute_major,
             card.compute_minor, card.multiprocessors, card.total_bytes >> 20);
  return Bench(bench).run();
}

}  // namespace
}  // namespace terrace::kernels::cuda

int main(int argc, char** argv) {
  int index = 0;
  if (argc > 1 && std::from_chars(argv[1], argv[1] + std::strlen(argv[1]), index).ec != std::errc{}) {
    fmt::print(stderr, "usage: terrace_gpu_bench [CARD]\n");
    return 2;
  }
  const terrace::Status status = terrace::kernels::cuda::run(index);
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", status.error().text());
  return 1;
}
