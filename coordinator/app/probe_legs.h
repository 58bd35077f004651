// Measures legs with a probe's model: real sessions, lanes and kernels, experts of the real types and shapes.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <random>
#include <vector>

#include "common/threads/pool.h"
#include "coordinator/app/probe_model.h"
#include "coordinator/legs/dispatcher.h"
#include "coordinator/legs/host_leg.h"
#include "coordinator/legs/node_session.h"
#include "coordinator/legs/routed_experts.h"
#include "coordinator/planner/prediction.h"

namespace terrace::app {

// One owner thread: the one that takes steps in a run.
class ProbeLegs {
 public:
  // Opens a probe's session with each node; controls[i] is the node of leg i + 1. options: as a run opens its own; a
  // prompt step has max_rows. trunk_between: seconds that the trunk takes of a decode step between two layers' experts.
  // All that is borrowed outlives it.
  // Errors name the node. From here on all measuring together has kTimeLimit: then kDeadline, so that a node that is
  // slow at everything is not waited for.
  static constexpr std::chrono::seconds kTimeLimit{170};
  static Result<std::unique_ptr<ProbeLegs>> open(const ProbeModel& model, Pool& pool, const kernels::Ops& ops,
                                                 transport::Transport& transport,
                                                 std::vector<std::unique_ptr<legs::NodeControl>> controls,
                                                 const legs::NodeSessionOptions& options, double trunk_between);
  ~ProbeLegs();

  // Of a node's machine, as it says.
  std::uint64_t cache_bytes(std::size_t leg) const { return nodes_[leg - 1]->probed().cache_bytes; }

  // Every leg's costs, alone and all at once; round trips, rates. machine and threads of the host are the caller's.
  Result<std::vector<planner::LegMeasurement>> measure_legs();
  // What a further node adds to a layer whose batches all nodes get.
  Result<double> measure_fan_out();
  // A layer's dispatching beside the host's own computing, which has all experts here.
  Result<double> measure_dispatch(std::uint32_t rows, std::uint32_t top_k);
  // Whether there are layers of such rows of which leg i owns owned[i] experts: a leg may have too few for it
  // (kRefused).
  Status check_layers(std::uint32_t rows, std::uint32_t top_k, std::span<const std::uint32_t> owned);
  // The experts of a trunk's layers: the probe's instead of the model's, drawn anew for each row, for rows of the
  // probe's, by all legs as in a run.
  class Layers;

 private:
  struct Batch;
  struct Time {
    double sending = 0, total = 0, compute = 0;
  };
  ProbeLegs(const ProbeModel& model, Pool& pool, const kernels::Ops& ops, const legs::NodeSessionOptions& options,
            double trunk_between);
  legs::Leg& leg(std::size_t i) { return i == 0 ? static_cast<legs::Leg&>(*host_) : nodes_[i - 1]->leg(); }
  std::size_t n_legs() const { return nodes_.size() + 1; }

  Status check_time(std::size_t leg);
  void keep_pace(std::uint32_t rows);
  void choose_first(std::size_t leg, std::uint32_t rows);
  // E experts, the next ones of the leg's, with `rows` rows each.
  Batch make_batch(std::size_t leg, std::size_t kind, std::uint32_t rows, std::uint32_t experts);
  Result<Time> run(std::size_t leg, std::size_t kind, std::uint32_t rows, std::uint32_t experts);
  Result<std::vector<Time>> run_all(std::size_t kind, std::uint32_t rows, std::span<const std::uint32_t> experts);
  std::uint32_t experts_for(std::size_t leg, std::uint32_t rows) const;
  Status measure_alone(std::size_t leg, std::size_t kind, planner::LegMeasurement& measured);
  Status measure_together(std::size_t kind, std::vector<planner::LegMeasurement>& measured);
  Status measure_link(std::size_t leg, planner::LegMeasurement& measured);
  void draw(std::uint32_t rows, std::uint32_t top_k, std::span<const std::uint32_t> owned, bool new_layer);
  Result<double> run_layer(std::size_t kind, std::uint32_t rows, std::uint32_t top_k);

  const ProbeModel& model_;
  Pool& pool_;
  const legs::NodeSessionOptions options_;
  std::unique_ptr<legs::HostLeg> host_;
  std::vector<std::unique_ptr<legs::NodeSession>> nodes_;
  std::unique_ptr<legs::Dispatcher> dispatcher_;
  std::uint32_t top_k_;
  const std::chrono::duration<double> trunk_between_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::vector<std::uint32_t> next_;  // [legs] the expert that the next batch begins with
  std::vector<std::int64_t> sums_;
  std::vector<std::uint8_t> failed_;
  // Of draw(): [rows, top_k].
  std::vector<std::uint16_t> drawn_;
  std::vector<float> drawn_weights_;
  std::mt19937_64 random_{1};
};

class ProbeLegs::Layers final : public legs::RoutedExperts {
 public:
  // What check_layers() has allowed, for steps of at most the rows that a prompt is probed with. `legs` is borrowed.
  Layers(ProbeLegs& legs, std::uint32_t top_k, std::span<const std::uint32_t> owned)
      : legs_(legs), top_k_(top_k), owned_(owned.begin(), owned.end()) {}

  bool computes_elsewhere() const override { return !legs_.nodes_.empty(); }
  Status submit(const legs::RoutedRows& routed) override;
  Status collect(kernels::SumsView sums, std::span<std::uint8_t> failed) override;
  Status abandon() override { return legs_.dispatcher_->abandon(); }
  void progress() override { legs_.dispatcher_->progress(); }

  // Seconds since the last restart(): in submit() and collect(), and of them what drawing took, which a run has not.
  void restart() { inside_ = drawing_ = 0; }
  double inside() const { return inside_; }
  double drawing() const { return drawing_; }

 private:
  struct Drawn {
    std::vector<std::uint16_t> experts;  // [rows, top_k]
    std::vector<float> weights;
  };
  ProbeLegs& legs_;
  const std::uint32_t top_k_;
  const std::vector<std::uint32_t> owned_;  // [legs]
  std::array<Drawn, legs::kMostLayersOpen> drawn_;
  std::size_t n_submitted_ = 0;
  std::uint32_t layer_ = 0;
  double inside_ = 0, drawing_ = 0;
};

}  // namespace terrace::app
