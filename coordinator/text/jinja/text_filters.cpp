// Filters that give text or numbers.
#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
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

// The method of str of that name, on the value as text.
Value by_method(Interpreter& at, const Value& input, const char* method, const Arguments& given) {
  const Value text = at.heap().string(text_of(at.heap(), input));
  return find_method(text, method)->run(at, text, given);
}

template <std::string (*change)(std::string_view)>
Value changed(Interpreter& at, const Value& input, const Arguments& given) {
  (void)bind("filter", given, {});
  const Text text = text_of(at.heap(), input);
  at.heap().read(text.size());
  return at.heap().string(text.rewritten(change(text.bytes())));
}

// Jinja's own rule for words, which is not str.title()'s: they end at - ( { [ < and white space.
std::string titled_words(std::string_view text) {
  std::string out;
  bool word_begins = true;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t n = character_bytes(text[at]);
    const std::string_view one = text.substr(at, n);
    out += word_begins ? upper(one) : lower(one);
    word_begins = std::string_view("-({[<").find(one) != std::string_view::npos || is_space(character_at(text, at));
    at += n;
  }
  return out;
}

Value trim(Interpreter& at, const Value& input, const Arguments& given) {
  const auto values = bind("trim", given, {"chars"});
  return by_method(at, input, "strip", {{values[0].value_or(Value())}, {}});
}

Value string(Interpreter& at, const Value& input, const Arguments& given) {
  (void)bind("string", given, {});
  return at.heap().string(text_of(at.heap(), input));
}

Value safe(Interpreter& at, const Value& input, const Arguments& given) {
  (void)bind("safe", given, {});
  Text text = text_of(at.heap(), input);
  text.set_markup(true);
  return at.heap().string(std::move(text));
}

template <bool anew>
Value escape(Interpreter& at, const Value& input, const Arguments& given) {
  (void)bind("escape", given, {});
  const Text text = text_of(at.heap(), input);
  at.heap().charge(5 * text.size());
  return at.heap().string(text.markup() && !anew ? text : escaped(text));
}

Value replace(Interpreter& at, const Value& input, const Arguments& given) {
  const auto values = bind("replace", given, {"old", "new", "count"}, 2);
  const std::int64_t most = is_given(values[2]) ? integer_of(*values[2]) : -1;
  Heap& heap = at.heap();
  Text text = text_of(heap, input);
  text.set_markup(false);
  return heap.string(replaced(heap, text, text_of(heap, *values[0]), text_of(heap, *values[1]), most));
}

Value indent(Interpreter& at, const Value& input, const Arguments& given) {
  const auto values = bind("indent", given, {"width", "first", "blank"});
  Heap& heap = at.heap();
  Text margin(std::string(4, ' '));
  if (values[0] && values[0]->is_string()) {
    margin = values[0]->text();
  } else if (values[0]) {
    const std::int64_t width = integer_of(*values[0]);
    heap.charge(width > 0 ? static_cast<std::size_t>(width) : 0);
    margin = Text(std::string(width > 0 ? static_cast<std::size_t>(width) : 0, ' '));
  }
  const bool first = values[1] && truth(*values[1]), blank = values[2] && truth(*values[2]);
  if (input.is_undefined()) refuse(input.why());
  if (!input.is_string()) refuse(fmt::format("indent takes a str, not {}", type_name(input)));
  Text whole = input.text();
  const bool markup = whole.markup();
  whole.append("\n");  // so that a line end at the end makes an empty line, as Jinja has it
  const std::vector<Text> lines = split_lines(heap, whole);
  Text out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n");
    const bool indented = i == 0 ? first : blank || !lines[i].empty();
    heap.charge(lines[i].size() + margin.size());
    if (indented) out.append(margin);
    out.append(lines[i]);
  }
  out.set_markup(markup);
  return heap.string(std::move(out));
}

Value center(Interpreter& at, const Value& input, const Arguments& given) {
  const auto values = bind("center", given, {"width"});
  return by_method(at, input, "center", {{values[0].value_or(Value(std::int64_t{80}))}, {}});
}

