#include "coordinator/sampler/grammar/grammar_cache.h"

#include <algorithm>

namespace terrace::sampler {

Result<std::shared_ptr<const Grammar>> GrammarCache::from_gbnf(std::string_view text) {
  return get(&Grammar::from_gbnf, text);
}

Result<std::shared_ptr<const Grammar>> GrammarCache::from_json_schema(std::string_view schema) {
  return get(&Grammar::from_json_schema, schema);
}

std::shared_ptr<const Grammar> GrammarCache::find(Make make, std::string_view text) {
  const auto is_it = [&](const Entry& entry) { return entry.make == make && entry.text == text; };
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(entries_, is_it);
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return found->grammar;
}

// Compiled without the lock: a text that takes long holds up nobody.
Result<std::shared_ptr<const Grammar>> GrammarCache::get(Make make, std::string_view text) {
  if (text.size() > kMaxText) return make(text);
  if (auto known = find(make, text)) return known;
  TERRACE_ASSIGN_OR_RETURN(std::shared_ptr<const Grammar> made, make(text));
  const std::lock_guard lock(mutex_);
  entries_.push_front({make, std::string(text), made});
  if (entries_.size() > kMaxGrammars) entries_.pop_back();
  return made;
}

}  // namespace terrace::sampler
