#include "coordinator/sampler/grammar/automaton.h"

#include <algorithm>
#include <bitset>

#include "coordinator/sampler/grammar/automaton_builder.h"
#include "coordinator/sampler/grammar/graph.h"

namespace terrace::sampler::grammar {
namespace {

// Which states can reach the return of their procedure, or the end of the loop body they stand in: over all edges, or
// over those only that take no byte. Backwards from the returns, each edge looked at once for each of its ends.
class EndFinder {
 public:
  EndFinder(const Automaton& automaton, bool with_bytes) : automaton_(automaton), with_bytes_(with_bytes) {}

  std::vector<bool> run() {
    collect();
    while (!fresh_.empty()) {
      const StateId state = fresh_.back();
      fresh_.pop_back();
      for (const auto& [from, edge] : into_[state]) mark_if(from, *edge);
    }
    return std::move(reaches_);
  }

 private:
  void collect() {
    reaches_.assign(automaton_.n_states(), false);
    into_.resize(automaton_.n_states());
    for (StateId state = 0; state < automaton_.n_states(); ++state) {
      for (const Edge& edge : automaton_.edges(state)) {
        const bool is_call = edge.kind == Edge::Kind::kCall || edge.kind == Edge::Kind::kTailCall;
        if (is_call) into_[edge.argument].emplace_back(state, &edge);
        if (edge.kind == Edge::Kind::kLoop) into_[automaton_.loop(edge.argument).exit].emplace_back(state, &edge);
        if (edge.kind != Edge::Kind::kReturn) into_[edge.target].emplace_back(state, &edge);
        mark_if(state, edge);
      }
    }
  }

  void mark_if(StateId from, const Edge& edge) {
    if (reaches_[from] || !leads_on(edge)) return;
    reaches_[from] = true;
    fresh_.push_back(from);
  }

  bool leads_on(const Edge& edge) const {
    switch (edge.kind) {
      case Edge::Kind::kBytes:
        return with_bytes_ && reaches_[edge.target];
      case Edge::Kind::kEpsilon:
      case Edge::Kind::kReset:
        return reaches_[edge.target];
      case Edge::Kind::kCall:
        return reaches_[edge.argument] && reaches_[edge.target];
      case Edge::Kind::kTailCall:
        return reaches_[edge.argument];
      case Edge::Kind::kLoop: {
        const Loop& loop = automaton_.loop(edge.argument);
        return reaches_[loop.exit] && (loop.min == 0 || reaches_[edge.target]);
      }
      case Edge::Kind::kReturn:
      case Edge::Kind::kCount:
        return true;
    }
    return false;
  }

  const Automaton& automaton_;
  bool with_bytes_;
  std::vector<bool> reaches_;
  std::vector<std::vector<std::pair<StateId, const Edge*>>> into_;
  std::vector<StateId> fresh_;  // marked, and not yet looked at
};

// Where each state leads without a byte.
Graph steps_without_bytes(const Automaton& automaton, const std::vector<bool>& may_be_empty) {
  Graph next(automaton.n_states());
  for (StateId state = 0; state < automaton.n_states(); ++state) {
    for (const Edge& edge : automaton.edges(state)) {
      const bool is_call = edge.kind == Edge::Kind::kCall || edge.kind == Edge::Kind::kTailCall;
      if (is_call) next[state].push_back(edge.argument);
      if (edge.kind == Edge::Kind::kLoop && automaton.loop(edge.argument).min == 0)
        next[state].push_back(automaton.loop(edge.argument).exit);
      const bool passes = edge.kind == Edge::Kind::kEpsilon || edge.kind == Edge::Kind::kReset ||
                          edge.kind == Edge::Kind::kLoop ||
                          (edge.kind == Edge::Kind::kCall && may_be_empty[edge.argument]);
      if (passes) next[state].push_back(edge.target);
    }
  }
  return next;
}

Error wrong(const AutomatonBuilder& builder, StateId state, const char* why) {
  return Error(ErrorCode::kInvalidArgument, why).in(builder.where(state));
}

Status check(const Automaton& automaton, const AutomatonBuilder& builder, const std::vector<bool>& may_be_empty) {
  const std::vector<bool> ends = EndFinder(automaton, true).run();
  for (const StateId start : builder.procedures())
    if (!ends[start]) return wrong(builder, start, "no text can end it: each way through it needs itself again");

  const std::vector<std::uint32_t> component = strong_components(steps_without_bytes(automaton, may_be_empty));
  for (StateId state = 0; state < automaton.n_states(); ++state) {
    for (const Edge& edge : automaton.edges(state)) {
      const bool is_call = edge.kind == Edge::Kind::kCall || edge.kind == Edge::Kind::kTailCall;
      if (is_call && component[state] == component[edge.argument])
        return wrong(builder, state, "left recursion: it can begin with itself; write a repetition instead");
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<const Automaton>> Automaton::compile(const Rules& rules) {
  // What may be empty is known once all is built; if something counted is, all is built again.
  MayBeEmpty expressions;
  for (bool is_last = false;; is_last = true) {
    AutomatonBuilder builder(rules, expressions);
    TERRACE_RETURN_IF_ERROR(builder.build());
    std::unique_ptr<Automaton> automaton = builder.finish();
    const std::vector<bool> may_be_empty = EndFinder(*automaton, false).run();
    MayBeEmpty found;
    for (const auto& [body, expression] : builder.loop_bodies())
      if (may_be_empty[body]) found.insert(expression);
    TERRACE_CHECK(found.empty() || !is_last, "a counted loop whose body may be empty");
    if (!found.empty()) {
      expressions = std::move(found);
      continue;
    }
    TERRACE_RETURN_IF_ERROR(check(*automaton, builder, may_be_empty));
    return std::unique_ptr<const Automaton>(std::move(automaton));
  }
}

// Two bytes are of one class where no edge's range begins or ends between them.
void Automaton::find_classes() {
  std::bitset<257> begins;
  begins[0] = true;
  for (const Edge& edge : edges_) {
    if (edge.kind != Edge::Kind::kBytes) continue;
    begins[edge.low] = true;
    begins[std::size_t{edge.high} + 1] = true;
  }
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (begins[byte]) class_bytes_.push_back(static_cast<std::uint8_t>(byte));
    classes_[byte] = static_cast<std::uint8_t>(class_bytes_.size() - 1);
  }
}

}  // namespace terrace::sampler::grammar
