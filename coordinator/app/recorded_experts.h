// Between a trunk and its legs, for who measures them: keeps what steps hand out and get back, and gives it back again
// without a leg, so that a trunk takes the very same steps alone and a leg the very same batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "coordinator/legs/routed_experts.h"

namespace terrace::app {

// The rows of one layer and what came of them.
struct RecordedLayer {
  std::uint32_t layer = 0;
  std::uint32_t n_rows = 0;
  legs::Priority priority = legs::Priority::kDecode;
  std::vector<float> rows;             // [n_rows, d_model]
  std::vector<std::uint16_t> experts;  // [n_rows, top_k]
  std::vector<float> weights;          // [n_rows, top_k]
  std::vector<std::int64_t> sums;      // [n_rows, d_model], without the pairs that the trunk's card computes itself
};

// One owner thread, the trunk's.
class RecordedExperts final : public legs::RoutedExperts {
 public:
  enum class Mode : std::uint8_t {
    kPass,         // as if it were not there
    kRecord,       // the same, and remembers
    kGiveBack,     // what was recorded first comes back first; no leg hears of it, but the trunk's card has its part
    kGiveNothing,  // sums are 0 and no card has a part: the trunk alone
  };
  // `experts` is borrowed.
  RecordedExperts(legs::RoutedExperts& experts, std::size_t d_model, std::size_t top_k)
      : experts_(experts), d_model_(d_model), top_k_(top_k) {}

  // Between steps. kRecord forgets what was recorded before; kGiveBack begins with the first again.
  void set(Mode mode);
  std::span<const RecordedLayer> recorded() const { return recorded_; }

  void begin_step() override { experts_.begin_step(); }
  std::uint64_t step() const override { return experts_.step(); }
  std::uint64_t uncertain_since() const override { return experts_.uncertain_since(); }
  bool computes_elsewhere() const override { return experts_.computes_elsewhere(); }
  std::span<const kernels::SlabView> slabs_on_card() override;
  std::span<const kernels::SlabView> part_on_card() override;
  bool launches_on_card() const override { return experts_.launches_on_card(); }
  void count_on_card(const std::uint16_t* experts, std::uint32_t n_rows, std::uint64_t ns) override;
  Status submit(const legs::RoutedRows& routed) override;
  Status collect(kernels::SumsView sums, std::span<std::uint8_t> failed) override;
  Status abandon() override;
  void progress() override;

 private:
  bool hands_out() const { return mode_ == Mode::kPass || mode_ == Mode::kRecord; }

  legs::RoutedExperts& experts_;
  const std::size_t d_model_, top_k_;
  Mode mode_ = Mode::kPass;
  std::vector<RecordedLayer> recorded_;
  std::size_t collected_ = 0;  // of them
};

}  // namespace terrace::app