Value truncate(Interpreter& at, const Value& input, const Arguments& given) {
  const auto values = bind("truncate", given, {"length", "killwords", "end", "leeway"});
  Heap& heap = at.heap();
  const Text end = values[2] ? text_of(heap, *values[2]) : Text("...");
  const std::int64_t wanted = values[0] ? integer_of(*values[0]) : 255;
  const std::int64_t leeway = is_given(values[3]) ? integer_of(*values[3]) : 5;
  const std::int64_t room = wanted - static_cast<std::int64_t>(count_characters(end.bytes()));
  if (room < 0) refuse(fmt::format("expected length >= {}, got {}", count_characters(end.bytes()), wanted));
  if (leeway < 0) refuse(fmt::format("expected leeway >= 0, got {}", leeway));
  std::int64_t most = 0;
  if (__builtin_add_overflow(wanted, leeway, &most)) most = INT64_MAX;
  if (input.is_string()) heap.read(input.bytes().size());
  if (static_cast<std::int64_t>(length(input)) <= most) return input;
  const Text& text = text_argument("truncate", input);
  Text out = text.slice(0, offset_of_character(text.bytes(), static_cast<std::size_t>(room)));
  if (!(values[1] && truth(*values[1])))
    if (const std::size_t space = out.bytes().rfind(' '); space != std::string::npos) out = out.slice(0, space);
  out.append(end);
  return heap.string(std::move(out));
}

Value wordcount(Interpreter& at, const Value& input, const Arguments& given) {
  (void)bind("wordcount", given, {});
  const Text text = text_of(at.heap(), input);
  at.heap().read(text.size());
  std::int64_t n = 0;
  bool inside = false;
  for (std::size_t i = 0; i < text.size(); i += character_bytes(text.bytes()[i])) {
    const bool word = is_word(character_at(text.bytes(), i));
    n += word && !inside ? 1 : 0;
    inside = word;
  }
  return Value(n);
}

Value format(Interpreter& at, const Value& input, const Arguments& given) {
  if (!given.positional.empty() && !given.named.empty())
    refuse("can't handle positional and keyword arguments at the same time");
  Heap& heap = at.heap();
  Value values = heap.sequence(given.positional, List::Form::kTuple);
  if (!given.named.empty()) values = find_function("dict")->run(at, {{}, given.named});
  return arithmetic(heap, BinaryOperator::kModulo, heap.string(text_of(heap, input)), values);
}

// ---- JSON
Value tojson(Interpreter& at, const Value& input, const Arguments& given) {
  const auto values = bind("tojson", given, {"ensure_ascii", "indent", "separators", "sort_keys"});
  Heap& heap = at.heap();
  JsonForm form;
  form.ensure_ascii = values[0] && truth(*values[0]);
  form.sort_keys = values[3] && truth(*values[3]);
  if (is_given(values[1])) {
    if (values[1]->is_string()) {
      form.indent = values[1]->bytes();
    } else {
      const std::int64_t width = integer_of(*values[1]);
      heap.charge(width > 0 ? static_cast<std::size_t>(width) : 0);
      form.indent = std::string(width > 0 ? static_cast<std::size_t>(width) : 0, ' ');
    }
    form.between_items = ",";
  }
  if (is_given(values[2])) {
    const std::vector<Value> two = items_of(heap, *values[2]);
    if (two.size() != 2 || !two[0].is_string() || !two[1].is_string())
      refuse("tojson(separators=...) takes a tuple of two strings");
    form.between_items = two[0].bytes();
    form.between_key_and_value = two[1].bytes();
  }
  return heap.string(json_of(heap, input, form));
}

Value from_json(Interpreter& at, const Value& input, const Arguments& given) {
  (void)bind("from_json", given, {});
  return value_of_json(at.heap(), text_argument("from_json", input));
}

// ---- numbers
// Python's float(text) and int(text): white space around it, underscores between digits.
std::string digits_of(const std::string& text) {
  const Ends ends = ends_to_strip(text, std::nullopt);
  if (ends.left == text.size()) return {};
  std::string out;
  for (std::size_t i = ends.left; i < text.size() - ends.right; ++i) {
    const auto digit = [&](std::size_t at) {
      return at < text.size() && std::isxdigit(static_cast<unsigned char>(text[at])) != 0;
    };
    if (text[i] == '_' && i > 0 && digit(i - 1) && digit(i + 1)) continue;
    out.push_back(text[i]);
  }
  return out;
}

std::optional<double> parse_float(const std::string& text) {
  const std::string digits = digits_of(text);
  const bool lawful = digits.find_first_not_of("+-.0123456789eEinfatyINFATY") == std::string::npos;
  if (digits.empty() || !lawful) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(digits.c_str(), &end);
  return *end == '\0' ? std::optional(value) : std::nullopt;
}

