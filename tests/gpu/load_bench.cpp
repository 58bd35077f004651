// How fast a model's experts come from their file to a card, beside the slower of the two ways they take: the same
// reads of the same file by the same threads without a card, and copies from pinned memory. The file is read once
// before, so where it fits into memory these are the rates of the page cache; with --cold it is thrown out of there
// before each run, and these are the drive's. Nothing is judged here.
//
// usage: terrace_gpu_load_bench [--cold] FILE [CARD]
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "common/gguf/file.h"
#include "common/manifest/experts.h"
#include "common/threads/pool.h"
#include "coordinator/legs/card_leg.h"
#include "coordinator/legs/file_slabs.h"
#include "kernels/cuda/experts/open.h"
#include "tests/gpu/link_rate.h"

namespace terrace {
namespace {

constexpr int kRepeats = 3;
// As large as what a writer fills at once.
constexpr std::size_t kPieceBytes = kernels::CardWriter::kPieceBytes;

// Throws the file's pages out of the page cache; those that are mapped somewhere stay. Pages that were not written yet
// would stay too: of a file made a moment ago that may be all of them.
void forget(const gguf::File& file) {
  for (std::uint32_t shard = 0; shard < file.n_shards(); ++shard) {
    (void)::fdatasync(file.fd(shard));
    (void)::posix_fadvise(file.fd(shard), 0, 0, POSIX_FADV_DONTNEED);
  }
}

// What CardLeg::load() reads, and nothing else.
Status read_all(const manifest::ModelExperts& experts, const legs::SlabPartReader& read, Parallel& parallel) {
  std::vector<std::vector<std::byte>> pieces(parallel.n_workers(), std::vector<std::byte>(kPieceBytes));
  std::vector<Status> status(parallel.n_workers());
  const auto read_part = [&](std::size_t worker, std::uint32_t layer, std::uint16_t expert, legs::SlabPart part,
                             std::uint64_t bytes) -> Status {
    for (std::uint64_t at = 0; at < bytes; at += kPieceBytes) {
      const auto to = std::span(pieces[worker]).first(std::min<std::uint64_t>(kPieceBytes, bytes - at));
      TERRACE_RETURN_IF_ERROR(read(layer, expert, part, at, to));
    }
    return {};
  };
  parallel.run(experts.layers.size() * experts.n_experts, [&](std::size_t item, std::size_t worker) {
    const auto layer = static_cast<std::uint32_t>(item / experts.n_experts);
    const auto expert = static_cast<std::uint16_t>(item % experts.n_experts);
    const manifest::LayerShape& shape = experts.layers[layer].shape;
    for (const auto& [part, bytes] : {std::pair{legs::SlabPart::kGate, shape.gate_bytes()},
                                      {legs::SlabPart::kUp, shape.up_bytes()},
                                      {legs::SlabPart::kDown, shape.down_bytes()}})
      if (status[worker].ok()) status[worker] = read_part(worker, layer, expert, part, bytes);
  });
  for (const Status& each : status) TERRACE_RETURN_IF_ERROR(each);
  return {};
}

class Bench {
 public:
  Bench(const gguf::File& file, const manifest::ModelExperts& experts, Parallel& parallel, bool cold)
      : file_(file),
        experts_(experts),
        read_(legs::file_part_reader(file, experts)),
        parallel_(parallel),
        cold_(cold) {}

  Status run(std::uint32_t index) {
    TERRACE_ASSIGN_OR_RETURN(const double link, test::measure_link(static_cast<int>(index)));
    if (!cold_) TERRACE_RETURN_IF_ERROR(read_all(experts_, read_, parallel_));
    TERRACE_ASSIGN_OR_RETURN(const double reading, best_rate([&] { return read_all(experts_, read_, parallel_); }));
    TERRACE_ASSIGN_OR_RETURN(const auto card, kernels::cuda::open_expert_card(index, std::nullopt));
    TERRACE_ASSIGN_OR_RETURN(const auto leg, make_leg(*card));
    TERRACE_ASSIGN_OR_RETURN(const double loading, best_rate([&] {
                               return leg->load(read_, parallel_, [](std::uint64_t, std::uint64_t) {});
                             }));
    fmt::print(
        "loading {:.1f} GB of experts, {}, {} threads: {:.1f} GB/s; reading alone {:.1f}, copying alone {:.1f}: "
        "{:.0f} % of the slower\n",
        static_cast<double>(experts_.total_bytes()) * 1e-9, cold_ ? "from the drive" : "from the page cache",
        parallel_.n_workers(), loading * 1e-9, reading * 1e-9, link * 1e-9, 100 * loading / std::min(reading, link));
    return {};
  }

 private:
  // Bytes a second of the best run.
  template <class Run>
  Result<double> best_rate(Run run) {
    double best = 0;
    for (int i = 0; i < (cold_ ? 1 : kRepeats); ++i) {
      if (cold_) forget(file_);
      const auto begin = std::chrono::steady_clock::now();
      TERRACE_RETURN_IF_ERROR(run());
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
      best = std::max(best, static_cast<double>(experts_.total_bytes()) / elapsed.count());
    }
    return best;
  }
  // All experts are the card's.
  Result<std::unique_ptr<legs::CardLeg>> make_leg(kernels::ExpertCard& card) {
    TERRACE_ASSIGN_OR_RETURN(const auto kernels,
                             legs::select_layer_kernels(experts_, kernels::detect_cpu_features(), std::nullopt,
                                                        kernels::Activations::kQuantised));
    const auto n_layers = static_cast<std::uint32_t>(experts_.layers.size());
    const legs::OwnerTable owners(1, {"host", legs::card_leg_name(card.facts().index)}, n_layers, experts_.n_experts,
                                  std::vector<std::uint16_t>(std::size_t{n_layers} * experts_.n_experts, 1));
    return legs::CardLeg::make(card, card.slab_memory(), owners, 1, kernels, experts_.shift);
  }

  const gguf::File& file_;
  const manifest::ModelExperts& experts_;
  const legs::SlabPartReader read_;
  Parallel& parallel_;
  const bool cold_;
};

Status run(const std::string& path, std::uint32_t index, bool cold) {
  TERRACE_ASSIGN_OR_RETURN(const gguf::File file, gguf::File::open(path));
  TERRACE_ASSIGN_OR_RETURN(const manifest::ModelExperts experts, manifest::find_experts(file));
  TERRACE_ASSIGN_OR_RETURN(const CpuChoice cpus, choose_cpus(cpus_of_this_machine(), {}));
  TERRACE_ASSIGN_OR_RETURN(const auto pool, Pool::create(cpus));
  return Bench(file, experts, *pool, cold).run(index);
}

}  // namespace
}  // namespace terrace

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool cold = std::erase(arguments, "--cold") > 0;
  std::uint32_t index = 0;
  const auto is_number = [&](const std::string& text) {
    return std::from_chars(text.data(), text.data() + text.size(), index).ec == std::errc{};
  };
  if (arguments.empty() || arguments.size() > 2 || arguments[0].starts_with('-') ||
      (arguments.size() == 2 && !is_number(arguments[1]))) {
    fmt::print(stderr, "usage: terrace_gpu_load_bench [--cold] FILE [CARD]\n");
    return 2;
  }
  const terrace::Status status = terrace::run(arguments[0], index, cold);
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", status.error().text());
  return 1;
}
