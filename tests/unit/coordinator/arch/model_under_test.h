// A model file with its trunk over the host leg alone, as tests of trunks want it.
#pragma once

#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/base/parallel.h"
#include "common/gguf/file.h"
#include "coordinator/arch/architectures.h"
#include "coordinator/legs/dispatcher.h"
#include "coordinator/legs/host_leg.h"
#include "tests/test_data.h"

namespace terrace::test {

// Runs items from last to first, unless an order was asked for, and hands worker numbers round: results that depend on
// the order of items, on who runs them or on a worker's memory show without a thread.
class Backwards final : public Parallel {
 public:
  explicit Backwards(std::size_t n_workers = 3) : n_workers_(n_workers) {}
  std::size_t n_workers() const override { return n_workers_; }
  void run(std::size_t n_items, FunctionRef<void(std::size_t, std::size_t)> fn) override {
    for (std::size_t i = n_items; i-- > 0;) fn(i, next_++ % n_workers());
  }
  void run_in_order(std::size_t n_items, FunctionRef<void(std::size_t, std::size_t)> fn) override {
    for (std::size_t i = 0; i < n_items; ++i) fn(i, next_++ % n_workers());
  }

 private:
  std::size_t n_workers_;
  std::size_t next_ = 0;
};

template <class T>
T value_of(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().text());
  return std::move(result).value();
}

// Sits between a trunk and its experts: fails one submit on demand, and remembers how batches were asked for.
class Tap final : public legs::RoutedExperts {
 public:
  Tap(legs::RoutedExperts& experts, const arch::ModelInfo& info)
      : experts_(experts), n_layers_(info.n_layers), top_k_(info.top_k) {
    journal_.reserve(4096);
  }

  // Experts are as if others computed them: steps are cut by the rule.
  void compute_elsewhere() { elsewhere_ = true; }
  // What was called since the last call: "s3 c3 " for a submit() of layer 3 and the collect() that ended it; "x " for
  // what abandon() ended; and what others noted.
  std::string take_journal() {
    const std::string taken = journal_;
    journal_.clear();
    return taken;
  }
  // Drops what has no room: tests that count allocations look at none of it.
  void note(char what, const std::string& layer) {
    if (journal_.size() + 16 > journal_.capacity()) return;
    journal_ += what;
    journal_ += layer;
    journal_ += ' ';
  }

  // The n-th submit from now fails with kPeerGone; 0: none.
  void fail_submit(std::uint32_t nth) { fail_in_ = nth; }
  legs::Priority last_priority() const { return last_priority_; }
  // A node that computes wrong from step `first` on, and is found out in step `found`; its last clean audit was in step
  // `clean` <= first.
  void go_wrong(std::uint64_t clean, std::uint64_t first, std::uint64_t found) {
    clean_ = clean;
    first_wrong_ = first;
    found_in_ = found;
  }

  void begin_step() override { experts_.begin_step(); }
  std::uint64_t step() const override { return experts_.step(); }
  std::uint64_t uncertain_since() const override { return clean_; }
  bool computes_elsewhere() const override { return elsewhere_ || experts_.computes_elsewhere(); }
  void progress() override {
    ++progressed;
    experts_.progress();
  }
  Status abandon() override {
    if (n_open_ != 0) note('x', "");
    n_open_ = 0;
    return experts_.abandon();
  }

  // Not empty: every expert lies on the trunk's card, which computes it.
  std::vector<kernels::SlabView> on_card;
  std::uint64_t rows_on_card = 0;
  std::span<const kernels::SlabView> slabs_on_card() override { return on_card; }
  void count_on_card(const std::uint16_t*, std::uint32_t n_rows, std::uint64_t) override { rows_on_card += n_rows; }
  // Not empty: [n_layers, n_experts], those that the trunk's card computes beside the others; null parts elsewhere.
  std::vector<kernels::SlabView> part;
  std::span<const kernels::SlabView> part_on_card() override { return part; }
  bool card_is_a_leg = false;  // it owns experts that it does not compute as a part of the step
  bool launches_on_card() const override { return card_is_a_leg; }

