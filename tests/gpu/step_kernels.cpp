#include "tests/gpu/step_kernels.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <random>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/expert_gemv/expert_gemv.h"
#include "kernels/cuda/greedy/greedy.h"
#include "kernels/cuda/trunk_ops/trunk_ops.h"
#include "kernels/cuda/weights/card_rows.h"
#include "tests/gpu/large_model.h"

namespace terrace::test {
namespace {

using namespace kernels;
using namespace kernels::cuda;
using namespace large_model;

constexpr std::uint32_t kLayers = 48;
// Rows of an expert, on average, from which the step takes the kernel for many; as in kernels/cuda/trunk.
constexpr std::uint32_t kManyRowsOfExpert = 4;
constexpr std::uint64_t kMostScratch = std::uint64_t{1} << 27;

// Makes the launches one by one. What lies between them has some values, not those of a step.
class Maker {
 public:
  Maker(BenchCard& card, const StepSize& size) : card_(card), n_(size.n_rows), depth_(size.depth) {}

  Status make() {
    TERRACE_RETURN_IF_ERROR(prepare());
    TERRACE_RETURN_IF_ERROR(make_norm());
    TERRACE_RETURN_IF_ERROR(make_projections());
    TERRACE_RETURN_IF_ERROR(make_attention());
    TERRACE_RETURN_IF_ERROR(make_choice());
    TERRACE_RETURN_IF_ERROR(make_experts());
    return make_head();
  }
  const std::vector<StepKernel>& made() const { return made_; }

 private:
  std::uint32_t pairs() const { return n_ * kTopK; }
  static double floats(double n) { return n * sizeof(float); }

  // Rows of x in the two forms that this model's matrices want, and the row's own values.
  Status prepare() {
    const std::uint64_t widest = std::max<std::uint64_t>(std::uint64_t{n_} * kQueries, pairs() * std::uint64_t{kWidth});
    TERRACE_ASSIGN_OR_RETURN(x_, card_.floats(std::uint64_t{n_} * kWidth));
    TERRACE_ASSIGN_OR_RETURN(norm_, card_.floats(kWidth));
    TERRACE_ASSIGN_OR_RETURN(h_, card_.floats(std::uint64_t{n_} * kWidth));
    TERRACE_ASSIGN_OR_RETURN(rows_, card_.room<std::byte>(row_stride(kQueries) * std::max(n_, pairs())));
    TERRACE_ASSIGN_OR_RETURN(q_, card_.floats(std::uint64_t{n_} * kQueries));
    TERRACE_ASSIGN_OR_RETURN(out_, card_.floats(std::max<std::uint64_t>(widest, kVocabulary)));
    TERRACE_ASSIGN_OR_RETURN(gate_up_, card_.floats(std::uint64_t{2} * pairs() * kExpertWidth));
    TERRACE_ASSIGN_OR_RETURN(failures_, card_.upload(std::vector<std::uint32_t>(n_, kNoFailure)));
    return {};
  }
  static std::uint64_t row_stride(std::uint32_t width) { return card_row_layout(256, width).bytes; }

  // Where call i has its weights of `bytes`: another place each time, until there are no more.
  const std::byte* weights(int i, std::uint64_t bytes) const {
    const std::uint64_t stride = (bytes + 255) / 256 * 256, places = BenchCard::kWeightBytes / stride;
    return card_.weights() + static_cast<std::uint64_t>(i) % places * stride;
  }
  static std::uint64_t matrix_bytes(TensorType type, std::uint32_t rows, std::uint32_t cols) {
    return rows * row_bytes(type, cols);
  }

