#include "coordinator/text/jinja/write_value.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "coordinator/text/jinja/interpreter.h"
#include "coordinator/text/jinja/operators.h"
#include "coordinator/text/jinja/unicode.h"

namespace terrace::text::jinja {
namespace {

using Form = List::Form;

// Text as it grows, counted; it is said as soon as a said text went into it.
class Writer {
 public:
  explicit Writer(Heap& heap) : heap_(heap) {}
  Heap& heap() { return heap_; }
  std::uint32_t& depth() { return depth_; }
  void put(std::string_view bytes) {
    heap_.charge(bytes.size());
    bytes_.append(bytes);
  }
  void saw(const Text& text) { said_ = said_ || text.any_said(); }
  Text take() { return Text(std::move(bytes_), said_); }

 private:
  Heap& heap_;
  std::string bytes_;
  bool said_ = false;
  std::uint32_t depth_ = 0;
};

void write_string_repr(Writer& out, const Text& text) {
  out.saw(text);
  const std::string& bytes = text.bytes();
  const char quote = bytes.find('\'') != std::string::npos && bytes.find('"') == std::string::npos ? '"' : '\'';
  std::string made(1, quote);
  for (std::size_t at = 0; at < bytes.size(); at += character_bytes(bytes[at])) {
    const char32_t c = character_at(bytes, at);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      made.push_back('\\');
      made.push_back(static_cast<char>(c));
    } else if (c == '\n') {
      made += "\\n";
    } else if (c == '\r') {
      made += "\\r";
    } else if (c == '\t') {
      made += "\\t";
    } else if (is_printable(c)) {
      made.append(bytes, at, character_bytes(bytes[at]));
    } else {
      const auto code = static_cast<std::uint32_t>(c);
      made += code < 0x100     ? fmt::format("\\x{:02x}", code)
              : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                               : fmt::format("\\U{:08x}", code);
    }
  }
  made.push_back(quote);
  if (text.markup()) made = "Markup(" + made + ")";
  out.put(made);
}

void write_repr(Writer& out, const Value& value);

void write_items(Writer& out, const std::vector<Value>& items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.put(", ");
    write_repr(out, items[i]);
  }
}

void write_list_repr(Writer& out, const List& list) {
  switch (list.form) {
    case Form::kList:
      out.put("[");
      write_items(out, list.items);
      return out.put("]");
    case Form::kTuple:
      out.put("(");
      write_items(out, list.items);
      return out.put(list.items.size() == 1 ? ",)" : ")");
    case Form::kView:
      out.put(list.view);
      out.put("([");
      write_items(out, list.items);
      return out.put("])");
    case Form::kRange:
      return out.put(list.view);
    case Form::kGenerator:
      not_here("a generator is printed (Python writes its address); put |list behind it");
  }
}

void write_dict_repr(Writer& out, const std::vector<std::pair<Value, Value>>& entries) {
  out.put("{");
  bool first = true;
  for (const auto& [key, value] : entries) {
    if (!first) out.put(", ");
    first = false;
    write_repr(out, key);
    out.put(": ");
    write_repr(out, value);
  }
  out.put("}");
}

void write_repr(Writer& out, const Value& value) {
  const Nesting nesting(out.heap(), out.depth());
  switch (value.kind()) {
    case Kind::kUndefined:
      return out.put("Undefined");
    case Kind::kNone:
      return out.put("None");
    case Kind::kBoolean:
      return out.put(value.integer() != 0 ? "True" : "False");
    case Kind::kInteger:
      return out.put(fmt::format("{}", value.integer()));
    case Kind::kFloat:
      return out.put(repr_of_float(value.number()));
    case Kind::kString:
      return write_string_repr(out, value.text());
    case Kind::kList:
      return write_list_repr(out, value.list());
    case Kind::kDict: {
      std::vector<std::pair<Value, Value>> entries;
      for (const Dict::Entry& entry : value.dict().entries) entries.emplace_back(entry.key, entry.value);
      return write_dict_repr(out, entries);
    }
    case Kind::kNamespace: {
      std::vector<std::pair<Value, Value>> entries;
      for (const auto& [name, held] : value.name_space().names) entries.emplace_back(out.heap().string(name), held);
      out.put("<Namespace ");
      write_dict_repr(out, entries);
      return out.put(">");
    }
    case Kind::kLoop:
      return out.put(fmt::format("<LoopContext {}/{}>", value.loop().index + 1, value.loop().items.size()));
    case Kind::kMacro:
      return out.put(fmt::format("<Macro '{}'>", value.macro().definition->name));
    default:
      not_here(fmt::format("a {} is printed, for which Python writes its address", type_name(value)));
  }
}

