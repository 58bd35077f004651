// What a trunk over another trunk passes on: all but step(), which is what such a trunk is made for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "coordinator/arch/trunk.h"

namespace terrace::arch {

class ForwardingTrunk : public Trunk {
 public:
  const ModelInfo& info() const override { return trunk_.info(); }
  std::size_t max_rows() const override { return trunk_.max_rows(); }
  std::uint32_t context() const override { return trunk_.context(); }
  Result<StreamId> open_stream() override { return trunk_.open_stream(); }
  Result<StreamId> fork_stream(StreamId from, std::uint32_t positions) override {
    return trunk_.fork_stream(from, positions);
  }
  void close_stream(StreamId stream) override { trunk_.close_stream(stream); }
  std::uint32_t length(StreamId stream) const override { return trunk_.length(stream); }
  std::uint64_t last_step() const override { return trunk_.last_step(); }
  std::uint64_t uncertain_since() const override { return trunk_.uncertain_since(); }
  kv::Cache& cache() override { return trunk_.cache(); }
  void set_trace(TraceFn trace) override { trunk_.set_trace(std::move(trace)); }

 protected:
  // Borrowed.
  explicit ForwardingTrunk(Trunk& trunk) : trunk_(trunk) {}

  Trunk& trunk_;
};

}  // namespace terrace::arch