  void add(std::string name, Limit limit, double amount, std::uint32_t of_a_step, std::function<Status(int)> queue) {
    made_.push_back({std::move(name), limit, amount, std::move(queue), of_a_step});
  }
  // A matrix times the rows: few are bound by its bytes, many by their multiply-adds.
  void add_product(std::string name, TensorType type, double bytes, double multiply_adds, std::uint32_t of_a_step,
                   std::function<Status(int)> queue) {
    if (n_ < 128) return add(std::move(name), Limit::kBytes, bytes, of_a_step, std::move(queue));
    add(std::move(name), type == TensorType::kF32 ? Limit::kF32 : Limit::kInt8, multiply_adds, of_a_step,
        std::move(queue));
  }
  GemvArgs product(TensorType type, std::uint32_t rows, std::uint32_t cols, float* y) const {
    GemvArgs args;
    args.type = type;
    args.weight_rows = rows;
    args.cols = cols;
    args.x = type == TensorType::kF32 ? reinterpret_cast<const std::byte*>(h_) : rows_;
    args.x_stride = card_row_bytes(type, cols);
    args.y = y;
    args.y_stride = rows;
    return args;
  }
  void add_dense(const char* name, TensorType type, std::uint32_t rows, std::uint32_t cols, std::uint32_t n_rows,
                 std::uint32_t of_a_step) {
    const GemvArgs args = product(type, rows, cols, out_);
    const std::uint64_t bytes = matrix_bytes(type, rows, cols);
    add_product(name, type, static_cast<double>(bytes), double{1} * n_rows * rows * cols, of_a_step, [=, this](int i) {
      return gemv_one(card_.stream(), args, {weights(i, bytes), 0, n_rows});
    });
  }

  // The residual with its norm, before attention: experts' sums, x twice, h and its card rows.
  Status make_norm() {
    ResidualArgs args;
    args.x = x_;
    args.n_rows = n_;
    args.n = kWidth;
    std::vector<std::int32_t> slots(pairs());
    std::iota(slots.begin(), slots.end(), 0);
    TERRACE_ASSIGN_OR_RETURN(args.experts.slots, card_.upload(slots));
    TERRACE_ASSIGN_OR_RETURN(args.experts.weights, card_.upload(std::vector<float>(pairs(), 0.125f)));
    args.experts.out = out_;
    args.experts.n_slots = kTopK;
    args.w = norm_;
    args.eps = 1e-6f;
    args.h = h_;
    args.out[0] = {ActivationClass::kA8x256, rows_, row_stride(kWidth)};
    args.failures = failures_;
    const double values = double{1} * n_ * kWidth;
    add("residual of experts, norm", Limit::kBytes,
        floats(values * (kTopK + 3)) + double{1} * n_ * static_cast<double>(row_stride(kWidth)), kLayers,
        [=, this](int) { return residual(card_.stream(), args); });
    return {};
  }

  Status make_projections() {
    const std::uint64_t q = matrix_bytes(TensorType::kQ4_K, kQueries, kWidth),
                        k = matrix_bytes(TensorType::kQ4_K, kKeys, kWidth),
                        v = matrix_bytes(TensorType::kQ6_K, kKeys, kWidth);
    add_product("Q, K and V", TensorType::kQ4_K, static_cast<double>(q + k + v),
                double{1} * n_ * (kQueries + 2.0 * kKeys) * kWidth, kLayers, [=, this](int i) {
                  const std::byte* const at = weights(i, q + k + v);
                  float* const y = out_;
                  return gemv_together(
                      card_.stream(),
                      std::array{GemvOfMany{product(TensorType::kQ4_K, kQueries, kWidth, y), {at, 0, n_}},
                                 GemvOfMany{product(TensorType::kQ4_K, kKeys, kWidth, gate_up_), {at + q, 0, n_}},
                                 GemvOfMany{product(TensorType::kQ6_K, kKeys, kWidth, gate_up_ + n_ * kKeys),
                                            {at + q + k, 0, n_}}});
                });
    return {};
  }

