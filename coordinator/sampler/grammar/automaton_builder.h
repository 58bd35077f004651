// Makes an Automaton of expressions. Private to the folder.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "coordinator/sampler/grammar/automaton.h"
#include "coordinator/sampler/grammar/expression.h"

namespace terrace::sampler::grammar {

// Counted loops whose body may be empty: they are built as copies, since a counter would count empty rounds.
using MayBeEmpty = std::unordered_set<const Expression*>;

class AutomatonBuilder {
 public:
  // Both are borrowed as long as the builder lives.
  AutomatonBuilder(const Rules& rules, const MayBeEmpty& may_be_empty);

  // Builds all rules that can be reached from the first, and nothing is checked that needs the whole.
  Status build();
  // The automaton; the builder keeps what the checks below need.
  std::unique_ptr<Automaton> finish();

  const std::string& where(StateId state) const { return rules_[rule_of_[state]].where; }
  // First states of all procedures.
  std::span<const StateId> procedures() const { return procedures_; }
  // By loop: its body's first state, and the expression that it repeats.
  std::span<const std::pair<StateId, const Expression*>> loop_bodies() const { return loop_bodies_; }

 private:
  StateId new_state();
  void add(StateId from, Edge edge) { edges_.emplace_back(from, edge); }
  void add_epsilon(StateId from, StateId to) { add(from, {Edge::Kind::kEpsilon, 0, 0, to, 0}); }
  void fail(std::string why);
  void find_recursion();
  bool inlined(std::uint32_t rule);

  // Each makes what its expression says lead from one state to another.
  void lower(const Expression& e, StateId from, StateId to);
  void lower_sequence(const Expression& e, StateId from, StateId to);
  void lower_characters(const Expression& e, StateId from, StateId to);
  void lower_alternatives(const Expression& e, StateId from, StateId to);
  void lower_literals(std::vector<std::string_view> texts, StateId from, StateId to);
  void lower_repeat(const Expression& e, StateId from, StateId to);
  void lower_star(const Expression& body, StateId from, StateId to, bool at_least_once);
  void lower_copies(const Expression& e, StateId from, StateId to);
  void lower_counted(const Expression& e, StateId from, StateId to);
  void lower_counted_here(const Expression& e, StateId from, StateId to);
  void lower_rule(std::uint32_t rule, StateId from, StateId to);
  void lower_members(const Expression& e, StateId from, StateId to);

  const Rules& rules_;
  const MayBeEmpty& may_be_empty_;
  std::vector<bool> recursive_;         // [n_rules]
  std::vector<std::size_t> sizes_;      // [n_rules] expressions in it
  std::vector<StateId> start_of_;       // [n_rules] or kNoState
  std::vector<std::uint32_t> waiting_;  // rules whose first state is known and whose body is not built

  std::vector<std::pair<StateId, Edge>> edges_;
  std::vector<std::uint32_t> rule_of_;  // [n_states]
  std::vector<std::uint32_t> loop_of_;  // [n_states]
  std::vector<Loop> loops_;
  std::vector<std::pair<StateId, const Expression*>> loop_bodies_;
  std::vector<StateId> procedures_;

  std::uint32_t rule_ = 0;        // being built
  std::uint32_t loop_ = kNoLoop;  // that the state being built is counted by
  bool in_repeated_ = false;      // inside something that is repeated
  std::size_t inline_budget_ = 20'000;
  Status status_;
};

}  // namespace terrace::sampler::grammar