  Status submit(const legs::RoutedRows& routed) override {
    last_priority_ = routed.priority;
    open_[n_open_++] = routed.layer;
    note('s', std::to_string(routed.layer));
    if (fail_in_ != 0 && --fail_in_ == 0) return Error(ErrorCode::kPeerGone, "box1:9000: the connection is closed");
    if (routed.without_card) return submit_without_card(routed);
    return experts_.submit(routed);
  }
  Status collect(kernels::SumsView sums, std::span<std::uint8_t> failed) override {
    note('c', std::to_string(open_[0]));
    std::shift_left(open_.begin(), open_.begin() + static_cast<std::ptrdiff_t>(n_open_--), 1);
    TERRACE_RETURN_IF_ERROR(experts_.collect(sums, failed));
    if (step() < first_wrong_ || step() > found_in_) return {};
    if (step() == found_in_) return Error(ErrorCode::kUncertain, "box1:9000: computes wrong");
    for (std::size_t row = 0; row < failed.size(); ++row) sums.row(row)[0] += std::int64_t{1} << sums.shift;
    return {};
  }

  std::size_t progressed = 0;

 private:
  // Pairs of experts in `part` weigh nothing: what is left is what the others give.
  Status submit_without_card(legs::RoutedRows routed) {
    const std::size_t n_experts = part.size() / n_layers_;
    const std::size_t n_pairs = std::size_t{routed.n_rows} * top_k_;
    others_.assign(routed.weights, routed.weights + n_pairs);
    for (std::size_t i = 0; i < n_pairs; ++i)
      if (part[routed.layer * n_experts + routed.experts[i]].gate != nullptr) others_[i] = 0;
    routed.weights = others_.data();
    routed.without_card = false;
    return experts_.submit(routed);
  }

  legs::RoutedExperts& experts_;
  const std::uint32_t n_layers_, top_k_;
  std::vector<float> others_;
  std::uint64_t clean_ = 0;
  std::uint64_t first_wrong_ = 0, found_in_ = 0;
  std::uint32_t fail_in_ = 0;
  bool elsewhere_ = false;
  std::array<std::uint32_t, legs::kMostLayersOpen> open_{};  // layers
  std::size_t n_open_ = 0;
  std::string journal_;
  legs::Priority last_priority_ = legs::Priority::kDecode;
};

class ModelUnderTest {
 public:
  ModelUnderTest(const std::filesystem::path& path, const arch::TrunkOptions& options, Parallel& parallel)
      : file_(value_of(gguf::File::open(path))),
        info_(value_of(arch::describe(file_, options))),
        ops_(value_of(kernels::select_ops(kernels::detect_cpu_features(), options.isa))),
        kernels_(layer_kernels(options)),
        owners_(1, {"host"}, info_.n_layers, info_.n_experts,
                std::vector<std::uint16_t>(std::size_t{info_.n_layers} * info_.n_experts, 0)),
        leg_(
            owners_, [&](std::uint32_t layer, std::uint16_t expert) { return slab(layer, expert); }, kernels_, parallel,
            ops_),
        dispatcher_(owners_, {&leg_}, kernels_, info_.top_k, parallel, ops_),
        tap_(dispatcher_, info_),
        trunk_(value_of(arch::make_trunk(file_, options, tap_, parallel))) {}

  arch::Trunk& trunk() { return *trunk_; }
  Tap& tap() { return tap_; }
  const gguf::File& file() const { return file_; }
  const arch::ModelInfo& info() const { return info_; }
  // [n_layers, n_experts]
  std::vector<kernels::SlabView> all_slabs() const {
    std::vector<kernels::SlabView> all;
    for (std::uint32_t layer = 0; layer < info_.n_layers; ++layer)
      for (std::uint32_t expert = 0; expert < info_.n_experts; ++expert)
        all.push_back(slab(layer, static_cast<std::uint16_t>(expert)));
    return all;
  }

 private:
  const gguf::TensorInfo& part(std::uint32_t layer, const char* name) const {
    return *value_of(file_.get_tensor("blk." + std::to_string(layer) + ".ffn_" + name + "_exps.weight"));
  }
  std::vector<kernels::ExpertKernels> layer_kernels(const arch::TrunkOptions& options) const {
    std::vector<kernels::ExpertKernels> all;
    for (std::uint32_t layer = 0; layer < info_.n_layers; ++layer) {
      const gguf::TensorInfo& gate = part(layer, "gate");
      const kernels::ExpertShape shape = {.gate = gate.type,
                                          .up = part(layer, "up").type,
                                          .down = part(layer, "down").type,
                                          .d_model = info_.d_model,
                                          .ff = static_cast<std::uint32_t>(gate.shape[1])};
      all.push_back(value_of(
          kernels::select_expert_kernels(shape, kernels::detect_cpu_features(), options.isa, options.activations)));
    }
    return all;
  }
  const std::byte* bytes_of(std::uint32_t layer, const char* name, std::uint16_t expert) const {
    const gguf::TensorInfo& tensor = part(layer, name);
    return file_.data(tensor).data() + tensor.bytes / info_.n_experts * expert;
  }
  kernels::SlabView slab(std::uint32_t layer, std::uint16_t expert) const {
    return {bytes_of(layer, "gate", expert), bytes_of(layer, "up", expert), bytes_of(layer, "down", expert)};
  }

