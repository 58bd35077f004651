// Which leg owns which expert in an epoch: immutable once made, numbered by its epoch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/function_ref.h"
#include "common/base/result.h"

namespace terrace::legs {

// Whether a leg could compute the slab now, though the plan gives it to another: asked of legs that are there only.
using HoldsSlab = FunctionRef<bool(std::size_t leg, std::uint32_t layer, std::uint16_t expert)>;

class OwnerTable {
 public:
  // `owners` [n_layers, n_experts]: index into leg_names; an index beyond them aborts (planner/share.h makes tables of
  // what users write).
  OwnerTable(std::uint64_t epoch, std::vector<std::string> leg_names, std::uint32_t n_layers, std::uint32_t n_experts,
             std::vector<std::uint16_t> owners);

  std::uint64_t epoch() const { return epoch_; }
  std::uint32_t n_layers() const { return n_layers_; }
  std::uint32_t n_experts() const { return n_experts_; }
  std::size_t n_legs() const { return leg_names_.size(); }
  const std::string& leg_name(std::size_t leg) const { return leg_names_[leg]; }
  const std::vector<std::string>& leg_names() const { return leg_names_; }

  // [n_experts] leg indices of a layer.
  std::span<const std::uint16_t> owners(std::uint32_t layer) const;
  // The experts of a layer that `leg` owns, rising.
  std::vector<std::uint16_t> experts(std::size_t leg, std::uint32_t layer) const;
  // Slabs that `leg` owns over all layers.
  std::uint64_t n_slabs(std::size_t leg) const;

 private:
  std::uint64_t epoch_;
  std::vector<std::string> leg_names_;
  std::uint32_t n_layers_;
  std::uint32_t n_experts_;
  std::vector<std::uint16_t> owners_;  // [n_layers, n_experts]
};

}  // namespace terrace::legs
