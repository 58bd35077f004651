// A card for tests: its memory is the host's, its kernels are the scalar ones, its failures are the test's.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "kernels/card/expert_card.h"
#include "kernels/cpu/activations/activations.h"
#include "kernels/registry/registry.h"
#include "tests/unit/kernels/card/fake_trunk.h"

namespace terrace::test {

class FakeCard final : public kernels::ExpertCard {
 public:
  explicit FakeCard(std::uint64_t slab_bytes, int index = 0) : memory_(slab_bytes + kAlignment) {
    facts_.index = index;
    facts_.name = "Fake 1";
    facts_.budget_bytes = facts_.total_bytes = slab_bytes;
  }

  const kernels::CardFacts& facts() const override { return facts_; }
  std::span<std::byte> slab_memory() const override {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    std::byte* const begin = const_cast<std::byte*>(memory_.data()) + (kAlignment - address % kAlignment) % kAlignment;
    return {begin, memory_.size() - kAlignment};
  }
  Result<double> read_rate() const override {
    TERRACE_RETURN_IF_ERROR(alive());
    if (reads_a_second == 0) return ExpertCard::read_rate();
    return reads_a_second;
  }
  Status check(const kernels::ExpertShape& shape) const override {
    if (shape.gate == no_kernel_for) return Error(ErrorCode::kUnsupported, "the fake card has no kernel for it");
    return {};
  }
  Status check(const kernels::CardProduct& product) const override {
    return check(kernels::ExpertShape{product.type, product.type, product.type, 0, 0});
  }
  Result<std::unique_ptr<kernels::CardMultiplier>> make_multiplier() override {
    return std::unique_ptr<kernels::CardMultiplier>(std::make_unique<FakeMultiplier>(*this));
  }
  Result<std::unique_ptr<kernels::CardExecutor>> make_executor() override {
    return std::unique_ptr<kernels::CardExecutor>(std::make_unique<FakeExecutor>(*this));
  }
  Result<std::unique_ptr<kernels::CardWriter>> make_writer() override {
    ++writers;
    return std::unique_ptr<kernels::CardWriter>(std::make_unique<FakeWriter>(*this));
  }
  Result<std::uint64_t> trunk_bytes(const kernels::CardTrunkModel& model,
                                    const kernels::CardTrunkLimits& limits) const override {
    if (model.head.type == no_kernel_for) return Error(ErrorCode::kUnsupported, "the fake card has no kernel for it");
    return trunk_takes + limits.max_kv_blocks;
  }
  std::uint64_t trunk_pinned_bytes(const kernels::CardTrunkModel&,
                                   const kernels::CardTrunkLimits& limits) const override {
    return trunk_pins_a_row * limits.max_rows;
  }
  Result<std::unique_ptr<kernels::CardTrunk>> make_trunk(kernels::CardTrunkModel model,
                                                         const kernels::CardTrunkLimits& limits, std::span<std::byte>,
                                                         const kernels::LoadProgress& on_progress) override {
    if (on_progress) on_progress(trunk_takes, trunk_takes);
    auto made = std::make_unique<FakeTrunk>(std::move(model), limits);
    trunk = made.get();
    return std::unique_ptr<kernels::CardTrunk>(std::move(made));
  }

  // As another card has them; before it is used.
  kernels::CardFacts& change_facts() { return facts_; }

  double reads_a_second = 0;  // 0: it has no such measure
  TensorType no_kernel_for = TensorType::kI8;
  bool broken = false;            // every later submit, collect and write fails
  bool computes_wrongly = false;  // one value of the first pair
  std::uint64_t pairs = 0;
  std::uint64_t products = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t writers = 0;      // made so far
  std::uint64_t trunk_takes = 0;  // of slab memory, beside a byte for each block of its cache
  std::uint64_t trunk_pins_a_row = 0;
  FakeTrunk* trunk = nullptr;  // made last; the trunk's owner has it

 private:
  static constexpr std::size_t kAlignment = 4096;

  Status alive() const {
    if (broken) return Error(ErrorCode::kInternal, "card 0 (Fake 1): it fell off the bus");
    return {};
  }

  class FakeExecutor final : public kernels::CardExecutor {
   public:
    explicit FakeExecutor(FakeCard& card) : card_(card), ops_(kernels::all_ops().front()), executor_(serial_, ops_) {}

