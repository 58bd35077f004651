// What a plan will do, in tokens a second, from what was measured of its machines before anything was loaded
// (docs/planning.md has the formulas). Pure functions: nothing here was fitted to a run of the model.
//
// A step's time is the trunk's, and for every layer that of dispatching and of the leg that is done last. Legs of one
// machine share its cores: each is slowed by what was measured with all of them at once, as long as the others compute.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/function_ref.h"
#include "common/base/tensor_type.h"
#include "coordinator/legs/owner_table.h"

namespace terrace::planner {

// Rows of an expert at which its time is measured.
inline constexpr std::array<std::uint32_t, 4> kCostRows = {1, 8, 64, 512};

// Times in seconds, unless a name says otherwise.
struct ExpertCost {
  // Of an expert with kCostRows[i] rows, among as many experts as fill a slice.
  std::array<double, kCostRows.size()> each{};
  // Of a decode batch (one row) beside its experts: waking threads, handing out.
  double decode_fixed = 0;
};

// Layers whose experts have equal types and shapes.
struct LayerKind {
  std::uint64_t slab_bytes = 0;
  ActivationClass gate_class = ActivationClass::kF32;
  ActivationClass up_class = ActivationClass::kF32;
};

struct LegMeasurement {
  std::string name;
  bool is_host = false;
  std::uint64_t machine = 0;  // legs of equal numbers share cores
  std::uint32_t threads = 0;
  std::vector<ExpertCost> alone;     // [kinds] while no other leg computes
  std::vector<ExpertCost> together;  // [kinds] while all do
  // Of a node.
  double round_trip = 0;          // of a decode batch of one row, beyond computing and bytes over the rate
  double prompt_round_trip = 0;   // the same of a prompt batch
  double bytes_per_second = 0;    // of batches and replies; 0: bytes cost nothing
  double weights_per_second = 0;  // of the weights lane, bytes
};

struct DiskMeasurement {
  double direct_bytes_per_second = 0;       // one read at a time, as a step reads; 0: the file cannot be read directly
  double best_direct_bytes_per_second = 0;  // of the depths tried
  std::uint32_t best_depth = 0;
  double buffered_bytes_per_second = 0;
  double bytes_per_second() const {
    return direct_bytes_per_second > 0 ? direct_bytes_per_second : buffered_bytes_per_second;
  }
};

// The experts of one layer beside the legs' own time: quantising rows, cutting batches, adding sums.
struct StepMeasurement {
  double trunk = 0;     // of a whole step
  double dispatch = 0;  // of a layer
  // Measured whole, with batches and parts as the plan would cut them, over what the terms say: of decoding a step's
  // layers, of a prompt its step. 1: as they say.
  double whole_over_terms = 1;
};

struct Measurements {
  std::vector<LegMeasurement> legs;  // of the owner table, in its order, the host first
  StepMeasurement decode;            // one row
  StepMeasurement prompt;            // steps of prompt_rows
  double fan_out = 0;                // of a layer for each further node that has a batch
  DiskMeasurement disk;
};

struct ModelNumbers {
  std::uint32_t d_model = 0;
  std::uint32_t n_experts = 0;
  std::uint32_t top_k = 0;
  std::vector<LayerKind> kinds;
  std::vector<std::uint32_t> kind_of_layer;                // [layers with experts]
  std::vector<std::vector<std::uint32_t>> owned_of_layer;  // [layers with experts][legs] experts that each leg owns
  std::uint32_t prompt_rows = 512;                         // of one step
  std::uint32_t range_rows = 256;                          // of a prompt batch's row range at a node
  std::uint32_t prompt_parts = 1;                          // of a prompt's step at the most, with nodes (docs/adr/0025)
};
// Of an owner table's layers that have experts.
std::vector<std::uint32_t> owned_in_layer(const legs::OwnerTable& owners, std::uint32_t layer);

// Where a leg's experts are computed in a case: by itself, or, when it is lost or left out, by the host.
enum class Place : std::uint8_t {
  kItself,
  kHostMemory,  // by the host, whose memory holds them
  kHostFile,    // by the host, each slab read from its file for the batch that needs it
};
using Places = std::vector<Place>;  // [legs]; the host itself is always kItself

struct LegTerms {
  double round_trip = 0, bytes_out = 0, bytes_back = 0, wire = 0;  // of a layer, means; wire: its seconds for bytes
  double experts = 0, rows = 0, compute = 0;                       // distinct experts, rows an expert, seconds alone
  double read = 0;                                                 // host: seconds of reading the file
  double limits = 0;                                               // share of the layers' time in which it is the last
};

struct StepPrediction {
  double step = 0;          // seconds
  double trunk = 0;         // of it
  double dispatch = 0;      // of it, all layers
  double layers = 0;        // of it, all layers: the last leg of each, and fan-out
  double whole = 0;         // of it: what layers took whole beyond the terms, may be negative
  double hidden = 0;        // less: what a part of a prompt takes while the other parts' legs compute
  std::uint32_t parts = 1;  // of a prompt's step: as many as take the least time, few rather than many
  bool halves_pay = false;  // decode: of several streams, as two halves
  double tokens_per_second = 0;
  std::vector<LegTerms> legs;
  std::string limited_by;  // "trunk", or a leg's name, with what of it: "box1:9000 (its link)"
};

StepPrediction predict_decode(const ModelNumbers& model, const Measurements& measured, const Places& places);
StepPrediction predict_prompt(const ModelNumbers& model, const Measurements& measured, const Places& places);

// ---- parts, for tests and for what else wants them -----------------------------------------------------------------
// Seconds of an expert with so many rows (1 or more, not whole), by straight lines between the measured points.
double expert_time(const ExpertCost& cost, double rows);

// Of `n` experts of which each row takes `k`, how many distinct ones of `owned` some of `rows` rows are expected to
// take, and how many rows a pair there.
double expected_distinct(double n, double k, double owned, double rows);
double expected_rows(std::uint32_t n, std::uint32_t k, std::uint32_t owned, double rows);

// A leg's part in one layer.
struct LegTask {
  std::size_t machine = 0;  // tasks of equal numbers share cores
  double lead = 0;          // before it computes
  double work = 0;          // computing, alone
  double slow = 1;          // by how much computing takes longer while every leg of its machine computes
  double least = 0;         // its end is not before this: reading
  double tail = 0;          // after it has computed
};
// When each is done, all begun at 0. legs_of_machine: of each machine number, how many legs `slow` was measured with.
std::vector<double> finish_times(std::span<const LegTask> tasks, std::span<const std::size_t> legs_of_machine);

// Calls visit(counts, probability) for every way in which `k` distinct experts drawn from sum(owned) fall to the legs.
// At most kMostDraws ways: false and no call where there are more.
inline constexpr std::size_t kMostDraws = 20'000;
using VisitDraw = FunctionRef<void(std::span<const std::uint32_t> counts, double probability)>;
bool for_each_draw(std::span<const std::uint32_t> owned, std::uint32_t k, VisitDraw visit);

}  // namespace terrace::planner
