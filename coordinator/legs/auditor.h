// Checks what nodes compute (docs/adr/0019): chooses some pairs of each layer, has the node give their outputs as they
// are (form `slots`), computes them here too, and compares by ==. What enters the layer's sum is our own output, so a
// checked pair is never wrong. A node whose output differs is put out, and what it gave since its last clean audit is
// not certain.
//
// Choice     By a hash of seed, step, layer, row and expert: the same run chooses the same pairs. Beside that, a node
//            that has pairs and no clean audit for `at_least_every` gets one of them checked, in a layer drawn by step.
// Coverage   A node that computes a share w of its pairs wrong passes n audited pairs with probability (1-w)^n. A node
//            that means to deceive sees which batches are audits: against that only fraction 1 helps.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/parallel.h"
#include "common/base/result.h"
#include "coordinator/legs/host_leg.h"
#include "coordinator/legs/leg.h"
#include "coordinator/legs/routed_experts.h"
#include "kernels/cpu/ops/ops.h"
#include "kernels/executor/executor.h"

namespace terrace::legs {

inline constexpr double kDefaultAudit = 1.0 / 4096;

struct AuditOptions {
  double fraction = kDefaultAudit;  // of the pairs that nodes compute, more than 0; 1: every one, before it is used
  std::chrono::nanoseconds at_least_every = std::chrono::minutes(1);
  std::uint64_t seed = 0;
  StepClock* clock = nullptr;  // null: the steady one
};

// The model as audits need it.
struct AuditModel {
  std::vector<kernels::ExpertKernels> kernels;  // [n_layers]
  SlabLookup lookup;                            // every expert's bytes in our own file
  // A slab's id in hex, for messages.
  std::function<std::string(std::uint32_t layer, std::uint16_t expert)> slab_id;
};

// One owner thread, the step's. A layer: take() for each node's pairs, submit(), collect(). Those that are under way at
// the same time have different places, below kMostLayersOpen.
class Auditor {
 public:
  // Pairs of one batch of slots, so that nodes and lanes have room for its reply (docs/wire.md 6).
  static constexpr std::size_t kMostPairs = 128;
  // Bytes that an auditor of these layers takes at the most for batches of `n_rows` rows: scratch as of a leg's
  // executor, though its slices are shorter, two answers of a piece, and the pairs of each of `n_nodes` nodes.
  static std::uint64_t scratch_bytes(std::span<const kernels::ExpertKernels> layers, std::size_t n_workers,
                                     std::size_t n_rows, std::size_t top_k, std::size_t n_nodes);

  // `parallel` and `ops` outlive the auditor.
  Auditor(AuditOptions options, AuditModel model, Parallel& parallel, const kernels::Ops& ops);

  // Called between slices of a computation, so that bytes of legs move meanwhile.
  void set_between_slices(std::function<void()> hook) { between_slices_ = std::move(hook); }

  // Steps are numbered by who takes them, rising.
  void begin_step(std::uint64_t step);
  // Takes those of `pairs` that are to be checked out of it. `leg` answers range by range; batch: what its batch of
  // this layer has beside pairs. Everything is borrowed until collect() returns, but `pairs`.
  void take(std::size_t place, Leg& leg, const LegBatch& batch, std::vector<kernels::Pair>& pairs);
  // Sends what was taken, as far as nodes have room. A node that fails here is heard of in collect().
  void submit(std::size_t place);
  // Computes what was taken, adds it into `sums` and `failed` as Leg::collect() does, and compares with the nodes'
  // answers. A node that gives none within its soft limit is late, or lost, and not wrong for that; the sums are
  // complete all the same. kUncertain: a node computed wrong, and is put out (Leg::put_out()); with fraction 1 that is
  // no error, as nothing of it was used.
  Status collect(std::size_t place, kernels::SumsView sums, std::span<std::uint8_t> failed);
  // After kUncertain: results of this step and later ones may be wrong.
  std::uint64_t uncertain_since() const { return uncertain_since_; }
  // Of `leg`'s name: since which step nothing of it was checked; 0: never heard of.
  std::uint64_t checked_until(const std::string& leg) const;

 private:
  // What is known of the node of one name.
  struct Book {
    std::string name;
    std::uint64_t clean_step = 0;  // of its last clean audit; without one, of its first pairs
    StepClock::TimePoint clean_at;
    bool due = true;                 // for at_least_every
    std::uint32_t due_layer = 0;     // in this layer or a later one
    std::uint32_t n_unanswered = 0;  // in a row
  };
  // A batch of slots on its way.
  struct Piece {
    std::span<const kernels::Pair> pairs;
    LegBatch batch;
    std::optional<Ticket> ticket;
  };
  // What was taken of one node in this layer.
  struct Work {
    Leg* leg = nullptr;
    std::size_t book = 0;
    LegBatch batch;
    RowRange range;  // the batch's only one
    std::vector<kernels::Pair> pairs;
    std::size_t n_sent = 0;  // pairs in pieces
    Piece pieces[2];
  };

  // What was taken in a layer.
  struct Layer {
    std::vector<std::unique_ptr<Work>> works;  // kept for their memory; the first n_works are the layer's
    std::size_t n_works = 0;
  };

  std::size_t book_of(const std::string& name);
  bool is_chosen(std::uint32_t layer, const kernels::Pair& pair) const;
  void make_due(std::size_t book);
  std::size_t most_pairs(const LegBatch& batch) const;
  void submit_next(Work& work, Piece& piece);
  void compute(const Piece& piece, kernels::SumsView sums, std::span<std::uint8_t> failed);
  Status await(Work& work, Ticket ticket);
  void compare(Work& work, Piece& piece);
  void unanswered(Work& work, const Error& why);
  void found_wrong(Work& work, std::uint16_t expert, const std::string& how);

  AuditOptions options_;
  AuditModel model_;
  const kernels::Ops& ops_;
  kernels::Executor executor_;
  StepClock& clock_;
  std::function<void()> between_slices_;
  std::uint64_t threshold_;  // of a pair's hash
  std::uint64_t step_ = 0;
  std::uint64_t step_hash_ = 0;
  std::vector<Book> books_;
  std::array<Layer, kMostLayersOpen> layers_;
  std::vector<kernels::Pair> rest_;                      // scratch of take()
  std::vector<float> ours_, theirs_;                     // [pairs of a piece, d_model]
  std::vector<std::uint8_t> our_failed_, their_failed_;  // [n_rows]
  std::vector<pollfd> waits_;
  std::optional<Error> wrong_;  // found in this layer
  std::uint64_t uncertain_since_ = 0;
  std::optional<std::uint64_t>
      verdict_step_;  // in which a node was found wrong last: of all of that step the least counts
};

}  // namespace terrace::legs
