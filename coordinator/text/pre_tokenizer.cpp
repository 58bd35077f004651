#include "coordinator/text/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <cstdint>
#include <limits>
#include <utility>

namespace terrace::text {
namespace {

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using MatchData = std::unique_ptr<pcre2_match_data, FreeMatchData>;
using MatchContext = std::unique_ptr<pcre2_match_context, FreeMatchContext>;

// White_Space of Unicode 6.3 and later, as the inside of a class.
constexpr std::string_view kWhiteSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// The pattern with \s, \S (outside of a class) and \s (inside) spelled out as White_Space.
std::string spell_out_white_space(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 's') {
        out += in_class ? std::string(kWhiteSpace) : fmt::format("[{}]", kWhiteSpace);
      } else if (escaped == 'S' && !in_class) {
        out += fmt::format("[^{}]", kWhiteSpace);
      } else {
        out += {c, escaped};
      }
      continue;
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

std::string reason(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

class PreTokenizer::Pattern {
 public:
  static Result<Pattern> make(std::string_view written) {
    const std::string pattern = spell_out_white_space(written);
    int error = 0;
    PCRE2_SIZE place = 0;
    Pattern made;
    made.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_UCP,
                                   &error, &place, nullptr));
    if (!made.code_) {
      return Error(ErrorCode::kInternal,
                   fmt::format("pre-tokenizer pattern {} does not compile at {}: {}", pattern, place, reason(error)));
    }
    // Without JIT (not built in, or memory may not be executable) the same pattern is interpreted: slower, same pieces.
    pcre2_jit_compile(made.code_.get(), PCRE2_JIT_COMPLETE);
    return made;
  }

  // Appends to `ends` the ends of the pieces of text[begin, end).
  Status split(std::string_view text, std::size_t begin, std::size_t end, pcre2_match_data* data,
               pcre2_match_context* context, std::vector<std::size_t>& ends) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data() + begin);
    const std::size_t size = end - begin;
    std::size_t at = 0;
    while (at < size) {
      // PCRE2_NO_UTF_CHECK: else each match would look at the rest of the text again.
      const std::uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
      int found = pcre2_match(code_.get(), subject, size, at, options, data, context);
      if (found == PCRE2_ERROR_JIT_STACKLIMIT)
        found = pcre2_match(code_.get(), subject, size, at, options | PCRE2_NO_JIT, data, context);
      if (found == PCRE2_ERROR_NOMATCH) break;
      if (found < 0)
        return Error(ErrorCode::kInternal, fmt::format("cutting text into pieces failed at byte {}: PCRE2 says {}",
                                                       begin + at, reason(found)));
      const PCRE2_SIZE* match = pcre2_get_ovector_pointer(data);
      if (match[0] > at) ends.push_back(begin + match[0]);
      ends.push_back(begin + match[1]);
      at = match[1];
    }
    if (at < size) ends.push_back(end);
    return {};
  }

 private:
  std::unique_ptr<pcre2_code, FreeCode> code_;
};

PreTokenizer::PreTokenizer(std::vector<Pattern> patterns) : patterns_(std::move(patterns)) {}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

Result<PreTokenizer> PreTokenizer::make(const PreTokenizerInfo& info) {
  std::vector<Pattern> patterns;
  for (const std::string_view written : info.patterns) {
    TERRACE_ASSIGN_OR_RETURN(auto pattern, Pattern::make(written));
    patterns.push_back(std::move(pattern));
  }
  return PreTokenizer(std::move(patterns));
}

Status PreTokenizer::split(std::string_view text, std::vector<std::size_t>& ends) const {
  ends.clear();
  if (text.empty()) return {};
  const MatchData data(pcre2_match_data_create(1, nullptr));
  const MatchContext context(pcre2_match_context_create(nullptr));
  if (!data || !context) return Error(ErrorCode::kOutOfMemory, "no memory for PCRE2's match data");
  // The default limit counts steps and would end a match over a run of some ten million spaces.
  pcre2_set_match_limit(context.get(), std::numeric_limits<std::uint32_t>::max());

  ends.push_back(text.size());
  std::vector<std::size_t> finer;
  for (const Pattern& pattern : patterns_) {
    finer.clear();
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      TERRACE_RETURN_IF_ERROR(pattern.split(text, begin, end, data.get(), context.get(), finer));
      begin = end;
    }
    ends.swap(finer);
  }
  return {};
}

}  // namespace terrace::text