  gguf::File file_;
  arch::ModelInfo info_;
  kernels::Ops ops_;
  std::vector<kernels::ExpertKernels> kernels_;
  legs::OwnerTable owners_;
  legs::HostLeg leg_;
  legs::Dispatcher dispatcher_;
  Tap tap_;
  std::unique_ptr<arch::Trunk> trunk_;
};

// A copy of a model in the test's temporary folder with `bytes` written at an offset into one tensor.
inline std::filesystem::path copy_with(const std::filesystem::path& model, const std::string& tensor,
                                       std::uint64_t offset, std::span<const std::byte> bytes) {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::filesystem::path copy =
      std::filesystem::path(testing::TempDir()) / (std::string(test->name()) + "-" + model.filename().string());
  std::filesystem::copy_file(model, copy, std::filesystem::copy_options::overwrite_existing);
  const auto file = value_of(gguf::File::open(model));
  std::fstream out(copy, std::ios::binary | std::ios::in | std::ios::out);
  out.seekp(static_cast<std::streamoff>(value_of(file.get_tensor(tensor))->file_offset + offset));
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!out) throw std::runtime_error("cannot write " + copy.string());
  return copy;
}

inline std::filesystem::path tiny_model(const std::string& name) { return data_dir() / "tiny" / (name + ".gguf"); }

inline std::string xxh3(std::span<const float> values) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(values.data(), values.size_bytes())));
  return text;
}

inline std::int32_t argmax(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

inline nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot open " + path.string());
  return nlohmann::json::parse(in);
}

// One stream of a trunk, closed at the end.
class Sequence {
 public:
  explicit Sequence(arch::Trunk& trunk) : Sequence(trunk, value_of(trunk.open_stream())) {}
  Sequence(arch::Trunk& trunk, arch::StreamId id) : trunk_(trunk), id_(id) {}
  ~Sequence() { trunk_.close_stream(id_); }
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  arch::StreamId id() const { return id_; }

  // The rows of the next tokens.
  std::vector<arch::StepRow> rows(std::span<const std::int32_t> tokens, bool all_logits = false) const {
    std::vector<arch::StepRow> rows;
    std::uint32_t position = trunk_.length(id_);
    for (const std::int32_t token : tokens) rows.push_back({id_, position++, token, all_logits});
    return rows;
  }
  // Feeds tokens in steps of at most `batch` rows; the logits after the last one (or all of them, one after another).
  std::vector<float> feed(std::span<const std::int32_t> tokens, std::size_t batch, bool all_logits = false) {
    std::vector<float> logits;
    for (std::size_t first = 0; first < tokens.size(); first += batch) {
      const std::size_t n = std::min(batch, tokens.size() - first);
      auto step_rows = rows(tokens.subspan(first, n), all_logits);
      if (first + n == tokens.size()) step_rows.back().want_logits = true;
      const auto result = value_of(trunk_.step(step_rows));
      if (!result.failed.empty()) throw std::runtime_error(result.failed.front().error.text());
      logits.insert(logits.end(), result.logits.begin(), result.logits.end());
    }
    return logits;
  }

 private:
  arch::Trunk& trunk_;
  arch::StreamId id_;
};

// What a greedy run gives: its tokens and the hash of each step's logits.
struct Greedy {
  std::vector<std::int32_t> tokens;
  std::vector<std::string> hashes;
  bool operator==(const Greedy&) const = default;
};

inline Greedy greedy(Sequence& sequence, std::span<const std::int32_t> prompt, std::size_t batch,
                     std::size_t n_tokens) {
  Greedy out;
  std::vector<float> logits = sequence.feed(prompt, batch);
  while (true) {
    out.hashes.push_back(xxh3(logits));
    out.tokens.push_back(argmax(logits));
    if (out.tokens.size() == n_tokens) return out;
    logits = sequence.feed(std::span(out.tokens).last(1), 1);
  }
}

}  // namespace terrace::test