  Status make_cache() {
    const std::uint32_t keys = depth_ + n_, blocks = (keys + kKvBlockPositions - 1) / kKvBlockPositions;
    std::vector<std::uint32_t> table(blocks), positions(n_), n_keys(n_);
    std::iota(table.begin(), table.end(), 0u);
    std::iota(positions.begin(), positions.end(), depth_);
    std::iota(n_keys.begin(), n_keys.end(), depth_ + 1);
    // 1.0 in f16, whatever its place.
    const std::vector<std::uint16_t> values(std::size_t{blocks} * kKvBlockPositions * kKeys, 0x3c00);
    cache_.type = KvType::kF16;
    cache_.n_kv_heads = kKvHeads;
    cache_.head_dim = cache_.value_dim = kHeadDim;
    cache_.table_stride = blocks;
    TERRACE_ASSIGN_OR_RETURN(std::uint16_t* const k, card_.upload(values));
    TERRACE_ASSIGN_OR_RETURN(std::uint16_t* const v, card_.upload(values));
    cache_.k = reinterpret_cast<std::byte*>(k);
    cache_.v = reinterpret_cast<std::byte*>(v);
    TERRACE_ASSIGN_OR_RETURN(cache_.block_tables, card_.upload(table));
    TERRACE_ASSIGN_OR_RETURN(positions_, card_.upload(positions));
    TERRACE_ASSIGN_OR_RETURN(n_keys_, card_.upload(n_keys));
    TERRACE_ASSIGN_OR_RETURN(streams_, card_.upload(std::vector<std::uint32_t>(n_)));
    return {};
  }

  // What make_attention() adds.
  Result<HeadsArgs> heads_args() {
    TERRACE_RETURN_IF_ERROR(make_cache());
    HeadsArgs args;
    args.q = q_;
    args.k = h_;
    args.v = h_;
    args.n_rows = n_;
    args.n_heads = kHeads;
    args.q_norm = args.k_norm = norm_;
    args.eps = 1e-6f;
    args.n_rot = kHeadDim;
    TERRACE_ASSIGN_OR_RETURN(args.cosines, card_.floats(std::uint64_t{n_} * kHeadDim / 2));
    TERRACE_ASSIGN_OR_RETURN(args.sines, card_.floats(std::uint64_t{n_} * kHeadDim / 2));
    args.cache = cache_;
    args.streams = streams_;
    args.positions = positions_;
    args.failures = failures_;
    return args;
  }

  // As the step has it: one launch for a row, else two and the merge.
  Status make_attention() {
    TERRACE_ASSIGN_OR_RETURN(const HeadsArgs heads, heads_args());
    cuda::AttentionArgs args;
    args.cache = cache_;
    args.q = q_;
    args.q_stride = kQueries;
    args.streams = streams_;
    args.n_keys = n_keys_;
    args.n_rows = n_;
    args.n_heads = kHeads;
    args.max_keys = depth_ + n_;
    args.rows_are_alone = n_ == 1;
    args.scale = 0.088f;
    args.scratch_bytes = std::min(kMostScratch, attention_scratch_bytes(n_, kHeads, kHeadDim, args.max_keys));
    TERRACE_ASSIGN_OR_RETURN(std::byte* const scratch, card_.take(args.scratch_bytes));
    args.scratch = reinterpret_cast<float*>(scratch);
    AttentionRows rows;
    rows.out = {ActivationClass::kA8x256, rows_, row_stride(kQueries)};
    rows.failures = failures_;
    const double keys = n_ * (depth_ + 0.5 * (n_ + 1.0));
    const HeadsAndAttentionArgs both{heads, args, rows};
    if (has_heads_and_attention(card_.stream(), both)) {
      add("heads and attention", Limit::kBytes,
          floats(1.0 * kQueries + 2.0 * kKeys + kHeadDim) + 2.0 * 2 * kKeys + 2.0 * 2 * kKeys * keys, kLayers,
          [=, this](int) { return heads_and_attention(card_.stream(), both); });
    } else {
      add("norms and turns of heads, keys stored", Limit::kBytes,
          double{1} * n_ * (floats(2.0 * kQueries + 2.0 * kKeys + kHeadDim) + 2.0 * 2 * kKeys), kLayers,
          [=, this](int) { return finish_heads(card_.stream(), heads); });
      add_attention(args, rows, keys);
    }
    add_dense("output", TensorType::kQ4_K, kWidth, kQueries, n_, kLayers);
    return {};
  }