// ---- JSON
void write_json_string(Writer& out, const Text& text, bool ascii) {
  out.saw(text);
  const std::string& bytes = text.bytes();
  std::string made = "\"";
  for (std::size_t at = 0; at < bytes.size(); at += character_bytes(bytes[at])) {
    const auto c = static_cast<std::uint32_t>(character_at(bytes, at));
    constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
    if (const std::size_t letter = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : std::string_view::npos;
        letter != std::string_view::npos) {
      made.push_back('\\');
      made.push_back(kLetters[letter]);
    } else if (c < 0x20 || (ascii && c >= 0x7f && c < 0x10000)) {
      made += fmt::format("\\u{:04x}", c);
    } else if (ascii && c >= 0x10000) {
      made += fmt::format("\\u{:04x}\\u{:04x}", 0xd7c0 + (c >> 10), 0xdc00 + (c & 0x3ff));
    } else {
      made.append(bytes, at, character_bytes(bytes[at]));
    }
  }
  out.put(made + "\"");
}

class JsonWriter {
 public:
  JsonWriter(Heap& heap, const JsonForm& form) : out_(heap), form_(form) {}

  Text run(const Value& value) {
    write(value);
    return out_.take();
  }

 private:
  void write(const Value& value) {
    const Nesting nesting(out_.heap(), out_.depth());
    switch (value.kind()) {
      case Kind::kNone:
        return out_.put("null");
      case Kind::kBoolean:
        return out_.put(value.integer() != 0 ? "true" : "false");
      case Kind::kInteger:
        return out_.put(fmt::format("{}", value.integer()));
      case Kind::kFloat:
        return out_.put(json_float(value.number()));
      case Kind::kString:
        return write_json_string(out_, value.text(), form_.ensure_ascii);
      case Kind::kList:
        if (value.list().form == Form::kList || value.list().form == Form::kTuple) return list(value.list());
        break;
      case Kind::kDict:
        return dict(value.dict());
      default:
        break;
    }
    refuse(fmt::format("Object of type {} is not JSON serializable", type_name(value)));
  }

  static std::string json_float(double number) {
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
    return repr_of_float(number);
  }

  void new_line() {
    if (!form_.indent) return;
    out_.put("\n");
    for (std::uint32_t i = 0; i < level_; ++i) out_.put(*form_.indent);
  }
  void before_item(bool first) {
    if (first)
      ++level_;
    else
      out_.put(form_.between_items);
    new_line();
  }
  void after_items(const char* bracket) {
    --level_;
    new_line();
    out_.put(bracket);
  }

  void list(const List& list) {
    if (list.items.empty()) return out_.put("[]");
    out_.put("[");
    bool first = true;
    for (const Value& item : list.items) {
      before_item(std::exchange(first, false));
      write(item);
    }
    after_items("]");
  }

  void dict(const Dict& dict) {
    if (dict.entries.empty()) return out_.put("{}");
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries) entries.push_back(&entry);
    if (form_.sort_keys) {
      std::ranges::stable_sort(entries, [this](const Dict::Entry* a, const Dict::Entry* b) {
        return order(out_.heap(), a->key, b->key) < 0;
      });
    }
    out_.put("{");
    bool first = true;
    for (const Dict::Entry* const entry : entries) {
      before_item(std::exchange(first, false));
      write_json_string(out_, key(entry->key), form_.ensure_ascii);
      out_.put(form_.between_key_and_value);
      write(entry->value);
    }
    after_items("}");
  }

  static Text key(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        return key.text();
      case Kind::kNone:
        return Text("null");
      case Kind::kBoolean:
        return Text(key.integer() != 0 ? "true" : "false");
      case Kind::kInteger:
        return Text(fmt::format("{}", key.integer()));
      case Kind::kFloat:
        return Text(json_float(key.number()));
      default:
        refuse(fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key)));
    }
  }

  Writer out_;
  const JsonForm& form_;
  std::uint32_t level_ = 0;
};

}  // namespace

std::string repr_of_float(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  std::array<char, 40> buffer;
  const auto made =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), std::fabs(number), std::chars_format::scientific);
  const std::string_view shortest(buffer.data(), static_cast<std::size_t>(made.ptr - buffer.data()));  // d.ddde+xx
  const std::size_t e = shortest.find('e');
  std::string digits(1, shortest[0]);
  if (e > 2) digits += shortest.substr(2, e - 2);
  int exponent = 0;
  std::from_chars(shortest.data() + e + (shortest[e + 1] == '+' ? 2 : 1), made.ptr, exponent);
  const std::string sign = std::signbit(number) ? "-" : "";
  constexpr int kLeast = -4, kMost = 16;  // CPython's float_repr_style: beyond, the exponent is written
  if (exponent < kLeast || exponent >= kMost) {
    const std::string fraction = digits.size() > 1 ? "." + digits.substr(1) : "";
    return fmt::format("{}{}{}e{}{:02}", sign, digits[0], fraction, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const std::size_t whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

Text text_of(Heap& heap, const Value& value) {
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return {};
  return repr_of(heap, value);
}

Text repr_of(Heap& heap, const Value& value) {
  Writer out(heap);
  write_repr(out, value);
  return out.take();
}

Text json_of(Heap& heap, const Value& value, const JsonForm& form) { return JsonWriter(heap, form).run(value); }

}  // namespace terrace::text::jinja
