// A model's trunk on a card: dense matrices, norms, RoPE, the KV cache, attention, router and head, and, where every
// expert lies there too, the experts: the operations of a step behind one interface. Nothing here needs CUDA or a card.
//
// A step is begin() and then one of three:
//   run()        computes all of it;
//   start()      begins all of it at once, where it can (starts()). For each layer the caller takes routed(), has the
//                pairs of other legs computed while the card computes its own, puts their sums where sums() says and
//                calls give_sums(); then finish(), or give_up() where the step goes no further;
//   queue_layer()  layer by layer, in one part or more, each begun by itself: while the caller has one part's routed
//                rows computed by other legs, the card is at another's layer; then head() of each. For steps of many
//                rows, and for traces.
// Rows that are not finite fail alone and are told at the end.
//
// Bits     Those of the CPU's trunk (docs/numerics.md 8): every operation equals kernels/cpu/ops by ==, attention
//          included, so a row's bits depend neither on what shares its step nor on whether a graph was replayed (P4).
// Threads  One owner thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "common/base/tensor_type.h"
#include "kernels/cpu/ops/args.h"
#include "kernels/executor/executor.h"

namespace terrace::kernels {

// A matrix where it lies in host memory: [rows, cols], rows without gaps.
struct HostMatrix {
  TensorType type = TensorType::kF32;
  const std::byte* data = nullptr;
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  std::uint64_t bytes() const { return rows * row_bytes(type, cols); }
};

struct CardTrunkLayer {
  const float* attention_norm = nullptr;  // host [d_model]
  HostMatrix q, k, v, output;
  const float* q_norm = nullptr;       // host [key_dim], or null: no norm
  const float* k_norm = nullptr;       // host [key_dim], or null: no norm
  const float* expert_norm = nullptr;  // host [d_model]
  HostMatrix router;                   // [n_experts, d_model]
  ExpertShape experts;
};

// What a trunk is. Borrows the file's mapping.
struct CardTrunkModel {
  std::uint32_t d_model = 0;
  std::uint32_t vocabulary = 0;
  std::uint32_t n_heads = 0;  // query head h reads KV head h / (n_heads / n_kv_heads)
  std::uint32_t n_kv_heads = 0;
  std::uint32_t key_dim = 0;
  std::uint32_t value_dim = 0;
  std::uint32_t n_rot = 0;
  RopePairing pairing = RopePairing::kNeox;
  float score_scale = 0;
  float attention_norm_eps = 0;  // of q_norm and k_norm
  float norm_eps = 0;
  std::uint32_t n_experts = 0;
  std::uint32_t top_k = 0;
  bool scales_weights = false;  // the renormalised weights times expert_scale
  float expert_scale = 1;
  int shift = 24;
  std::vector<CardTrunkLayer> layers;
  const float* output_norm = nullptr;  // host [d_model]
  HostMatrix head;                     // [vocabulary, d_model]
};

// What it must hold.
struct CardTrunkLimits {
  KvType kv = KvType::kF16;
  std::uint32_t max_rows = 0;       // of a step
  std::uint32_t max_streams = 0;    // in a step
  std::uint32_t context = 0;        // positions of a stream
  std::uint64_t max_kv_blocks = 0;  // of all streams together, kKvBlockPositions positions each
  std::uint32_t max_parts = 1;      // of a step
};

// Where a step's input goes: pinned host memory, filled by the caller between begin() and the first computation.
struct CardStepInput {
  float* x = nullptr;                  // [n_rows, d_model] embedded tokens
  float* cosines = nullptr;            // [n_rows, n_rot / 2]
  float* sines = nullptr;              // [n_rows, n_rot / 2]
  std::uint32_t* positions = nullptr;  // [n_rows]
  std::uint32_t* n_keys = nullptr;     // [n_rows] position + 1
  std::uint32_t* tables = nullptr;     // [n_rows] number of the row's block table
  std::uint32_t* wanted = nullptr;     // [n_wanted] rows that want logits, rising
  std::uint32_t* blocks = nullptr;     // [n_tables, blocks_stride] cache block of positions 32i .. 32i + 31
  std::size_t blocks_stride = 0;
};

struct CardStepSize {
  std::uint32_t n_rows = 0;    // 1 .. max_rows
  std::uint32_t n_tables = 0;  // streams of the step
  std::uint32_t n_wanted = 0;
  std::uint32_t most_keys = 0;  // of a row
};

// What of a row was not finite first; in the order in which a layer computes them.
enum class CardFailure : std::uint8_t {
  kNormedBeforeAttention,
  kQueries,
  kKeys,
  kValues,
  kAttention,
  kResidualAfterAttention,
  kNormedBeforeExperts,
  kRouter,
  kExperts,
  kResidualAfterExperts,
  kNormedBeforeHead,
  kLogits,
};
struct CardRowFailure {
  std::uint32_t row = 0;
  std::uint32_t layer = 0;  // the number of layers: behind the last
  CardFailure what = CardFailure::kLogits;
};

// A layer's rows on their way to whoever computes the experts: pinned host memory, valid until the next layer of the
// same rows is queued, or the next call of a started step.
struct CardRoutedRows {
  const float* rows = nullptr;             // [n_rows, d_model]
  const std::uint16_t* experts = nullptr;  // [n_rows, top_k]
  const float* weights = nullptr;          // [n_rows, top_k]
};

struct CardStepResult {
  // Host memory, valid until the next step, or the next part's head().
  const float* logits = nullptr;  // [n_logits, vocabulary], of the rows that want them
  std::uint32_t n_logits = 0;
  // [n_logits] id of the largest logit, the lowest of equal ones; of a row that failed, any number.
  std::span<const std::int32_t> largest;
  const std::uint16_t* experts = nullptr;  // [n_layers, n_rows, top_k] in selection order
  std::span<const CardRowFailure> failures;
  std::uint64_t compute_ns = 0;  // of run(): the card's time
};

class CardTrunk {
 public:
  virtual ~CardTrunk() = default;

