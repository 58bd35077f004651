#include "coordinator/sampler/grammar/grammar.h"

#include <fmt/format.h>

#include <utility>

#include "coordinator/sampler/grammar/automaton.h"
#include "coordinator/sampler/grammar/follower.h"
#include "coordinator/sampler/grammar/gbnf.h"
#include "coordinator/sampler/grammar/json_schema.h"
#include "coordinator/sampler/grammar/state_sets.h"

namespace terrace::sampler {
namespace {

Result<std::shared_ptr<const Grammar>> make(const grammar::Rules& rules) {
  TERRACE_ASSIGN_OR_RETURN(auto automaton, grammar::Automaton::compile(rules));
  // What cannot even begin is an error now, not at the first token.
  grammar::StateSets sets(*automaton);
  const grammar::SetId start = sets.start();
  if (!sets.status().ok()) return sets.status().error();
  if (start == grammar::StateSets::kDead)
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("the grammar: its rules call each other deeper than {} before the first character",
                             grammar::StateSets::kMaxDepth));
  return std::make_shared<const Grammar>(std::move(automaton));
}

}  // namespace

Grammar::Grammar(std::unique_ptr<const grammar::Automaton> automaton) : automaton_(std::move(automaton)) {}
Grammar::~Grammar() = default;

std::shared_ptr<grammar::Follower> Grammar::follower(std::shared_ptr<const VocabularyTrie> vocabulary) const {
  const std::lock_guard lock(mutex_);
  if (follower_ != nullptr && follower_->shared_vocabulary() == vocabulary) return follower_;
  auto made = std::make_shared<grammar::Follower>(*automaton_, std::move(vocabulary));
  if (follower_ == nullptr) follower_ = made;
  return made;
}

Result<std::shared_ptr<const Grammar>> Grammar::from_gbnf(std::string_view text) {
  TERRACE_ASSIGN_OR_RETURN(const grammar::Rules rules, grammar::parse_gbnf(text));
  return make(rules);
}

Result<std::shared_ptr<const Grammar>> Grammar::from_json_schema(std::string_view schema) {
  TERRACE_ASSIGN_OR_RETURN(const grammar::Rules rules, grammar::rules_from_json_schema(schema));
  return make(rules);
}

std::shared_ptr<const Grammar> Grammar::json_object() { return from_json_schema(kAnyObject).value(); }

}  // namespace terrace::sampler