    Status submit(const kernels::ExpertShape& shape, kernels::Executor::SlabOf slab_of, const kernels::BatchView& batch,
                  int shift) override {
      TERRACE_RETURN_IF_ERROR(card_.alive());
      TERRACE_RETURN_IF_ERROR(card_.check(shape));
      shape_ = shape;
      batch_ = batch;
      shift_ = shift;
      slabs_.clear();
      for (const kernels::Pair& pair : batch.pairs) slabs_[pair.expert] = slab_of(pair.expert);
      return {};
    }
    Result<kernels::ExecStats> collect(kernels::SumsView sums, std::span<std::uint8_t> failed,
                                       kernels::Executor::BetweenSlices between) override {
      TERRACE_RETURN_IF_ERROR(card_.alive());
      card_.pairs += batch_.pairs.size();
      sums.shift = shift_;
      TERRACE_ASSIGN_OR_RETURN(const kernels::ExpertKernels kernels, scalar());
      return executor_.run(
          kernels, [&](std::uint16_t expert) { return slabs_.at(expert); }, batch_, sums, failed, between);
    }
    Result<kernels::ExecStats> run_slots(const kernels::ExpertShape& shape, kernels::Executor::SlabOf slab_of,
                                         const kernels::BatchView& batch, std::span<float> out,
                                         std::span<std::uint8_t> failed,
                                         kernels::Executor::BetweenSlices between) override {
      TERRACE_RETURN_IF_ERROR(submit(shape, slab_of, batch, 24));
      card_.pairs += batch.pairs.size();
      TERRACE_ASSIGN_OR_RETURN(const kernels::ExpertKernels kernels, scalar());
      auto stats = executor_.run_slots(kernels, slab_of, batch, out, failed, between);
      if (card_.computes_wrongly) out[0] += 1.0f;
      return stats;
    }

   private:
    Result<kernels::ExpertKernels> scalar() const {
      return kernels::select_expert_kernels(shape_, {}, kernels::Isa::kScalar, kernels::Activations::kQuantised);
    }

    FakeCard& card_;
    Serial serial_;
    const kernels::Ops ops_;
    kernels::Executor executor_;
    kernels::ExpertShape shape_;
    kernels::BatchView batch_;
    int shift_ = 24;
    std::map<std::uint16_t, kernels::SlabView> slabs_;
  };

  class FakeMultiplier final : public kernels::CardMultiplier {
   public:
    explicit FakeMultiplier(FakeCard& card) : card_(card) {}
    Status run(std::span<const kernels::CardProduct> products, const float* x, std::size_t n_rows, Parallel&) override {
      TERRACE_RETURN_IF_ERROR(card_.alive());
      for (const kernels::CardProduct& product : products) {
        TERRACE_ASSIGN_OR_RETURN(const kernels::WeightKernels kernels,
                                 kernels::select_weight_kernels(product.type, {}, kernels::Isa::kScalar));
        const std::size_t bytes = row_bytes(kernels.activation, product.cols);
        std::vector<std::byte> row(bytes);
        for (std::size_t j = 0; j < n_rows; ++j) {
          const float* const values = x + j * product.cols;
          const auto* quantised = reinterpret_cast<const std::byte*>(values);
          if (kernels.activation != ActivationClass::kF32) {
            kernels::quantize_row_scalar(kernels.activation, values, product.cols, row.data());
            quantised = row.data();
          }
          kernels.dot_rows(product.w, row_bytes(product.type, product.cols), product.rows, &quantised, 1, product.cols,
                           product.y + j * product.rows, product.rows);
        }
        card_.products += 1;
      }
      return {};
    }

   private:
    FakeCard& card_;
  };

  class FakeWriter final : public kernels::CardWriter {
   public:
    explicit FakeWriter(FakeCard& card) : card_(card) {}
    using CardWriter::queue;
    // In pieces of which most slabs have several, and a shorter last one.
    Status queue(std::byte* to, std::uint64_t bytes, Fill fill) override {
      constexpr std::uint64_t kSmallPiece = 1000;
      TERRACE_RETURN_IF_ERROR(card_.alive());
      const std::span<std::byte> memory = card_.slab_memory();
      TERRACE_CHECK(to >= memory.data() && to + bytes <= memory.data() + memory.size(), "inside the card");
      for (std::uint64_t at = 0; at < bytes; at += kSmallPiece)
        TERRACE_RETURN_IF_ERROR(fill(at, {to + at, std::min(kSmallPiece, bytes - at)}));
      card_.bytes_written += bytes;
      return {};
    }
    Status finish() override { return card_.alive(); }

   private:
    FakeCard& card_;
  };

  kernels::CardFacts facts_;
  std::vector<std::byte> memory_;
};

}  // namespace terrace::test
