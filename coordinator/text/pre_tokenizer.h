// Pre-tokenizers: how a text is cut into pieces before any merge, by the name in `tokenizer.ggml.pre`.
//
// A pre-tokenizer is a list of patterns. The first cuts the text, the next cuts each piece of that, and so on; a match
// is a piece and so is what lies between two matches. A pattern sees one piece only: (?!\S) and $ look at its end.
// Patterns are PCRE2 with UTF and UCP, except that \s and \S follow Unicode's White_Space: PCRE2's \s also takes
// U+180E, which the models' own engines do not.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace terrace::text {

struct PreTokenizerInfo {
  std::string_view name;
  std::vector<std::string_view> aliases;
  std::vector<std::string_view> patterns;  // as the model's publisher wrote them
  bool ignore_merges = false;              // a piece that is a token whole is taken whole, before any merge
  bool add_bos = false;                    // where the file does not say (tokenizer.ggml.add_bos_token)
};

// Every pre-tokenizer of this build. A new one is a row of this table.
std::span<const PreTokenizerInfo> all_pre_tokenizers();
// By name or alias; nullptr: not known.
const PreTokenizerInfo* find_pre_tokenizer(std::string_view name);

// The compiled patterns of one row. Threads: const functions may be called by several threads at once.
class PreTokenizer {
 public:
  // kInternal: PCRE2 refuses a pattern of the table; names pattern and place.
  static Result<PreTokenizer> make(const PreTokenizerInfo& info);

  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Sets `ends` to the byte offsets in `text` at which pieces end, rising; the last is text.size(). `text` must be
  // UTF-8 and is not checked; empty text has no pieces. kInternal: PCRE2 gave up, with its reason.
  Status split(std::string_view text, std::vector<std::size_t>& ends) const;

 private:
  class Pattern;
  explicit PreTokenizer(std::vector<Pattern> patterns);
  std::vector<Pattern> patterns_;
};

}  // namespace terrace::text
