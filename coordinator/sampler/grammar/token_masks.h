// Which tokens of a vocabulary may follow in a set of places.
//
// Places with one stack are walked together, over a stack whose bottom is not known: which tokens stay within the
// procedure, and at which prefixes it may be left, does not depend on who called it, and is kept. What a stack adds is
// the tokens that go on after such a prefix, and those are few: of a string's tokens, those with a quote in them.
// Counters are kept only as exactly as the longest token of a trie can tell, so that places far from both ends of a
// counted loop share one answer.
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "coordinator/sampler/grammar/state_sets.h"
#include "coordinator/sampler/grammar/vocabulary_trie.h"

namespace terrace::sampler::grammar {

class TokenMasks {
 public:
  static constexpr std::size_t kMaxBytes = std::size_t{16} << 20;  // kept; then all is forgotten

  // Both are borrowed as long as this lives.
  TokenMasks(const VocabularyTrie& vocabulary, StateSets& sets);

  // [mask_words()] the tokens whose bytes may follow in `set`; end tokens are never among them. Valid until the next
  // call. Undefined where sets.status() then holds an error.
  std::span<std::uint64_t> find(SetId set);

  // Memory of what is kept.
  std::size_t bytes() const { return locals_bytes_; }

 private:
  using Mask = std::span<std::uint64_t>;
  using Part = VocabularyTrie::Part;
  // What walking one trie from places over an unknown stack gives.
  struct Local {
    std::vector<std::uint64_t> words;   // the tokens, as a mask where they are many ...
    std::vector<std::int32_t> tokens;   // ... or one by one
    std::vector<std::uint32_t> leaves;  // nodes with a subtree after which the procedure may have returned
  };

  void add_group(std::span<const StateSets::Place> places, Mask mask);
  const Local& local(std::span<const StateSets::Place> places, std::size_t part);
  Local walk_local(SetId set, const Part& part);
  void walk(const Part& part, std::uint32_t begin, std::uint32_t end, SetId set, Mask mask,
            std::vector<std::uint32_t>* leaves);
  std::uint32_t clamped_counter(const StateSets::Place& place, std::size_t max_bytes) const;

  const VocabularyTrie& vocabulary_;
  StateSets& sets_;
  std::unordered_map<std::uint64_t, Local> locals_;  // by set << 8 | part
  std::size_t locals_bytes_ = 0;

  std::vector<std::uint64_t> mask_;
  SetId mask_of_;  // what mask_ holds
  struct Level {
    SetId set;
    std::uint32_t end;  // of its nodes
  };
  std::vector<Level> levels_;              // of a walk
  std::vector<std::uint64_t> scratch_;     // a mask
  std::vector<StateSets::Place> places_;   // of the set
  std::vector<StateSets::Place> clamped_;  // of a group
};

}  // namespace terrace::sampler::grammar