  // keys: of all rows.
  void add_attention(const cuda::AttentionArgs& args, const AttentionRows& rows, double keys) {
    const auto queue = [=, this](int) { return cuda::attend(card_.stream(), args, rows); };
    if (n_ == 1)
      add("attention", Limit::kBytes, 2.0 * 2 * kKeys * keys + floats(kQueries), kLayers, queue);
    else
      add("attention", Limit::kF32, 2.0 * kQueries * keys, kLayers, queue);
  }

  ResidualArgs residual_of_attention() const {
    ResidualArgs args;
    args.x = x_;
    args.n_rows = n_;
    args.n = kWidth;
    args.delta = out_;
    args.w = norm_;
    args.eps = 1e-6f;
    args.h = h_;
    args.out[0] = {ActivationClass::kA8x256, rows_, row_stride(kWidth)};
    args.failures = failures_;
    return args;
  }

  Status make_choice() {
    ChooseArgs choice;
    TERRACE_ASSIGN_OR_RETURN(float* const logits, card_.floats(std::uint64_t{n_} * kExperts));
    choice.logits = logits;
    choice.n_rows = n_;
    choice.n_experts = kExperts;
    choice.top_k = kTopK;
    TERRACE_ASSIGN_OR_RETURN(choice.ids, card_.room<std::uint16_t>(pairs()));
    TERRACE_ASSIGN_OR_RETURN(choice.weights, card_.room<float>(pairs()));
    choice.failures = failures_;
    const std::byte* const w = card_.weights();
    TERRACE_ASSIGN_OR_RETURN(choice.slabs, card_.upload(std::vector<CardSlab>(kExperts, {w, w, w})));
    const std::uint32_t n_groups = std::min(pairs(), kExperts);
    TERRACE_ASSIGN_OR_RETURN(choice.gate_up, card_.room<GemvGroup>(2 * n_groups));
    TERRACE_ASSIGN_OR_RETURN(choice.down, card_.room<GemvGroup>(n_groups));
    TERRACE_ASSIGN_OR_RETURN(choice.x_rows, card_.room<std::uint32_t>(std::uint64_t{2} * pairs()));
    TERRACE_ASSIGN_OR_RETURN(choice.slots, card_.room<std::int32_t>(pairs()));
    const ResidualArgs args = residual_of_attention();
    const double bytes = floats(4.0 * n_ * kWidth) + double{1} * n_ * static_cast<double>(row_stride(kWidth));
    const double router = floats(double{1} * kExperts * kWidth);
    // Routers of random bytes would choose by what is not finite.
    TERRACE_ASSIGN_OR_RETURN(const float* const routers, card_.floats(std::uint64_t{kLayers} * kExperts * kWidth));
    const auto router_of = [routers](int i) { return routers + std::size_t(i % kLayers) * kExperts * kWidth; };
    if (has_residual_and_choice(card_.stream(), {args, routers, choice})) {
      add("residual, norm, router, choice", Limit::kBytes, bytes + router, kLayers, [=, this](int i) {
        return residual_and_choice(card_.stream(), {args, router_of(i), choice});
      });
      return {};
    }
    add("residual of attention, norm", Limit::kBytes, bytes, kLayers,
        [=, this](int) { return residual(card_.stream(), args); });
    const GemvArgs of_router = product(TensorType::kF32, kExperts, kWidth, logits);
    add_product("router", TensorType::kF32, router, double{1} * n_ * kExperts * kWidth, kLayers, [=, this](int i) {
      return gemv_one(card_.stream(), of_router, {reinterpret_cast<const std::byte*>(router_of(i)), 0, n_});
    });
    add("choice of experts", Limit::kBytes,
        floats(double{1} * n_ * kExperts) + double{1} * pairs() * (2 + 4 + 4 + 2 * 4), kLayers,
        [=, this](int) { return choose_experts(card_.stream(), choice); });
    return {};
  }

