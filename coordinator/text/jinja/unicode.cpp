#define PCRE2_CODE_UNIT_WIDTH 8
#include "coordinator/text/jinja/unicode.h"

#include <pcre2.h>

#include <memory>

#include "common/base/check.h"

namespace terrace::text::jinja {
namespace {

// A pattern over characters and their Unicode properties: PCRE2 has the tables.
class Pattern {
 public:
  explicit Pattern(const char* source) {
    int error = 0;
    std::size_t at = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source), PCRE2_ZERO_TERMINATED,
                              PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK | PCRE2_DOLLAR_ENDONLY, &error, &at, nullptr));
    TERRACE_CHECK(code_ != nullptr, "a pattern of this file");
  }
  bool matches(std::string_view text) const {
    const Match match(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    return pcre2_match(code_.get(), unit(text), text.size(), 0, PCRE2_NO_UTF_CHECK, match.get(), nullptr) >= 0;
  }
  // Each match replaced by `replacement`, in PCRE2's extended form.
  std::string replaced(std::string_view text, const char* replacement) const {
    if (text.empty()) return {};
    std::string out(text.size() * 3 + 16, '\0');  // no other case of a character has more than three times its bytes
    std::size_t size = out.size();
    const int n = pcre2_substitute(code_.get(), unit(text), text.size(), 0,
                                   PCRE2_SUBSTITUTE_GLOBAL | PCRE2_SUBSTITUTE_EXTENDED | PCRE2_NO_UTF_CHECK, nullptr,
                                   nullptr, reinterpret_cast<PCRE2_SPTR>(replacement), PCRE2_ZERO_TERMINATED,
                                   reinterpret_cast<PCRE2_UCHAR*>(out.data()), &size);
    TERRACE_CHECK(n >= 0, "a substitution of this file");
    out.resize(size);
    return out;
  }

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  };
  using Match = std::unique_ptr<pcre2_match_data, Free>;
  static PCRE2_SPTR unit(std::string_view text) {
    return text.empty() ? reinterpret_cast<PCRE2_SPTR>("") : reinterpret_cast<PCRE2_SPTR>(text.data());
  }
  std::unique_ptr<pcre2_code, Free> code_;
};

bool matches(const Pattern& pattern, char32_t character) {
  std::string one;
  append_character(one, character);
  return pattern.matches(one);
}

// Characters whose upper case is several: those of texts one meets. (SpecialCasing.txt has some hundred more.)
std::string expanded_for_upper(std::string_view text) {
  std::string out;
  constexpr std::string_view kSharpS = "ß";
  std::size_t from = 0;
  for (std::size_t at = 0; (at = text.find(kSharpS, from)) != std::string_view::npos; from = at + kSharpS.size())
    out.append(text.substr(from, at - from)).append("ss");
  return out.append(text.substr(from));
}

}  // namespace

std::size_t character_bytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

char32_t character_at(std::string_view text, std::size_t at) {
  const std::size_t n = character_bytes(text[at]);
  if (n == 1) return static_cast<unsigned char>(text[at]);
  char32_t character = static_cast<unsigned char>(text[at]) & (0x7f >> n);
  for (std::size_t i = 1; i < n; ++i) character = character << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3f);
  return character;
}

std::size_t character_before(std::string_view text, std::size_t end) {
  do --end;
  while ((static_cast<unsigned char>(text[end]) & 0xc0) == 0x80);
  return end;
}

void append_character(std::string& out, char32_t character) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (character < 0x80) {
    put(character);
  } else if (character < 0x800) {
    put(0xc0 | character >> 6);
    put(0x80 | (character & 0x3f));
  } else if (character < 0x10000) {
    put(0xe0 | character >> 12);
    put(0x80 | (character >> 6 & 0x3f));
    put(0x80 | (character & 0x3f));
  } else {
    put(0xf0 | character >> 18);
    put(0x80 | (character >> 12 & 0x3f));
    put(0x80 | (character >> 6 & 0x3f));
    put(0x80 | (character & 0x3f));
  }
}