  CardStepInput begin(const CardStepSize& size) { return begin_part(size, 0); }
  // The whole step, experts included: slabs [n_layers, n_experts] in this card's memory, the same ones with each call.
  // kInternal, here and below: the card failed, now and for good; names it.
  virtual Result<CardStepResult> run(std::span<const SlabView> slabs) = 0;

  // Whether steps of this size are for start(): few rows, on a card whose kernels may wait for other legs.
  virtual bool starts(const CardStepSize& size) const = 0;
  // slabs [n_layers, n_experts] as run(), null parts where another leg has the expert; empty: this card has none.
  virtual Status start(std::span<const SlabView> slabs) = 0;
  // Looks until the layer's rows and choices are there; after some thousands of looks in vain give_way() is called, and
  // so on. Null: the calling thread has its CPU for itself.
  using GiveWay = void (*)();
  virtual Result<CardRoutedRows> routed(std::uint32_t layer, GiveWay give_way) = 0;
  Result<CardRoutedRows> routed(std::uint32_t layer) { return routed(layer, nullptr); }
  // sums() holds the sums of the other legs' pairs of `layer`: the card goes on.
  virtual void give_sums(std::uint32_t layer) = 0;
  virtual Result<CardStepResult> finish() = 0;
  // Ends a step that goes no further. A started one, whose sums will not come: the card goes through the rest of it
  // with whatever lies there, and nothing of it is of use. One in parts: what was queued is waited for. A few
  // milliseconds.
  virtual void give_up() = 0;

  // ---- layer by layer, in parts -----------------------------------------------------------------------------------
  // The rows of a step in parts 0, 1, ... below max_parts, in the order of the rows: each has tables, wanted rows and
  // numbers of rows of its own, and max_rows holds for all together. What is called of any is queued behind what was
  // called before: a part's rows may attend to those of parts whose same layer was queued before.
  virtual CardStepInput begin_part(const CardStepSize& size, std::uint32_t part) = 0;
  // Queues the part's next layer and returns: what others gave for the layer before, sums_of(part), is added with what
  // the card computed itself; attention and choice of experts; then the pairs of the card's own, `slabs` as start(),
  // the same ones for each layer of a step. Layers come from 0 on.
  virtual Status queue_layer(std::uint32_t part, std::uint32_t layer, std::span<const SlabView> slabs) = 0;
  // Rows and choices of the part's layer; nothing as long as they are not there. Does not wait.
  virtual Result<std::optional<CardRoutedRows>> poll_routed(std::uint32_t part) = 0;
  // The same, asleep until they are there: a few tens of microseconds longer than who looks again and again.
  virtual Result<CardRoutedRows> wait_routed(std::uint32_t part) = 0;
  // Pinned host memory for the sums of the other legs [n_rows of the part, d_model].
  virtual std::span<std::int64_t> sums_of(std::uint32_t part) = 0;
  std::span<std::int64_t> sums() { return sums_of(0); }
  // Of part 0, the only one: the sums of `layer` are added, and the residual rows [n_rows, d_model] come back: for
  // traces. Valid until the next call.
  virtual Result<const float*> add_and_read(std::uint32_t layer) = 0;
  // What others gave for the last layer is added, and the part ends.
  virtual Result<CardStepResult> head(std::uint32_t part) = 0;

  // Copies a cache block, all layers of it.
  virtual Status copy_block(std::uint32_t to, std::uint32_t from) = 0;
};

}  // namespace terrace::kernels
