// Grouped-query attention of one layer over the rows of a step: projections, per-head norms, RoPE, the cache, softmax
// attention, output projection (docs/numerics.md 8).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/parallel.h"
#include "coordinator/arch/parts/matrix.h"
#include "coordinator/arch/parts/rows.h"
#include "coordinator/arch/trunk.h"
#include "coordinator/kv/cache.h"
#include "kernels/cpu/ops/ops.h"

namespace terrace::arch {

// What all layers have in common. Query head h reads KV head h / (n_heads / n_kv_heads).
struct GqaShape {
  std::uint32_t n_heads = 0;
  std::uint32_t n_kv_heads = 0;
  std::uint32_t key_dim = 0;
  std::uint32_t value_dim = 0;
  std::uint32_t n_rot = 0;  // leading dimensions of a head that are rotated
  kernels::RopePairing pairing = kernels::RopePairing::kNeox;
  double rope_base = 10000;
  kernels::RopeScaling rope_scaling;
  float score_scale = 0;
  float norm_eps = 0;
};

// One layer's weights, borrowed from the file's mapping.
struct GqaWeights {
  Matrix q;                       // [n_heads * key_dim, d_model]
  Matrix k;                       // [n_kv_heads * key_dim, d_model]
  Matrix v;                       // [n_kv_heads * value_dim, d_model]
  Matrix output;                  // [d_model, n_heads * value_dim]
  const float* q_norm = nullptr;  // [key_dim], or null: no norm
  const float* k_norm = nullptr;  // [key_dim], or null: no norm
};

// One owner thread. Memory grows to the largest step and is kept.
class GqaAttention {
 public:
  // All borrowed; the cache has the shape's heads and dimensions.
  GqaAttention(const GqaShape& shape, kv::Cache& cache, const kernels::Ops& ops, Parallel& parallel,
               Multiplier& multiplier);

  // Begins a step: the positions of `rows` are reserved in the cache; rows live until its last layer. most_at_once: of
  // one run().
  void begin(std::span<const StepRow> rows, std::size_t most_at_once);
  // out [x.n_rows(), d_model] = the attention output of the step's rows from `first` on, of which x holds the normed
  // rows. Stores their keys and values; those of the step's rows before are stored. `layer` numbers the cache's layers.
  void run(std::uint32_t layer, const GqaWeights& weights, std::size_t first, ActivationRows& x, RowFailures& failures,
           float* out);

 private:
  // Memory of one worker in attend().
  struct Worker {
    std::vector<const std::byte*> k, v;  // block bases of one stream and head; see grow_tables()
    std::vector<float> scratch;
  };

  void grow_tables(std::size_t most_keys);

  std::size_t q_width() const { return std::size_t{shape_.n_heads} * shape_.key_dim; }
  std::size_t k_width() const { return std::size_t{shape_.n_kv_heads} * shape_.key_dim; }
  std::size_t v_width() const { return std::size_t{shape_.n_kv_heads} * shape_.value_dim; }
  std::size_t o_width() const { return std::size_t{shape_.n_heads} * shape_.value_dim; }

  // A `row` below counts from the first one of the run().

  // What of a row is not finite, or cannot be stored: bits of found_.
  enum Found : std::uint8_t { kQueries = 1, kKeys = 2, kValues = 4 };

  void rotate(std::size_t row, const float* norm, std::size_t n_heads, float* heads) const;
  void finish_head(std::size_t row, std::uint32_t layer, std::uint32_t kv_head, const GqaWeights& weights);
  void store(std::size_t row, std::uint32_t layer, std::uint32_t kv_head);
  void report(std::size_t row, std::uint32_t layer, RowFailures& failures);
  // One head of a row, in items of its own for some of its splits where there are fewer heads than work for workers.
  void cut_heads(std::size_t n_rows, std::size_t most_keys);
  void attend(std::size_t row, std::uint32_t layer, std::uint32_t kv_head, std::size_t part, Worker& worker);

  GqaShape shape_;
  kv::Cache& cache_;
  const kernels::Ops& ops_;
  Parallel& parallel_;
  Multiplier& multiplier_;

  std::span<const StepRow> rows_;       // of the step
  std::size_t first_ = 0;               // of them in the run()
  bool rows_are_alone_ = false;         // no row attends to another one's keys: decoding
  std::vector<float> cosines_, sines_;  // [rows of the step, n_rot / 2]
  std::vector<float> q_, k_, v_, o_;    // [n_rows, width]
  std::size_t n_parts_ = 1;             // items of a head
  std::size_t most_splits_ = 1;         // of a row
  std::vector<float> states_;           // [n_rows, n_kv_heads, most_splits_, state]; unused with one part
  std::vector<std::uint32_t> left_;     // [n_rows, n_kv_heads] parts that have not ended; likewise
  std::vector<std::uint8_t> found_;     // [n_rows] set by workers, Found
  ActivationRows heads_out_;            // o_ for the output projection
  std::vector<Worker> workers_;
};

}  // namespace terrace::arch
