// Whether a grammar takes a text, byte by byte, and vocabularies to try it with.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/sampler/grammar/automaton.h"
#include "coordinator/sampler/grammar/grammar.h"
#include "coordinator/sampler/grammar/state_sets.h"

namespace terrace::sampler::grammar {

enum class Match { kNo, kBeginning, kWhole };

inline std::ostream& operator<<(std::ostream& out, Match match) {
  return out << (match == Match::kNo ? "no" : match == Match::kBeginning ? "beginning" : "whole");
}

inline Match match(const Grammar& grammar, std::string_view text) {
  StateSets sets(grammar.automaton());
  SetId set = sets.start();
  for (const char byte : text) set = sets.step(set, static_cast<std::uint8_t>(byte));
  EXPECT_TRUE(sets.status().ok()) << sets.status().error().text();
  if (set == StateSets::kDead) return Match::kNo;
  return sets.may_end(set) ? Match::kWhole : Match::kBeginning;
}

inline bool takes(const Grammar& grammar, std::string_view text) { return match(grammar, text) == Match::kWhole; }

// Token 0 ends a text, 1 is a control token, then every byte, then `longer` ones.
struct SmallVocabulary {
  explicit SmallVocabulary(std::vector<std::string> longer = {}) {
    tokens = {"<end>", ""};
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    tokens.insert(tokens.end(), longer.begin(), longer.end());
    const std::vector<std::string_view> views(tokens.begin(), tokens.end());
    trie = std::make_shared<const VocabularyTrie>(VocabularyTrie::make(views, std::vector<std::int32_t>{0}).value());
  }
  static std::int32_t of_byte(char byte) { return 2 + static_cast<std::uint8_t>(byte); }

  std::vector<std::string> tokens;
  std::shared_ptr<const VocabularyTrie> trie;
};

}  // namespace terrace::sampler::grammar
