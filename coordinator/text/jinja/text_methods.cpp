// The methods of str.
#include <fmt/core.h>

#include <algorithm>
#include <span>

#include "coordinator/text/jinja/builtins.h"
#include "coordinator/text/jinja/operators.h"
#include "coordinator/text/jinja/strings.h"
#include "coordinator/text/jinja/unicode.h"
#include "coordinator/text/jinja/write_value.h"

namespace terrace::text::jinja {
namespace {

using Arguments = CallArguments;

bool is_given(const std::optional<Value>& value) { return value && !value->is_none(); }

template <std::string (*change)(std::string_view)>
Value changed(Interpreter& at, const Value& self, const Arguments& given) {
  (void)bind("method", given, {});
  at.heap().read(self.bytes().size());
  return at.heap().string(self.text().rewritten(change(self.bytes())));
}

// strip(), lstrip(), rstrip()
template <bool left, bool right>
Value strip(Interpreter& at, const Value& self, const Arguments& given) {
  const auto values = bind("strip", given, {"chars"});
  std::optional<std::string_view> set;
  if (is_given(values[0])) set = text_argument("strip", *values[0]).bytes();
  const Text& text = self.text();
  at.heap().read(text.size() * (1 + (set ? set->size() / 16 : 0)));
  const Ends ends = ends_to_strip(text.bytes(), set);
  // A text of nothing else counts as its own left end.
  if (ends.left == text.size()) return at.heap().string(text.slice(0, 0));
  return at.heap().string(text.slice(left ? ends.left : 0, text.size() - (right ? ends.right : 0)));
}

// ---- splitting
// Words between white space, at most `most` cuts; what is left over keeps its inner white space.
std::vector<Text> split_words(Heap& heap, const Text& text, std::size_t most, bool from_right) {
  const std::string& bytes = text.bytes();
  heap.read(bytes.size());
  std::vector<Range> words;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t n = character_bytes(bytes[at]);
    if (!is_space(character_at(bytes, at))) {
      if (!words.empty() && words.back().end == at) {
        words.back().end = at + n;
      } else {
        heap.charge(sizeof(Range));
        words.push_back({at, at + n});
      }
    }
    at += n;
  }
  // At the last cut what is left over keeps the white space at its other end.
  if (words.size() > most) {
    const auto kept = static_cast<std::ptrdiff_t>(most);
    if (from_right) {
      const Range rest = {0, words[words.size() - most - 1].end};
      words.erase(words.begin(), words.end() - kept);
      words.insert(words.begin(), rest);
    } else {
      const Range rest = {words[most].begin, bytes.size()};
      words.erase(words.begin() + kept, words.end());
      words.push_back(rest);
    }
  }
  std::vector<Text> parts;
  for (const Range& word : words) {
    heap.charge(sizeof(Text));
    parts.push_back(text.slice(word.begin, word.end));
  }
  return parts;
}

std::vector<Text> split_at(Heap& heap, const Text& text, const Text& separator, std::size_t most, bool from_right) {
  if (separator.empty()) refuse("empty separator");
  std::vector<std::size_t> places;
  if (!from_right) {
    places = find_all(heap, text.bytes(), separator.bytes(), most);
  } else {
    // From the right the places may be others: "aaa" at "aa".
    const std::string backward(text.bytes().rbegin(), text.bytes().rend());
    const std::string pattern(separator.bytes().rbegin(), separator.bytes().rend());
    for (const std::size_t at : find_all(heap, backward, pattern, most))
      places.push_back(text.size() - at - separator.size());
    std::ranges::reverse(places);
  }
  std::vector<Text> parts;
  std::size_t from = 0;
  for (const std::size_t at : places) {
    heap.charge(sizeof(Text));
    parts.push_back(text.slice(from, at));
    from = at + separator.size();
  }
  parts.push_back(text.slice(from, text.size()));
  return parts;
}

Value list_of(Heap& heap, std::vector<Text> parts, List::Form form = List::Form::kList) {
  std::vector<Value> items;
  for (Text& part : parts) items.push_back(heap.string(std::move(part)));
  return heap.sequence(std::move(items), form);
}

template <bool from_right>
Value split(Interpreter& at, const Value& self, const Arguments& given) {
  const auto values = bind("split", given, {"sep", "maxsplit"});
  const std::int64_t wanted = values[1] ? integer_of(*values[1]) : -1;
  const std::size_t most = wanted < 0 ? SIZE_MAX - 1 : static_cast<std::size_t>(wanted);
  Heap& heap = at.heap();
  if (!is_given(values[0])) return list_of(heap, split_words(heap, self.text(), most, from_right));
  return list_of(heap, split_at(heap, self.text(), text_argument("split", *values[0]), most, from_right));
}

template <bool from_right>
Value partition(Interpreter& at, const Value& self, const Arguments& given) {
  const Value argument = *bind("partition", given, {"sep"}, 1)[0];
  const Text& separator = text_argument("partition", argument);
  if (separator.empty()) refuse("empty separator");
  Heap& heap = at.heap();
  const Text& text = self.text();
  const std::size_t place =
      from_right ? find_last(heap, text.bytes(), separator.bytes()) : find_first(heap, text.bytes(), separator.bytes());
  std::vector<Text> parts(3);
  if (place == std::string::npos)
    parts[from_right ? 2 : 0] = text;
  else
    parts = {text.slice(0, place), separator, text.slice(place + separator.size(), text.size())};
  return list_of(heap, std::move(parts), List::Form::kTuple);
}

Value splitlines(Interpreter& at, const Value& self, const Arguments& given) {
  const auto values = bind("splitlines", given, {"keepends"});
  if (values[0] && truth(*values[0])) not_here("str.splitlines(keepends=True) is not in this interpreter");
  return list_of(at.heap(), split_lines(at.heap(), self.text()));
}

// ---- searching
// The part of the text that start and end (characters, negative from the end) leave.
struct Part {
  std::size_t begin, end;  // bytes
  bool empty_range;        // start lies behind end: nothing is found, not even nothing
};

Part part_of(Heap& heap, const std::string& bytes, const std::optional<Value>& start, const std::optional<Value>& end) {
  if (!is_given(start) && !is_given(end)) return {0, bytes.size(), false};
  heap.read(bytes.size());
  const auto n = static_cast<std::int64_t>(count_characters(bytes));
  const auto place = [&](const std::optional<Value>& value, std::int64_t otherwise) {
    if (!is_given(value)) return otherwise;
    const std::int64_t at = integer_of(*value);
    return std::max<std::int64_t>(at < 0 ? at + n : at, 0);
  };
  const std::int64_t first = place(start, 0), last = std::min(place(end, n), n);
  const std::size_t from = offset_of_character(bytes, static_cast<std::size_t>(first));
  const std::size_t to = offset_of_character(bytes, static_cast<std::size_t>(last));
  return {from, std::max(from, to), first > last};
}

template <bool at_end>
Value starts_or_ends(Interpreter& at, const Value& self, const Arguments& given) {
  const auto values = bind(at_end ? "endswith" : "startswith", given, {"prefix", "start", "end"}, 1);
  const std::string& bytes = self.bytes();
  const Part part = part_of(at.heap(), bytes, values[1], values[2]);
  const std::string_view text = std::string_view(bytes).substr(part.begin, part.end - part.begin);
  const auto matches = [&](const Value& affix) {
    const std::string& wanted = text_argument(at_end ? "endswith" : "startswith", affix).bytes();
    at.heap().read(wanted.size());
    return !part.empty_range && (at_end ? text.ends_with(wanted) : text.starts_with(wanted));
  };
  const Value& affix = *values[0];
  if (!affix.is(Kind::kList) || affix.list().form != List::Form::kTuple) return Value(matches(affix));
  return Value(std::ranges::any_of(affix.list().items, matches));
}

template <bool from_right, bool must_be_there>
Value find(Interpreter& at, const Value& self, const Arguments& given) {
  const auto values = bind("find", given, {"sub", "start", "end"}, 1);
  const std::string& bytes = self.bytes();
  const Part part = part_of(at.heap(), bytes, values[1], values[2]);
  const std::string_view text = std::string_view(bytes).substr(part.begin, part.end - part.begin);
  const std::string& wanted = text_argument("find", *values[0]).bytes();
  const std::size_t place = part.empty_range ? std::string_view::npos
                            : from_right     ? find_last(at.heap(), text, wanted)
                                             : find_first(at.heap(), text, wanted);
  if (place == std::string_view::npos) {
    if (must_be_there) refuse("substring not found");
    return Value(std::int64_t{-1});
  }
  return Value(static_cast<std::int64_t>(count_characters(std::string_view(bytes).substr(0, part.begin + place))));
}

Value count(Interpreter& at, const Value& self, const Arguments& given) {
  const auto values = bind("count", given, {"sub", "start", "end"}, 1);
  const std::string& bytes = self.bytes();
  const Part part = part_of(at.heap(), bytes, values[1], values[2]);
  const std::string_view text = std::string_view(bytes).substr(part.begin, part.end - part.begin);
  const std::string& wanted = text_argument("count", *values[0]).bytes();
  if (part.empty_range) return Value(std::int64_t{0});
  const std::size_t n =
      wanted.empty() ? count_characters(text) + 1 : find_all(at.heap(), text, wanted, SIZE_MAX).size();
  return Value(static_cast<std::int64_t>(n));
}

// ---- making other texts
Value replace(Interpreter& at, const Value& self, const Arguments& given) {
  const auto values = bind("replace", given, {"old", "new", "count"}, 2);
  const std::int64_t most = values[2] ? integer_of(*values[2]) : -1;
  return at.heap().string(replaced(at.heap(), self.text(), text_argument("replace", *values[0]),
                                   text_argument("replace", *values[1]), most));
}

Value join(Interpreter& at, const Value& self, const Arguments& given) {
  Text out;
  bool first = true;
  for (const Value& item : items_of(at.heap(), *bind("join", given, {"iterable"}, 1)[0])) {
    if (!item.is_string()) refuse(fmt::format("sequence item: expected str instance, {} found", type_name(item)));
    at.heap().charge(item.bytes().size() + self.bytes().size());
    if (!std::exchange(first, false)) out.append(self.text());
    out.append(item.text());
  }
  return at.heap().string(std::move(out));
}

template <bool prefix>
Value without_affix(Interpreter& at, const Value& self, const Arguments& given) {
  const Value argument = *bind("removeprefix", given, {"affix"}, 1)[0];
  const std::string& affix = text_argument("removeprefix", argument).bytes();
  const Text& text = self.text();
  if (prefix && text.bytes().starts_with(affix)) return at.heap().string(text.slice(affix.size(), text.size()));
  if (!prefix && text.bytes().ends_with(affix)) return at.heap().string(text.slice(0, text.size() - affix.size()));
  return self;
}

enum class Side { kLeft, kRight, kBoth };

Value padded(Heap& heap, const Text& text, std::int64_t width, const Text& fill, Side side) {
  const auto size = static_cast<std::int64_t>(count_characters(text.bytes()));
  if (width <= size) return heap.string(text);
  const auto missing = static_cast<std::size_t>(width - size);
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(missing, fill.size(), &bytes)) bytes = SIZE_MAX;
  heap.charge(bytes);
  // CPython's str.center(): the odd one goes left where the width is odd too.
  const std::size_t centred = missing / 2 + (missing & static_cast<std::size_t>(width) & 1);
  const std::size_t left = side == Side::kLeft ? missing : side == Side::kRight ? 0 : centred;
  Text out;
  for (std::size_t i = 0; i < left; ++i) out.append(fill);
  out.append(text);
  for (std::size_t i = left; i < missing; ++i) out.append(fill);
  return heap.string(std::move(out));
}

