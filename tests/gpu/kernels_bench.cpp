// Each kernel of a step in the shape of Qwen3-30B-A3B beside what the same card can do at most: the bytes that it must
// move at the rate of a copy, or its multiply-adds at the rate of a kernel that does nothing else. A kernel is timed
// among its likes, captured behind each other with other weights each, as a step has them among others. Nothing is
// judged here.
//
// usage: terrace_gpu_kernels [CARD [FILE]]      FILE: the table as JSON too, for tests/gpu/run.sh's record
#include <fmt/core.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/gpu/bench_card.h"
#include "tests/gpu/limits.h"
#include "tests/gpu/step_kernels.h"

namespace terrace::test {
namespace {

constexpr std::uint64_t kBudget = std::uint64_t{4} << 30;

struct Limits {
  double copy = 0;  // bytes a second
  double int8 = 0;  // multiply-adds a second
  double f32 = 0;
  double launch_us = 0;  // of a kernel that does nothing, behind another
  double of(Limit limit) const { return limit == Limit::kBytes ? copy : limit == Limit::kInt8 ? int8 : f32; }
};
const char* name(Limit limit) {
  return limit == Limit::kBytes ? "bytes" : limit == Limit::kInt8 ? "int8 multiply-adds" : "f32 multiply-adds";
}

Result<Limits> measure_limits(BenchCard& card) {
  Limits limits;
  TERRACE_ASSIGN_OR_RETURN(limits.copy, card.copy_rate());
  TERRACE_ASSIGN_OR_RETURN(float* const sink, card.room<float>(1));
  double done = 0;
  const auto rate = [&](auto launch) -> Result<double> {
    const auto queue = [&]() -> Status {
      TERRACE_ASSIGN_OR_RETURN(done, launch());
      return {};
    };
    TERRACE_ASSIGN_OR_RETURN(const double us, card.microseconds(queue));
    return done / us * 1e6;
  };
  TERRACE_ASSIGN_OR_RETURN(limits.f32, rate([&] { return launch_f32_limit(card.stream(), sink); }));
  TERRACE_ASSIGN_OR_RETURN(
      limits.int8, rate([&] { return launch_int8_limit(card.stream(), reinterpret_cast<std::int32_t*>(sink)); }));
  TERRACE_ASSIGN_OR_RETURN(limits.launch_us,
                           card.microseconds_in_graph([&](int) { return launch_nothing(card.stream()); }));
  return limits;
}

class Table {
 public:
  Table(BenchCard& card, const Limits& limits) : card_(card), limits_(limits) {
    json_ = fmt::format(
        "{{\"limits\": {{\"copy_bytes_per_second\": {:.4g}, \"int8_multiply_adds_per_second\": {:.4g}, "
        "\"f32_multiply_adds_per_second\": {:.4g}, \"launch_us\": {:.2f}}}, \"kernels\": [",
        limits.copy, limits.int8, limits.f32, limits.launch_us);
  }

  Status add(const char* step, const StepSize& size) {
    fmt::print("\n{} of {} row{} at depth {}\n{:36} {:>18} {:>10} {:>9} {:>8} {:>7}\n", step, size.n_rows,
               size.n_rows == 1 ? "" : "s", size.depth, "kernel", "of", "10^6", "us", "at limit", "share");
    double step_us = 0, step_limit_us = 0;
    TERRACE_RETURN_IF_ERROR(for_each_step_kernel(card_, size, [&](const StepKernel& kernel) -> Status {
      TERRACE_ASSIGN_OR_RETURN(const double us, card_.microseconds_in_graph(kernel.queue, size.n_rows == 1 ? 64 : 8));
      const double limit_us = kernel.amount / limits_.of(kernel.limit) * 1e6;
      fmt::print("{:36} {:>18} {:>10.2f} {:>9.2f} {:>8.2f} {:>6.1f}%\n", kernel.name, name(kernel.limit),
                 kernel.amount * 1e-6, us, limit_us, 100 * limit_us / us);
      json_ += fmt::format(
          "{}{{\"step\": \"{}\", \"rows\": {}, \"depth\": {}, \"kernel\": \"{}\", \"of\": \"{}\", \"amount\": {:.0f}, "
          "\"us\": {:.2f}, \"share_of_limit\": {:.4f}, \"times_a_step\": {}}}",
          json_.ends_with('[') ? "\n" : ",\n", step, size.n_rows, size.depth, kernel.name, name(kernel.limit),
          kernel.amount, us, limit_us / us, kernel.of_a_step);
      step_us += us * kernel.of_a_step;
      step_limit_us += limit_us * kernel.of_a_step;
      return {};
    }));
    fmt::print("all of a step, one after the other: {:.0f} us, at their limits {:.0f}: {:.1f}%\n", step_us,
               step_limit_us, 100 * step_limit_us / step_us);
    return {};
  }

  Status write(const std::string& file) const {
    std::FILE* const out = std::fopen(file.c_str(), "w");
    if (out == nullptr) return Error(ErrorCode::kIo, fmt::format("{}: cannot be written", file));
    const bool written = std::fputs((json_ + "\n]}\n").c_str(), out) >= 0;
    if (std::fclose(out) != 0 || !written) return Error(ErrorCode::kIo, fmt::format("{}: cannot be written", file));
    return {};
  }

 private:
  BenchCard& card_;
  const Limits& limits_;
  std::string json_;
};

Status run(int index, const std::string& file) {
  TERRACE_ASSIGN_OR_RETURN(BenchCard card, BenchCard::open(index, kBudget));
  TERRACE_ASSIGN_OR_RETURN(const Limits limits, measure_limits(card));
  fmt::print(
      "card {}: {}; a copy moves {:.0f} GB/s, int8 {:.0f} and f32 {:.1f} T multiply-adds/s, a launch {:.2f} us\n",
      index, card.card().info().name, limits.copy * 1e-9, limits.int8 * 1e-12, limits.f32 * 1e-12, limits.launch_us);
  Table table(card, limits);
  TERRACE_RETURN_IF_ERROR(table.add("decode", {.n_rows = 1, .depth = 512}));
  TERRACE_RETURN_IF_ERROR(table.add("decode", {.n_rows = 1, .depth = 8190}));
  TERRACE_RETURN_IF_ERROR(table.add("prompt", {.n_rows = 512, .depth = 0}));
  TERRACE_RETURN_IF_ERROR(table.add("prompt", {.n_rows = 4096, .depth = 0}));
  return file.empty() ? Status() : table.write(file);
}

}  // namespace
}  // namespace terrace::test

int main(int argc, char** argv) {
  int index = 0;
  if (argc > 3 || (argc > 1 && std::from_chars(argv[1], argv[1] + std::strlen(argv[1]), index).ec != std::errc{})) {
    fmt::print(stderr, "usage: terrace_gpu_kernels [CARD [FILE]]\n");
    return 2;
  }
  const terrace::Status status = terrace::test::run(index, argc > 2 ? argv[2] : "");
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", status.error().text());
  return 1;
}
