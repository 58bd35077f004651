// A trunk whose steps a card computes: streams, tokens and tables here, everything between embedding and logits there.
// Where all experts lie on the card a step is one call; else the card goes through the step by itself and its layers'
// rows are handed to the legs as they come. For traces, and of many rows, the layers come back here one by one: those
// of many rows in parts, so that the card is at one part while the legs are at others.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/base/parallel.h"
#include "common/base/result.h"
#include "coordinator/arch/parts/gqa.h"
#include "coordinator/arch/parts/matrix.h"
#include "coordinator/arch/parts/rows.h"
#include "coordinator/arch/parts/streams.h"
#include "coordinator/arch/trunk.h"
#include "coordinator/arch/trunk_options.h"
#include "coordinator/kv/cache.h"
#include "coordinator/legs/routed_experts.h"
#include "kernels/card/card_trunk.h"
#include "kernels/cpu/ops/ops.h"

namespace terrace::arch {

// Cache blocks in a card's memory.
class CardBlocks final : public kv::BlockPool {
 public:
  // `card` is borrowed.
  CardBlocks(kernels::CardTrunk& card, std::uint64_t n_blocks);
  std::optional<std::uint32_t> take() override;
  void give_back(std::uint32_t block) override { free_.push_back(block); }
  Status copy(std::uint32_t to, std::uint32_t from) override { return card_.copy_block(to, from); }

 private:
  kernels::CardTrunk& card_;
  std::vector<std::uint32_t> free_;
};

struct StepsOnCardParts {
  ModelInfo info;
  kv::CacheShape cache;
  GqaShape attention;
  Matrix embedding;      // borrows the file's mapping
  TrunkOptions options;  // on_card is set
  kernels::Ops ops;
  std::unique_ptr<kernels::CardTrunk> card;
};

class StepsOnCard final : public Trunk {
 public:
  // Both are borrowed.
  StepsOnCard(StepsOnCardParts parts, legs::RoutedExperts& experts, Parallel& parallel);

  const ModelInfo& info() const override { return parts_.info; }
  std::size_t max_rows() const override { return parts_.options.on_card->max_rows; }
  std::uint32_t context() const override { return cache_.context(); }
  Result<StreamId> open_stream() override { return streams_.open(); }
  Result<StreamId> fork_stream(StreamId from, std::uint32_t positions) override {
    return streams_.fork(from, positions);
  }
  void close_stream(StreamId stream) override { streams_.close(stream); }
  std::uint32_t length(StreamId stream) const override { return streams_.length(stream); }
  kv::Cache& cache() override { return cache_; }
  void set_trace(TraceFn trace) override { trace_ = std::move(trace); }
  std::uint64_t last_step() const override { return experts_.step(); }
  std::uint64_t uncertain_since() const override { return experts_.uncertain_since(); }

  Result<StepResult> step(std::span<const StepRow> rows) override;

 private:
  // A row whose experts' sum a leg could not give.
  struct FailedSum {
    std::uint32_t row = 0;
    std::uint32_t layer = 0;
    std::vector<std::uint16_t> experts;
  };

  // Of the rows that want logits, as StepResult has them.
  struct Heads {
    const float* logits = nullptr;
    std::span<const std::int32_t> largest;
  };

  // Which rows go through the layers together.
  struct Part {
    std::uint32_t number = 0;
    std::uint32_t first = 0;
    std::uint32_t n = 0;
    kernels::CardRoutedRows routed = {};  // of its layer at hand
    std::uint64_t wait_us = 0;            // that the step waited for them
  };

  Result<Heads> compute(std::span<const StepRow> rows);
  void cut_parts(std::uint32_t n_rows, std::size_t n_parts);
  kernels::CardStepSize size_of(std::span<const StepRow> rows);
  void fill(std::span<const StepRow> rows, std::uint32_t first, const kernels::CardStepInput& input);
  void fill_tables(std::span<const StepRow> rows, const kernels::CardStepInput& input);
  Result<Heads> whole();
  Result<Heads> beside_legs();
  Status layer_of_legs(std::uint32_t layer, bool own);

  Result<Heads> by_layers(std::span<const kernels::SlabView> slabs);
  Status take_turns(std::span<const kernels::SlabView> slabs);
  Part& part_of(std::size_t turn) { return step_parts_[turn % n_parts_]; }
  std::uint32_t layer_of(std::size_t turn) const { return static_cast<std::uint32_t>(turn / n_parts_); }
  Status wait_for_rows(Part& part);
  Result<kernels::CardRoutedRows> rows_of(std::uint32_t part);
  Result<Heads> end_parts();

  Status submit(const Part& part, std::uint32_t layer, bool own_on_card);
  Status collect(const Part& part, std::uint32_t layer);
  Status trace(const Part& part, std::uint32_t layer);
  const FailedSum* failed_sum(std::uint32_t row) const;
  void note_failures(const kernels::CardStepResult& result, const Part& part);

  StepsOnCardParts parts_;
  legs::RoutedExperts& experts_;
  Parallel& parallel_;
  TraceFn trace_;
  CardBlocks blocks_;
  kv::Cache cache_;
  Streams streams_;
  RowFailures failures_;
  std::vector<FailedSum> failed_sums_;
  std::array<Part, legs::kMostLayersOpen> step_parts_;
  std::size_t n_parts_ = 0;
  std::size_t n_open_ = 0;                // layers that were submitted and not collected
  std::vector<float> logits_;             // of all parts
  std::vector<std::int32_t> largest_;     // the same
  std::vector<std::uint8_t> failed_;      // scratch of collect()
  std::vector<StreamId> tables_;          // the part's streams, in the order of their block tables
  std::vector<std::uint32_t> table_of_;   // [max_streams] of those streams
  std::vector<std::uint32_t> positions_;  // [tables_] that the part's last row of the stream needs
};

}  // namespace terrace::arch
