// The model that a probe computes with: experts of a model's own types and shapes, made in memory instead of read, each
// leg with some of its own (docs/planning.md).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/parallel.h"
#include "common/base/result.h"
#include "common/manifest/manifest.h"
#include "coordinator/app/pages.h"
#include "coordinator/legs/leg.h"
#include "coordinator/legs/node_session.h"
#include "coordinator/legs/owner_table.h"
#include "kernels/cpu/ops/ops.h"
#include "kernels/executor/executor.h"

namespace terrace::app {

struct ProbeModelInput {
  const manifest::ModelExperts& experts;
  const legs::OwnerTable& owners;                     // of the plan: host and nodes
  const std::vector<kernels::ExpertKernels>& layers;  // [n_layers], this machine's
  std::uint64_t leg_bytes = 0;  // of slabs that each leg gets, as far as its own share has as many
};

// Owner thread but for lookup(), which any thread may use.
class ProbeModel {
 public:
  // Makes the host's slabs and every id. kOutOfMemory: the host's slabs.
  static Result<std::unique_ptr<ProbeModel>> make(const ProbeModelInput& input, const kernels::Ops& ops,
                                                  Parallel& parallel);

  std::size_t n_kinds() const { return kernels_.size(); }
  const manifest::LayerShape& shape(std::size_t kind) const { return manifest_.layers[kind]; }
  std::uint32_t kind_of_layer(std::uint32_t layer) const { return kind_of_layer_[layer]; }  // of one with experts
  const std::vector<kernels::ExpertKernels>& kernels() const { return kernels_; }           // [kinds]
  const legs::OwnerTable& owners() const { return *owners_; }                               // kinds for layers
  // A leg's experts of each kind: [first, first + count).
  std::uint32_t first(std::size_t leg) const { return first_[leg]; }
  std::uint32_t count(std::size_t leg) const { return first_[leg + 1] - first_[leg]; }
  // It has as many as the leg's own share.
  bool has_whole_share(std::size_t leg) const { return whole_share_[leg]; }
  std::uint64_t leg_bytes(std::size_t leg) const { return count(leg) * slab_bytes_of_all_kinds_; }
  const legs::SessionModel& session_model() const { return *session_model_; }
  int shift() const { return manifest_.shift; }

  // Rows of ordinary size, in every class that some kind needs; and the weight that gives a pair of them a sum of the
  // width that sums of ordinary models have.
  std::uint32_t n_rows() const { return n_rows_; }
  kernels::RowsView rows(ActivationClass activation) const;
  const float* plain_rows() const { return plain_.data(); }
  float weight(std::size_t kind) const { return weights_[kind]; }

 private:
  ProbeModel() = default;
  void find_kinds(const ProbeModelInput& input);
  void cut_experts(const ProbeModelInput& input);
  Status make_slabs(Parallel& parallel);
  void make_rows(const kernels::Ops& ops);
  Status choose_weights(const kernels::Ops& ops);
  kernels::SlabView view(std::size_t kind, std::uint32_t expert) const;

  manifest::Manifest manifest_;  // its layers are the kinds
  std::vector<kernels::ExpertKernels> kernels_;
  std::vector<std::uint32_t> kind_of_layer_;  // [n_layers]
  std::vector<std::uint32_t> first_;          // [legs + 1]
  std::vector<bool> whole_share_;             // [legs]
  std::uint64_t slab_bytes_of_all_kinds_ = 0;
  std::optional<legs::OwnerTable> owners_;
  std::optional<Pages> host_slabs_;                     // [kinds][experts of the host], each at a multiple of 64
  std::vector<std::size_t> kind_begins_;                // [kinds] in host_slabs_
  std::vector<std::vector<std::byte>> first_of_nodes_;  // [legs - 1, kinds] the slab of a node's first expert
  std::optional<legs::SessionModel> session_model_;
  std::uint32_t n_rows_ = 0;
  std::vector<float> plain_;  // [n_rows, d_model]
  std::vector<std::byte> quantised_[kActivationClasses];
  std::vector<float> weights_;  // [kinds]
};

}  // namespace terrace::app