  // Eight experts a row by chance: how many rows each has.
  std::vector<std::uint32_t> rows_of_experts() {
    std::vector<std::uint32_t> rows(kExperts), ids(kExperts);
    std::iota(ids.begin(), ids.end(), 0u);
    for (std::uint32_t row = 0; row < n_; ++row) {
      std::shuffle(ids.begin(), ids.end(), rng_);
      for (std::uint32_t k = 0; k < kTopK; ++k) ++rows[ids[k]];
    }
    std::erase(rows, 0u);
    return rows;
  }

  // Groups of one call: gates, ups (behind the gates' rows), downs.
  struct Groups {
    const GemvGroup* gate_up = nullptr;
    const GemvGroup* down = nullptr;
  };
  Result<Groups> groups_of(int call, const std::vector<std::uint32_t>& rows) {
    const std::uint64_t gate = matrix_bytes(TensorType::kQ4_K, kExpertWidth, kWidth),
                        down = matrix_bytes(TensorType::kQ6_K, kWidth, kExpertWidth);
    std::vector<GemvGroup> gate_up, downs;
    const auto n = static_cast<int>(rows.size());
    for (const bool up : {false, true}) {
      std::uint32_t first = up ? pairs() : 0;
      for (int e = 0; e < n; ++e) {
        gate_up.push_back({weights(2 * (call * n + e) + (up ? 1 : 0), gate), first, rows[e]});
        if (!up) downs.push_back({weights(call * n + e, down), first, rows[e]});
        first += rows[e];
      }
    }
    Groups groups;
    TERRACE_ASSIGN_OR_RETURN(groups.gate_up, card_.upload(gate_up));
    TERRACE_ASSIGN_OR_RETURN(groups.down, card_.upload(downs));
    return groups;
  }

  Status make_experts() {
    const std::vector<std::uint32_t> rows = rows_of_experts();
    const auto n_groups = static_cast<std::uint32_t>(rows.size());
    std::vector<Groups> groups;
    for (int call = 0; call < kCalls; ++call) {
      TERRACE_ASSIGN_OR_RETURN(const Groups made, groups_of(call, rows));
      groups.push_back(made);
    }
    std::vector<std::uint32_t> x_rows(2 * pairs());
    for (std::uint32_t i = 0; i < x_rows.size(); ++i) x_rows[i] = i % n_;
    std::shuffle(x_rows.begin(), x_rows.end(), rng_);
    TERRACE_ASSIGN_OR_RETURN(const std::uint32_t* const card_x_rows, card_.upload(x_rows));
    const double multiply_adds = double{1} * pairs() * kExpertWidth * kWidth;

    GemvArgs gate_up = product(TensorType::kQ4_K, kExpertWidth, kWidth, gate_up_);
    gate_up.n_groups = 2 * n_groups;
    gate_up.max_rows = n_;
    gate_up.gemm_from = kManyRowsOfExpert * kExperts / kTopK;
    gate_up.x_rows = card_x_rows;
    add_product("gate and up", TensorType::kQ4_K,
                2.0 * n_groups * static_cast<double>(matrix_bytes(TensorType::kQ4_K, kExpertWidth, kWidth)),
                2 * multiply_adds, kLayers, [=, this](int i) {
                  GemvArgs args = gate_up;
                  args.groups = groups[static_cast<std::size_t>(i % kCalls)].gate_up;
                  return expert_gemv(card_.stream(), args);
                });
    // Half of the layers have one type and half the other.
    for (const TensorType type : {TensorType::kQ4_K, TensorType::kQ6_K}) {
      GemvArgs down = product(type, kWidth, kExpertWidth, out_);
      down.n_groups = n_groups;
      down.max_rows = n_;
      down.gemm_from = gate_up.gemm_from;
      TERRACE_RETURN_IF_ERROR(add_down(type, down, groups, card_x_rows, multiply_adds));
    }
    return {};
  }