template <Side side>
Value pad(Interpreter& at, const Value& self, const Arguments& given) {
  const auto values = bind("ljust", given, {"width", "fillchar"}, 1);
  const Text fill = values[1] ? text_argument("ljust", *values[1]) : Text(" ");
  if (count_characters(fill.bytes()) != 1) refuse("The fill character must be exactly one character long");
  return padded(at.heap(), self.text(), integer_of(*values[0]), fill, side);
}

Value zfill(Interpreter& at, const Value& self, const Arguments& given) {
  const std::int64_t width = integer_of(*bind("zfill", given, {"width"}, 1)[0]);
  const Text& text = self.text();
  const bool sign = text.bytes().starts_with('-') || text.bytes().starts_with('+');
  const Value digits =
      padded(at.heap(), text.slice(sign ? 1 : 0, text.size()), width - (sign ? 1 : 0), Text("0"), Side::kLeft);
  Text out = text.slice(0, sign ? 1 : 0);
  out.append(digits.text());
  return at.heap().string(std::move(out));
}

template <CharacterClass what>
Value all_are(Interpreter& at, const Value& self, const Arguments& given) {
  (void)bind("method", given, {});
  at.heap().read(self.bytes().size());
  return Value(all_of(self.bytes(), what));
}

template <bool (*is)(std::string_view)>
Value has_case(Interpreter& at, const Value& self, const Arguments& given) {
  (void)bind("method", given, {});
  at.heap().read(self.bytes().size());
  return Value(is(self.bytes()));
}

