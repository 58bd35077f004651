#include "coordinator/sampler/grammar/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "coordinator/sampler/grammar/scan.h"
#include "coordinator/sampler/grammar/utf8_ranges.h"

namespace terrace::sampler::grammar {
namespace {

using Ranges = std::vector<CodePointRange>;

Expression digits(std::uint32_t min, std::uint32_t max) { return repeat(characters({{'0', '9'}}), min, max); }
Expression optional(Expression e) { return repeat(std::move(e), 0, 1); }

// What may stand in a string as it is.
const Ranges& raw_characters() {
  static const Ranges ranges = complement({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
  return ranges;
}

Expression hexadecimal(std::uint32_t n) { return repeat(characters({{'0', '9'}, {'a', 'f'}, {'A', 'F'}}), n, n); }

// uXXXX of a character that is no surrogate, or of a pair of surrogates.
Expression unicode_escape() {
  const Expression low_surrogate = sequence(literal("\\u"), characters({{'d', 'd'}, {'D', 'D'}}),
                                            characters({{'c', 'f'}, {'C', 'F'}}), hexadecimal(2));
  return sequence(
      literal("u"),
      alternatives(sequence(characters({{'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'}}), hexadecimal(3)),
                   sequence(characters({{'d', 'd'}, {'D', 'D'}}),
                            alternatives(sequence(characters({{'0', '7'}}), hexadecimal(2)),
                                         sequence(characters({{'8', '9'}, {'a', 'b'}, {'A', 'B'}}), hexadecimal(2),
                                                  low_surrogate)))));
}

// The one form of a character that cannot stand as it is.
std::string escaped(char32_t c) {
  constexpr std::string_view kCharacters = "\b\f\n\r\t\"\\";
  constexpr std::string_view kNames = "bfnrt\"\\";
  const std::size_t named = kCharacters.find(static_cast<char>(c));
  return named != std::string_view::npos ? fmt::format("\\{}", kNames[named])
                                         : fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c));
}

// The names that are left out, as a tree of their characters.
struct NameTree {
  bool ends = false;
  std::map<char32_t, NameTree> next;
};

// What may follow where the names of `tree` have been followed: all but what ends one of them.
Expression other_than(const NameTree& tree) {
  Ranges named;
  Expression all;
  all.kind = Expression::Kind::kAlternatives;
  for (const auto& [c, below] : tree.next) {
    named.push_back({c, c});
    std::string text;
    append_utf8(text, c);
    all.children.push_back(sequence(literal(std::move(text)), other_than(below)));
  }
  const Ranges excluded = complement(raw_characters());
  named.insert(named.end(), excluded.begin(), excluded.end());
  all.children.push_back(
      sequence(characters(complement(std::move(named))), repeat(characters(raw_characters()), 0, kUnlimited)));
  if (!tree.ends) all.children.push_back(sequence());
  return all;
}

}  // namespace

Expression gap() { return optional(characters({{' ', ' '}, {'\t', '\t'}, {'\n', '\n'}, {'\r', '\r'}})); }

Expression string_character() {
  return alternatives(
      characters(raw_characters()),
      sequence(
          literal("\\"),
          alternatives(
              characters(
                  {{'"', '"'}, {'\\', '\\'}, {'/', '/'}, {'b', 'b'}, {'f', 'f'}, {'n', 'n'}, {'r', 'r'}, {'t', 't'}}),
              unicode_escape())));
}

Expression string_text(std::uint32_t min, std::uint32_t max) {
  return sequence(literal("\""), repeat(string_character(), min, max), literal("\""));
}

Expression encoded_character(const Ranges& ranges) {
  Expression all;
  all.kind = Expression::Kind::kAlternatives;
  Ranges raw;
  for (const CodePointRange& range : ranges) {
    for (const CodePointRange& allowed : raw_characters()) {
      const CodePointRange common{std::max(range.first, allowed.first), std::min(range.last, allowed.last)};
      if (common.first <= common.last) raw.push_back(common);
    }
    for (char32_t c = range.first; c <= std::min<char32_t>(range.last, '\\'); ++c)
      if (c < 0x20 || c == '"' || c == '\\') all.children.push_back(literal(escaped(c)));
  }
  if (!raw.empty()) all.children.push_back(characters(std::move(raw)));
  return all;
}

Expression other_name(const std::vector<std::string>& names) {
  NameTree tree;
  const auto is_raw = [](char32_t c) { return c >= 0x20 && c != '"' && c != '\\'; };
  for (const std::string& name : names) {
    std::vector<char32_t> name_characters;
    for (std::size_t at = 0; at < name.size();) name_characters.push_back(take_code_point(name, at).value());
    if (!std::ranges::all_of(name_characters, is_raw)) continue;  // cannot be written without escapes
    NameTree* place = &tree;
    for (const char32_t c : name_characters) place = &place->next[c];
    place->ends = true;
  }
  return sequence(literal("\""), other_than(tree), literal("\""));
}

Expression integer_text() {
  return alternatives(literal("0"), sequence(optional(literal("-")), characters({{'1', '9'}}), digits(0, 17)));
}

Expression number_text() {
  return sequence(optional(literal("-")), alternatives(literal("0"), sequence(characters({{'1', '9'}}), digits(0, 17))),
                  optional(sequence(literal("."), digits(1, 16))),
                  optional(sequence(characters({{'e', 'e'}, {'E', 'E'}}),
                                    optional(characters({{'+', '+'}, {'-', '-'}})), digits(1, 2))));
}

Expression comma() { return sequence(literal(","), gap()); }

Expression bracketed(std::string open, Expression elements, std::string close) {
  return sequence(literal(std::move(open)), gap(), std::move(elements), literal(std::move(close)));
}

}  // namespace terrace::sampler::grammar