  Status add_down(TensorType type, GemvArgs down, const std::vector<Groups>& groups, const std::uint32_t* x_rows,
                  double multiply_adds) {
    const float* const up = gate_up_ + std::uint64_t{pairs()} * kExpertWidth;
    const double bytes = down.n_groups * static_cast<double>(matrix_bytes(type, kWidth, kExpertWidth));
    down.groups = groups[0].down;
    TERRACE_ASSIGN_OR_RETURN(const bool makes_its_rows, has_expert_down(card_.stream(), down));
    const std::string name = "down, " + std::string(info(type).name);
    const auto args_of = [=](int i) {
      GemvArgs args = down;
      args.groups = groups[static_cast<std::size_t>(i % kCalls)].down;
      return args;
    };
    if (makes_its_rows) {
      add_product(name + " with SILU", type, bytes, multiply_adds, kLayers / 2, [=, this](int i) {
        return expert_down(card_.stream(), {args_of(i), gate_up_, up, x_rows, 1, failures_});
      });
      return {};
    }
    if (type == TensorType::kQ4_K) {
      ExpertRowsArgs between;
      between.gate = gate_up_;
      between.up = up;
      between.n_pairs = pairs();
      between.n = kExpertWidth;
      between.out = {ActivationClass::kA8x256, rows_, row_stride(kExpertWidth)};
      between.x_rows = x_rows;
      between.failures = failures_;
      add("SILU, rows for down", Limit::kBytes,
          double{1} * pairs() * (floats(2.0 * kExpertWidth) + static_cast<double>(row_stride(kExpertWidth))), kLayers,
          [=, this](int) { return expert_rows(card_.stream(), between); });
    }
    add_product(name, type, bytes, multiply_adds, kLayers / 2,
                [=, this](int i) { return expert_gemv(card_.stream(), args_of(i)); });
    return {};
  }

  // Of one row, however many there are.
  Status make_head() {
    const GemvArgs args = product(TensorType::kQ6_K, kVocabulary, kWidth, out_);
    const std::uint64_t bytes = matrix_bytes(TensorType::kQ6_K, kVocabulary, kWidth);
    add("head", Limit::kBytes, static_cast<double>(bytes), 1, [=, this](int i) {
      return gemv_one(card_.stream(), args, {weights(i, bytes), 0, 1});
    });
    GreedyArgs greedy;
    greedy.logits = out_;
    greedy.stride = greedy.n = kVocabulary;
    greedy.n_rows = 1;
    TERRACE_ASSIGN_OR_RETURN(greedy.best, card_.upload(std::vector<GreedyKey>(1, kNoLogitSeen)));
    greedy.failures = failures_;
    add("greedy token", Limit::kBytes, floats(kVocabulary), 1,
        [=, this](int) { return find_greedy(card_.stream(), greedy); });
    return {};
  }

  static constexpr int kCalls = 16;
  BenchCard& card_;
  const std::uint32_t n_, depth_;
  std::mt19937 rng_{20289};
  std::vector<StepKernel> made_;
  float *x_ = nullptr, *norm_ = nullptr, *h_ = nullptr, *q_ = nullptr, *out_ = nullptr, *gate_up_ = nullptr;
  std::byte* rows_ = nullptr;
  KvCache cache_;
  std::uint32_t *positions_ = nullptr, *n_keys_ = nullptr, *streams_ = nullptr, *failures_ = nullptr;
};

}  // namespace

Status for_each_step_kernel(BenchCard& card, const StepSize& size, FunctionRef<Status(const StepKernel&)> use) {
  const std::uint64_t used = card.card().used_bytes();
  Maker maker(card, size);
  TERRACE_RETURN_IF_ERROR(maker.make());
  for (const StepKernel& kernel : maker.made()) TERRACE_RETURN_IF_ERROR(use(kernel));
  card.card().release_to(used);
  return {};
}

}  // namespace terrace::test
