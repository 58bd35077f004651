#include "coordinator/sampler/grammar/automaton_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "coordinator/sampler/grammar/graph.h"
#include "coordinator/sampler/grammar/utf8_ranges.h"

namespace terrace::sampler::grammar {
namespace {

constexpr StateId kNoState = ~StateId{0};
constexpr std::uint32_t kMaxCopies = 64;
constexpr std::size_t kMaxInlinedSize = 64;

// The number of expressions in `e`, and the rules that it calls.
std::size_t measure(const Expression& e, std::vector<std::uint32_t>& calls) {
  if (e.kind == Expression::Kind::kRule) calls.push_back(e.rule);
  std::size_t n = 1;
  for (const Expression& child : e.children) n += measure(child, calls);
  return n;
}

}  // namespace

AutomatonBuilder::AutomatonBuilder(const Rules& rules, const MayBeEmpty& may_be_empty)
    : rules_(rules), may_be_empty_(may_be_empty), start_of_(rules.size(), kNoState) {
  find_recursion();
}

void AutomatonBuilder::find_recursion() {
  Graph calls(rules_.size());
  for (std::size_t rule = 0; rule < rules_.size(); ++rule) sizes_.push_back(measure(rules_[rule].body, calls[rule]));
  const std::vector<std::uint32_t> component = strong_components(calls);
  std::vector<std::uint32_t> members(rules_.size(), 0);
  for (const std::uint32_t c : component) ++members[c];
  for (std::size_t rule = 0; rule < rules_.size(); ++rule) {
    const bool calls_itself = std::ranges::find(calls[rule], rule) != calls[rule].end();
    recursive_.push_back(calls_itself || members[component[rule]] > 1);
  }
}

Status AutomatonBuilder::build() {
  const auto begin_rule = [this](std::uint32_t rule) {
    rule_ = rule;
    start_of_[rule] = new_state();
    procedures_.push_back(start_of_[rule]);
    waiting_.push_back(rule);
  };
  begin_rule(0);
  while (!waiting_.empty() && status_.ok()) {
    const std::uint32_t rule = waiting_.back();
    waiting_.pop_back();
    rule_ = rule;
    loop_ = kNoLoop;
    in_repeated_ = false;
    const StateId end = new_state();
    add(end, {Edge::Kind::kReturn, 0, 0, 0, 0});
    lower(rules_[rule].body, start_of_[rule], end);
  }
  return status_;
}

StateId AutomatonBuilder::new_state() {
  if (rule_of_.size() >= Automaton::kMaxStates) {
    fail(fmt::format("the grammar needs more than {} states", Automaton::kMaxStates));
    return 0;
  }
  rule_of_.push_back(rule_);
  loop_of_.push_back(loop_);
  return static_cast<StateId>(rule_of_.size() - 1);
}

void AutomatonBuilder::fail(std::string why) {
  if (status_.ok()) status_ = Error(ErrorCode::kInvalidArgument, std::move(why)).in(rules_[rule_].where);
}

// What a loop repeats is best in the procedure of the loop: masks are kept by place within a procedure (token_masks.h).
bool AutomatonBuilder::inlined(std::uint32_t rule) {
  if (!in_repeated_ || rules_[rule].stays_whole || recursive_[rule] ||
      sizes_[rule] > std::min(kMaxInlinedSize, inline_budget_))
    return false;
  inline_budget_ -= sizes_[rule];
  return true;
}

void AutomatonBuilder::lower(const Expression& e, StateId from, StateId to) {
  if (!status_.ok()) return;
  switch (e.kind) {
    case Expression::Kind::kSequence:
      return lower_sequence(e, from, to);
    case Expression::Kind::kLiteral:
      return lower_literals({e.text}, from, to);
    case Expression::Kind::kCharacters:
      return lower_characters(e, from, to);
    case Expression::Kind::kAlternatives:
      return lower_alternatives(e, from, to);
    case Expression::Kind::kRepeat:
      return lower_repeat(e, from, to);
    case Expression::Kind::kRule:
      return lower_rule(e.rule, from, to);
    case Expression::Kind::kMembers:
      return lower_members(e, from, to);
  }
}

void AutomatonBuilder::lower_sequence(const Expression& e, StateId from, StateId to) {
  if (e.children.empty()) return add_epsilon(from, to);
  for (std::size_t i = 0; i + 1 < e.children.size(); ++i) {
    const StateId next = new_state();
    lower(e.children[i], from, next);
    from = next;
  }
  lower(e.children.back(), from, to);
}

void AutomatonBuilder::lower_characters(const Expression& e, StateId from, StateId to) {
  // Sequences that end alike share the states of their ends.
  std::map<std::tuple<StateId, std::uint8_t, std::uint8_t>, StateId> ends;
  bool any = false;
  for (const CodePointRange& range : normalised(e.ranges)) {
    for (const ByteSequence& sequence : utf8_sequences(range)) {
      StateId target = to;
      for (std::size_t i = sequence.n - 1; i > 0; --i) {
        const auto [low, high] = sequence.bytes[i];
        const auto [end, is_new] = ends.try_emplace({target, low, high}, kNoState);
        if (is_new) {
          end->second = new_state();
          add(end->second, {Edge::Kind::kBytes, low, high, target, 0});
        }
        target = end->second;
      }
      add(from, {Edge::Kind::kBytes, sequence.bytes[0].low, sequence.bytes[0].high, target, 0});
      any = true;
    }
  }
  if (!any) fail("a character class that no character is in");
}

void AutomatonBuilder::lower_alternatives(const Expression& e, StateId from, StateId to) {
  std::vector<std::string_view> texts;
  for (const Expression& child : e.children) {
    if (child.kind == Expression::Kind::kLiteral)
      texts.push_back(child.text);
    else
      lower(child, from, to);
  }
  if (!texts.empty()) lower_literals(std::move(texts), from, to);
}

// As a tree of their common beginnings, so that many texts are one place at a time, not many.
void AutomatonBuilder::lower_literals(std::vector<std::string_view> texts, StateId from, StateId to) {
  std::ranges::sort(texts);
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  std::vector<StateId> path = {from};  // path[i]: after i bytes of the text before
  std::string_view before;
  for (const std::string_view text : texts) {
    const auto common = static_cast<std::size_t>(std::ranges::mismatch(before, text).in2 - text.begin());
    path.resize(common + 1);
    for (std::size_t i = common; i < text.size() && status_.ok(); ++i) {
      const auto byte = static_cast<std::uint8_t>(text[i]);
      path.push_back(new_state());
      add(path[i], {Edge::Kind::kBytes, byte, byte, path[i + 1], 0});
    }
    if (!status_.ok()) return;
    add_epsilon(path.back(), to);
    before = text;
  }
}

void AutomatonBuilder::lower_repeat(const Expression& e, StateId from, StateId to) {
  const bool was_repeated = std::exchange(in_repeated_, true);
  const Expression& body = e.children.front();
  if (e.max == 0) {
    add_epsilon(from, to);
  } else if (e.max == 1) {
    in_repeated_ = was_repeated;
    lower(body, from, to);
    if (e.min == 0) add_epsilon(from, to);
  } else if (is_star(e) || is_plus(e)) {
    lower_star(body, from, to, is_plus(e));
  } else if (may_be_empty_.contains(&e)) {
    lower_copies(e, from, to);
  } else {
    lower_counted(e, from, to);
  }
  in_repeated_ = was_repeated;
}

void AutomatonBuilder::lower_star(const Expression& body, StateId from, StateId to, bool at_least_once) {
  const StateId before = new_state();
  const StateId after = at_least_once ? new_state() : before;
  add_epsilon(from, before);
  lower(body, before, after);
  if (at_least_once) add_epsilon(after, before);
  add_epsilon(after, to);
}

void AutomatonBuilder::lower_copies(const Expression& e, StateId from, StateId to) {
  const Expression& body = e.children.front();
  if (e.max == kUnlimited) return lower_star(body, from, to, false);
  if (e.max > kMaxCopies)
    return fail(
        fmt::format("something that may be empty is repeated up to {} times; allowed is {}", e.max, kMaxCopies));
  for (std::uint32_t i = 0; i < e.max && status_.ok(); ++i) {
    const StateId next = i + 1 == e.max ? to : new_state();
    lower(body, from, next);
    from = next;
  }
}

void AutomatonBuilder::lower_counted(const Expression& e, StateId from, StateId to) {
  if (loop_ == kNoLoop) return lower_counted_here(e, from, to);
  // The counter is taken: a procedure of its own has its own.
  const std::uint32_t outer = std::exchange(loop_, kNoLoop);
  const StateId start = new_state();
  const StateId end = new_state();
  procedures_.push_back(start);
  add(end, {Edge::Kind::kReturn, 0, 0, 0, 0});
  lower_counted_here(e, start, end);
  loop_ = outer;
  add(from, {Edge::Kind::kCall, 0, 0, to, start});
}

void AutomatonBuilder::lower_counted_here(const Expression& e, StateId from, StateId to) {
  const auto loop = static_cast<std::uint32_t>(loops_.size());
  loops_.push_back({e.min, e.max, to});
  loop_ = loop;
  const StateId head = new_state();
  const StateId body = new_state();
  const StateId end = new_state();
  loop_bodies_.emplace_back(body, &e);
  add(from, {Edge::Kind::kReset, 0, 0, head, 0});
  add(head, {Edge::Kind::kLoop, 0, 0, body, loop});
  add(end, {Edge::Kind::kCount, 0, 0, head, loop});
  lower(e.children.front(), body, end);
  loop_ = kNoLoop;
}

void AutomatonBuilder::lower_rule(std::uint32_t rule, StateId from, StateId to) {
  if (inlined(rule)) return lower(rules_[rule].body, from, to);
  if (start_of_[rule] == kNoState) {
    const std::uint32_t caller = std::exchange(rule_, rule);
    const std::uint32_t loop = std::exchange(loop_, kNoLoop);
    start_of_[rule] = new_state();
    procedures_.push_back(start_of_[rule]);
    waiting_.push_back(rule);
    rule_ = caller;
    loop_ = loop;
  }
  add(from, {Edge::Kind::kCall, 0, 0, to, start_of_[rule]});
}

void AutomatonBuilder::lower_members(const Expression& e, StateId from, StateId to) {
  StateId none = from;      // nothing stands yet
  StateId some = kNoState;  // something does
  for (std::size_t i = 1; i < e.children.size() && status_.ok(); ++i) {
    const Expression& member = e.children[i];
    const StateId before = new_state();
    const StateId after = new_state();
    if (none != kNoState) add_epsilon(none, before);
    if (some != kNoState) lower(e.children.front(), some, before);
    lower(member, before, after);
    if (!member.optional) {
      none = kNoState;
    } else if (some != kNoState) {
      add_epsilon(some, after);
    }
    some = after;
  }
  if (none != kNoState) add_epsilon(none, to);
  if (some != kNoState) add_epsilon(some, to);
}

std::unique_ptr<Automaton> AutomatonBuilder::finish() {
  auto automaton = std::make_unique<Automaton>();
  std::ranges::stable_sort(edges_, {}, &std::pair<StateId, Edge>::first);
  automaton->first_edge_.assign(rule_of_.size() + 1, 0);
  for (const auto& [from, edge] : edges_) ++automaton->first_edge_[from + 1];
  for (std::size_t i = 0; i < rule_of_.size(); ++i) automaton->first_edge_[i + 1] += automaton->first_edge_[i];
  for (const auto& [from, edge] : edges_) automaton->edges_.push_back(edge);
  for (Edge& edge : automaton->edges_) {
    if (edge.kind != Edge::Kind::kCall) continue;
    const auto next = automaton->edges(edge.target);
    if (next.size() == 1 && next.front().kind == Edge::Kind::kReturn) edge.kind = Edge::Kind::kTailCall;
  }
  automaton->loops_ = loops_;
  automaton->loop_of_ = loop_of_;
  automaton->find_classes();
  return automaton;
}

}  // namespace terrace::sampler::grammar