std::optional<std::int64_t> parse_integer(const std::string& text, std::int64_t base) {
  std::string digits = digits_of(text);
  const bool minus = digits.starts_with('-');
  if (minus || digits.starts_with('+')) digits.erase(0, 1);
  const char mark = digits.size() > 2 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : '\0';
  if ((mark == 'x' && base == 16) || (mark == 'o' && base == 8) || (mark == 'b' && base == 2)) digits.erase(0, 2);
  if (base < 2 || base > 36 || digits.empty() || digits[0] == '-') return std::nullopt;
  if (minus) digits.insert(0, "-");
  std::int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, static_cast<int>(base));
  if (end != digits.data() + digits.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range)
    not_here(fmt::format("int: {} is beyond the 64 bits that integers have here", text));
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

std::optional<std::int64_t> whole_part(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (!(std::fabs(value) < 0x1p63)) not_here("int: a number beyond the 64 bits that integers have here");
  return static_cast<std::int64_t>(value);
}

Value to_int(Interpreter&, const Value& input, const Arguments& given) {
  const auto values = bind("int", given, {"default", "base"});
  const Value otherwise = values[0].value_or(Value(std::int64_t{0}));
  if (input.is_undefined()) refuse(input.why());
  std::optional<std::int64_t> made;
  if (input.is_integral()) {
    made = input.integer();
  } else if (input.is(Kind::kFloat)) {
    made = whole_part(input.number());
  } else if (input.is_string()) {
    made = parse_integer(input.bytes(), values[1] ? integer_of(*values[1]) : 10);
    if (!made)
      if (const auto number = parse_float(input.bytes())) made = whole_part(*number);
  }
  return made ? Value(*made) : otherwise;
}

Value to_float(Interpreter&, const Value& input, const Arguments& given) {
  const auto values = bind("float", given, {"default"});
  if (input.is_undefined()) refuse(input.why());
  if (input.is_number()) return Value(input.number());
  if (input.is_string())
    if (const auto number = parse_float(input.bytes())) return Value(*number);
  return values[0].value_or(Value(0.0));
}

Value absolute(Interpreter& at, const Value& input, const Arguments& given) {
  (void)bind("abs", given, {});
  if (input.is_undefined()) refuse(input.why());
  if (!input.is_number()) refuse(fmt::format("bad operand type for abs(): '{}'", type_name(input)));
  if (input.is(Kind::kFloat)) return Value(std::fabs(input.number()));
  return negative(at.heap(), input.integer() < 0 ? UnaryOperator::kMinus : UnaryOperator::kPlus, input);
}

// To `precision` decimal digits, half to even by the number's exact value: what printf does too.
double rounded(double value, std::int64_t precision) {
  constexpr std::int64_t kMostDigits = 330;  // more than any double has
  if (!std::isfinite(value) || precision > kMostDigits) return value;
  if (precision < -kMostDigits) return std::copysign(0.0, value);
  if (precision < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(value / unit) * unit;
  }
  char buffer[1100];
  (void)std::snprintf(buffer, sizeof(buffer), "%.*f", static_cast<int>(precision), value);
  return std::strtod(buffer, nullptr);
}

Value round(Interpreter&, const Value& input, const Arguments& given) {
  const auto values = bind("round", given, {"precision", "method"});
  const std::int64_t precision = values[0] ? integer_of(*values[0]) : 0;
  const std::string method = values[1] ? text_argument("round", *values[1]).bytes() : "common";
  if (method != "common" && method != "ceil" && method != "floor") refuse("method must be common, ceil or floor");
  if (input.is_undefined()) refuse(input.why());
  if (!input.is_number()) refuse(fmt::format("type {} doesn't define __round__ method", type_name(input)));
  if (method == "common") {
    if (input.is_integral() && precision >= 0) return Value(input.integer());
    if (input.is_integral()) not_here("round() of an integer to tens is not in this interpreter");
    return Value(rounded(input.number(), precision));
  }
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.number() * unit;
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

constexpr FilterEntry kFilters[] = {
    {"upper", changed<upper>},
    {"lower", changed<lower>},
    {"capitalize", changed<capitalised>},
    {"title", changed<titled_words>},
    {"trim", trim},
    {"string", string},
    {"safe", safe},
    {"escape", escape<false>},
    {"e", escape<false>},
    {"forceescape", escape<true>},
    {"replace", replace},
    {"indent", indent},
    {"center", center},
    {"truncate", truncate},
    {"wordcount", wordcount},
    {"format", format},
    {"tojson", tojson},
    {"from_json", from_json},
    {"int", to_int},
    {"float", to_float},
    {"abs", absolute},
    {"round", round},
};

}  // namespace

std::span<const FilterEntry> text_filters() { return kFilters; }

}  // namespace terrace::text::jinja