std::size_t count_characters(std::string_view text) {
  std::size_t n = 0;
  for (const char byte : text) n += (static_cast<unsigned char>(byte) & 0xc0) != 0x80 ? 1 : 0;
  return n;
}

std::size_t offset_of_character(std::string_view text, std::size_t n) {
  std::size_t at = 0;
  for (; n > 0 && at < text.size(); --n) at += character_bytes(text[at]);
  return at;
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_line_end(char32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_printable(char32_t c) {
  if (c < 0x7f) return c >= 0x20;
  static const Pattern kPrintable(R"([^\p{C}\p{Z}])");
  return matches(kPrintable, c);
}

bool is_word(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  static const Pattern kWord(R"([\p{L}\p{N}])");
  return matches(kWord, c);
}

Ends ends_to_strip(std::string_view text, std::optional<std::string_view> set) {
  const auto goes = [&](std::size_t at) {
    if (!set) return is_space(character_at(text, at));
    return set->find(text.substr(at, character_bytes(text[at]))) != std::string_view::npos;
  };
  Ends ends;
  while (ends.left < text.size() && goes(ends.left)) ends.left += character_bytes(text[ends.left]);
  for (std::size_t end = text.size(); end > ends.left;) {
    const std::size_t last = character_before(text, end);
    if (!goes(last)) break;
    ends.right += end - last;
    end = last;
  }
  return ends;
}

std::string upper(std::string_view text) {
  static const Pattern kRun("(?s).+");
  return kRun.replaced(expanded_for_upper(text), "\\U$0");
}

std::string lower(std::string_view text) {
  static const Pattern kRun("(?s).+");
  return kRun.replaced(text, "\\L$0");
}

std::string capitalised(std::string_view text) {
  if (text.empty()) return {};
  const std::size_t first = character_bytes(text[0]);
  // The sharp s becomes "Ss" here.
  std::string head = upper(text.substr(0, first));
  if (head == "SS") head = "Ss";
  return head + lower(text.substr(first));
}

std::string titled(std::string_view text) {
  static const Pattern kWord(R"((\p{L}[\p{Mn}\p{Cf}]*)((?:\p{L}|\p{Mn}|\p{Cf})*))");
  return kWord.replaced(text, "\\U$1\\L$2");
}

bool all_of(std::string_view text, CharacterClass what) {
  static const Pattern kAlpha(R"(^\p{L}+$)"), kDecimal(R"(^\p{Nd}+$)"), kDigit(R"(^[\p{Nd}²³¹⁰⁴-⁹₀-₉①-⑨]+$)"),
      kNumeric(R"(^\p{N}+$)"), kAlphanumeric(R"(^[\p{L}\p{N}]+$)");
  switch (what) {
    case CharacterClass::kAlpha:
      return kAlpha.matches(text);
    case CharacterClass::kDecimal:
      return kDecimal.matches(text);
    case CharacterClass::kDigit:
      return kDigit.matches(text);
    case CharacterClass::kNumeric:
      return kNumeric.matches(text);
    case CharacterClass::kAlphanumeric:
      return kAlphanumeric.matches(text);
    case CharacterClass::kSpace:
      break;
  }
  const Ends ends = ends_to_strip(text, std::nullopt);
  return !text.empty() && ends.left == text.size();
}

bool is_lower(std::string_view text) {
  static const Pattern kCased(R"(\p{Ll})"), kOther(R"([\p{Lu}\p{Lt}])");
  return kCased.matches(text) && !kOther.matches(text);
}

bool is_upper(std::string_view text) {
  static const Pattern kCased(R"(\p{Lu})"), kOther(R"([\p{Ll}\p{Lt}])");
  return kCased.matches(text) && !kOther.matches(text);
}

}  // namespace terrace::text::jinja