constexpr MethodEntry kMethods[] = {
    {"strip", strip<true, true>},
    {"lstrip", strip<true, false>},
    {"rstrip", strip<false, true>},
    {"split", split<false>},
    {"rsplit", split<true>},
    {"splitlines", splitlines},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"startswith", starts_or_ends<false>},
    {"endswith", starts_or_ends<true>},
    {"find", find<false, false>},
    {"rfind", find<true, false>},
    {"index", find<false, true>},
    {"rindex", find<true, true>},
    {"count", count},
    {"replace", replace},
    {"join", join},
    {"removeprefix", without_affix<true>},
    {"removesuffix", without_affix<false>},
    {"upper", changed<upper>},
    {"lower", changed<lower>},
    {"capitalize", changed<capitalised>},
    {"title", changed<titled>},
    {"ljust", pad<Side::kRight>},
    {"rjust", pad<Side::kLeft>},
    {"center", pad<Side::kBoth>},
    {"zfill", zfill},
    {"isalpha", all_are<CharacterClass::kAlpha>},
    {"isdecimal", all_are<CharacterClass::kDecimal>},
    {"isdigit", all_are<CharacterClass::kDigit>},
    {"isnumeric", all_are<CharacterClass::kNumeric>},
    {"isalnum", all_are<CharacterClass::kAlphanumeric>},
    {"isspace", all_are<CharacterClass::kSpace>},
    {"islower", has_case<is_lower>},
    {"isupper", has_case<is_upper>},
    // Of Python's, and not here: the call says so by name.
    {"format", nullptr},
    {"format_map", nullptr},
    {"encode", nullptr},
    {"translate", nullptr},
    {"maketrans", nullptr},
    {"expandtabs", nullptr},
    {"casefold", nullptr},
    {"swapcase", nullptr},
    {"istitle", nullptr},
    {"isascii", nullptr},
    {"isidentifier", nullptr},
    {"isprintable", nullptr},
};

}  // namespace

std::span<const MethodEntry> text_methods() { return kMethods; }

}  // namespace terrace::text::jinja
