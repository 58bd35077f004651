// Functions that templates may call, and the methods of lists and objects.
#include <fmt/core.h>

#include <locale.h>
#include <algorithm>
#include <clocale>
#include <memory>
#include <span>

#include "coordinator/text/jinja/builtins.h"
#include "coordinator/text/jinja/operators.h"
#include "coordinator/text/jinja/write_value.h"

namespace terrace::text::jinja {
namespace {

using Arguments = CallArguments;
using Form = List::Form;

// ---- functions
Value make_namespace(Interpreter& at, const Arguments& given) {
  Namespace* const made = at.heap().name_space();
  const auto set = [&](std::string_view name, const Value& value) {
    at.heap().charge(name.size() + 64);
    if (Value* const held = made->find(name))
      *held = value;
    else
      made->names.emplace_back(name, value);
  };
  for (const Value& value : given.positional) {
    if (!value.is(Kind::kDict)) refuse(fmt::format("namespace() takes objects, not {}", type_name(value)));
    for (const Dict::Entry& entry : value.dict().entries)
      if (entry.key.is_string()) set(entry.key.bytes(), entry.value);
  }
  for (const auto& [name, value] : given.named) set(name, value);
  return Value(made);
}

Value make_dict(Interpreter& at, const Arguments& given) {
  Heap& heap = at.heap();
  Dict* const made = heap.dict();
  if (given.positional.size() > 1)
    refuse(fmt::format("dict expected at most 1 argument, got {}", given.positional.size()));
  for (const Value& value : given.positional) {
    if (value.is(Kind::kDict)) {
      for (const Dict::Entry& entry : value.dict().entries) heap.set(*made, entry.key, entry.value);
      continue;
    }
    for (const Value& pair : items_of(heap, value)) {
      const std::vector<Value> two = items_of(heap, pair);
      if (two.size() != 2) refuse("dictionary update sequence elements must have length 2");
      heap.set(*made, two[0], two[1]);
    }
  }
  for (const auto& [name, value] : given.named) heap.set(*made, heap.string(std::string(name)), value);
  return Value(made);
}

Value make_range(Interpreter& at, const Arguments& given) {
  if (!given.named.empty()) refuse("range() takes no keyword arguments");
  const std::size_t n = given.positional.size();
  if (n < 1 || n > 3) refuse(fmt::format("range expected 1 to 3 arguments, got {}", n));
  const std::int64_t start = n == 1 ? 0 : integer_of(given.positional[0]);
  const std::int64_t stop = integer_of(given.positional[n == 1 ? 0 : 1]);
  const std::int64_t step = n == 3 ? integer_of(given.positional[2]) : 1;
  if (step == 0) refuse("range() arg 3 must not be zero");
  // Differences as unsigned: they are right even where the signed ones overflow.
  const auto as_unsigned = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  const bool up = step > 0;
  const std::uint64_t span = up ? as_unsigned(stop) - as_unsigned(start) : as_unsigned(start) - as_unsigned(stop);
  const std::uint64_t stride = up ? as_unsigned(step) : 0 - as_unsigned(step);
  const bool empty = up ? start >= stop : start <= stop;
  const std::uint64_t count = empty ? 0 : (span - 1) / stride + 1;
  Heap& heap = at.heap();
  if (count > heap.limits().range_elements)
    over_limit(fmt::format("range() of {} elements; at most {} are allowed (limit: range)", count,
                           heap.limits().range_elements));
  heap.charge(count * sizeof(Value));
  std::vector<Value> items;
  for (std::uint64_t i = 0; i < count; ++i)
    items.emplace_back(static_cast<std::int64_t>(as_unsigned(start) + i * as_unsigned(step)));
  List* const list = heap.list(std::move(items), Form::kRange);
  const std::string shown =
      step == 1 ? fmt::format("range({}, {})", start, stop) : fmt::format("range({}, {}, {})", start, stop, step);
  list->view = heap.string(shown).bytes().c_str();
  return Value(list);
}

Value raise_exception(Interpreter& at, const Arguments& given) {
  const Value message = *bind("raise_exception", given, {"message"}, 1)[0];
  throw Failure{ErrorCode::kRefused, text_of(at.heap(), message).bytes(), true};
}

// strftime() with English names whatever the program's locale is.
std::string formatted_time(const std::string& directive, const std::tm& time) {
  struct Free {
    void operator()(locale_t locale) const { ::freelocale(locale); }
  };
  const std::unique_ptr<std::remove_pointer_t<locale_t>, Free> english(::newlocale(LC_ALL_MASK, "C", nullptr));
  if (english == nullptr) throw Failure{ErrorCode::kOutOfMemory, "there is no memory for the C locale"};
  char buffer[256];  // of one directive without a width
  return std::string(buffer, ::strftime_l(buffer, sizeof(buffer), directive.c_str(), &time, english.get()));
}

Value strftime_now(Interpreter& at, const Arguments& given) {
  const Value argument = *bind("strftime_now", given, {"format"}, 1)[0];
  const Text& format = text_argument("strftime_now", argument);
  const std::string& bytes = format.bytes();
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    at.heap().charge(1);
    if (bytes[i] != '%' || i + 1 == bytes.size()) {
      out.push_back(bytes[i]);
      continue;
    }
    std::string directive = "%";
    if (constexpr std::string_view kFlags = "-_0^#";
        kFlags.find(bytes[i + 1]) != std::string_view::npos && i + 2 < bytes.size())
      directive.push_back(bytes[++i]);
    const char letter = bytes[++i];
    directive.push_back(letter);
    constexpr std::string_view kKnown = "aAbBcCdDeFgGhHIjklmMnprRsStTuUVwWxXyYP%";
    if (letter == 'f')
      out += "000000";  // `now` has whole seconds
    else if (letter == 'z' || letter == 'Z')
      continue;  // it has no zone
    else if (kKnown.find(letter) != std::string_view::npos)
      out += formatted_time(directive, at.now());
    else
      not_here(fmt::format("strftime_now() does not know the directive {}", directive));
  }
  return at.heap().string(format.rewritten(std::move(out)));
}

constexpr Function kFunctions[] = {{"namespace", make_namespace},
                                   {"dict", make_dict},
                                   {"range", make_range},
                                   {"raise_exception", raise_exception},
                                   {"strftime_now", strftime_now}};

// ---- methods of objects
Value dict_get(Interpreter& at, const Value& self, const Arguments& given) {
  const auto values = bind("get", given, {"key", "default"}, 1);
  if (const Value* const value = self.dict().find(key_text(at.heap(), *values[0]))) return *value;
  return values[1].value_or(Value());
}

Value view_of(Heap& heap, std::vector<Value> items, const char* name) {
  List* const list = heap.list(std::move(items), Form::kView);
  list->view = name;
  return Value(list);
}

Value dict_items(Interpreter& at, const Value& self, const Arguments& given) {
  (void)bind("items", given, {});
  std::vector<Value> pairs;
  for (const Dict::Entry& entry : self.dict().entries)
    pairs.push_back(at.heap().sequence({entry.key, entry.value}, Form::kTuple));
  return view_of(at.heap(), std::move(pairs), "dict_items");
}

Value dict_keys(Interpreter& at, const Value& self, const Arguments& given) {
  (void)bind("keys", given, {});
  return view_of(at.heap(), items_of(at.heap(), self), "dict_keys");
}

Value dict_values(Interpreter& at, const Value& self, const Arguments& given) {
  (void)bind("values", given, {});
  std::vector<Value> values;
  for (const Dict::Entry& entry : self.dict().entries) values.push_back(entry.value);
  return view_of(at.heap(), std::move(values), "dict_values");
}

void erase_entry(Heap& heap, Dict& dict, std::size_t place) {
  heap.step(1 + dict.entries.size());
  dict.entries.erase(dict.entries.begin() + static_cast<std::ptrdiff_t>(place));
  for (auto entry = dict.places.begin(); entry != dict.places.end();) {
    if (entry->second == place) {
      entry = dict.places.erase(entry);
      continue;
    }
    if (entry->second > place) --entry->second;
    ++entry;
  }
}

Value dict_pop(Interpreter& at, const Value& self, const Arguments& given) {
  const auto values = bind("pop", given, {"key", "default"}, 1);
  Dict& dict = self.dict();
  const auto place = dict.places.find(key_text(at.heap(), *values[0]));
  if (place == dict.places.end()) {
    if (values[1]) return *values[1];
    refuse(repr_of(at.heap(), *values[0]).bytes());
  }
  const Value value = dict.entries[place->second].value;
  erase_entry(at.heap(), dict, place->second);
  return value;
}

Value dict_update(Interpreter& at, const Value& self, const Arguments& given) {
  const Value other = make_dict(at, given);
  for (const Dict::Entry& entry : other.dict().entries) at.heap().set(self.dict(), entry.key, entry.value);
  return Value();
}

Value dict_setdefault(Interpreter& at, const Value& self, const Arguments& given) {
  const auto values = bind("setdefault", given, {"key", "default"}, 1);
  if (const Value* const value = self.dict().find(key_text(at.heap(), *values[0]))) return *value;
  at.heap().set(self.dict(), *values[0], values[1].value_or(Value()));
  return values[1].value_or(Value());
}

Value dict_copy(Interpreter& at, const Value& self, const Arguments& given) {
  (void)bind("copy", given, {});
  return make_dict(at, {{self}, {}});
}

Value dict_clear(Interpreter&, const Value& self, const Arguments& given) {
  (void)bind("clear", given, {});
  self.dict().entries.clear();
  self.dict().places.clear();
  return Value();
}

// ---- methods of lists
Value list_append(Interpreter& at, const Value& self, const Arguments& given) {
  at.heap().append(self.list(), *bind("append", given, {"object"}, 1)[0]);
  return Value();
}

Value list_extend(Interpreter& at, const Value& self, const Arguments& given) {
  for (const Value& item : items_of(at.heap(), *bind("extend", given, {"iterable"}, 1)[0]))
    at.heap().append(self.list(), item);
  return Value();
}

Value list_insert(Interpreter& at, const Value& self, const Arguments& given) {
  const auto values = bind("insert", given, {"index", "object"}, 2);
  auto& items = self.list().items;
  const auto n = static_cast<std::int64_t>(items.size());
  std::int64_t place = integer_of(*values[0]);
  if (place < 0) place += n;
  at.heap().charge(sizeof(Value));
  at.heap().step(items.size() / 16);
  items.insert(items.begin() + static_cast<std::ptrdiff_t>(std::clamp<std::int64_t>(place, 0, n)), *values[1]);
  return Value();
}

Value list_pop(Interpreter& at, const Value& self, const Arguments& given) {
  const auto values = bind("pop", given, {"index"});
  auto& items = self.list().items;
  if (items.empty()) refuse("pop from empty list");
  const auto n = static_cast<std::int64_t>(items.size());
  std::int64_t place = values[0] ? integer_of(*values[0]) : -1;
  if (place < 0) place += n;
  if (place < 0 || place >= n) refuse("pop index out of range");
  const Value value = items[static_cast<std::size_t>(place)];
  at.heap().step(items.size() / 16);
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(place));
  return value;
}

Value list_reverse(Interpreter& at, const Value& self, const Arguments& given) {
  (void)bind("reverse", given, {});
  at.heap().step(self.list().items.size());
  std::ranges::reverse(self.list().items);
  return Value();
}

Value list_clear(Interpreter&, const Value& self, const Arguments& given) {
  (void)bind("clear", given, {});
  self.list().items.clear();
  return Value();
}

Value list_copy(Interpreter& at, const Value& self, const Arguments& given) {
  (void)bind("copy", given, {});
  return at.heap().sequence(items_of(at.heap(), self));
}

Value list_index(Interpreter& at, const Value& self, const Arguments& given) {
  const Value wanted = *bind("index", given, {"value"}, 1)[0];
  const auto& items = self.list().items;
  for (std::size_t i = 0; i < items.size(); ++i)
    if (equal(at.heap(), items[i], wanted)) return Value(static_cast<std::int64_t>(i));
  refuse(fmt::format("{} is not in list", repr_of(at.heap(), wanted).bytes()));
}

Value list_count(Interpreter& at, const Value& self, const Arguments& given) {
  const Value wanted = *bind("count", given, {"value"}, 1)[0];
  std::int64_t n = 0;
  for (const Value& item : self.list().items) n += equal(at.heap(), item, wanted) ? 1 : 0;
  return Value(n);
}

constexpr MethodEntry kDictMethods[] = {
    {"get", dict_get},
    {"items", dict_items},
    {"keys", dict_keys},
    {"values", dict_values},
    {"pop", dict_pop},
    {"update", dict_update},
    {"setdefault", dict_setdefault},
    {"copy", dict_copy},
    {"clear", dict_clear},
    {"popitem", nullptr},
    {"fromkeys", nullptr},
};
constexpr MethodEntry kListMethods[] = {
    {"append", list_append},   {"extend", list_extend}, {"insert", list_insert}, {"pop", list_pop},
    {"reverse", list_reverse}, {"clear", list_clear},   {"copy", list_copy},     {"index", list_index},
    {"count", list_count},     {"sort", nullptr},       {"remove", nullptr},
};
constexpr MethodEntry kTupleMethods[] = {{"index", list_index}, {"count", list_count}};

std::span<const MethodEntry> methods_of(const Value& self) {
  if (self.is_string()) return text_methods();
  if (self.is(Kind::kDict)) return kDictMethods;
  if (!self.is(Kind::kList)) return {};
  if (self.list().form == Form::kList) return kListMethods;
  return self.list().form == Form::kTuple || self.list().form == Form::kRange ? std::span(kTupleMethods)
                                                                              : std::span<const MethodEntry>();
}

}  // namespace

const Function* find_function(std::string_view name) {
  const auto* const found =
      std::ranges::find(kFunctions, name, [](const Function& entry) { return std::string_view(entry.name); });
  return found == std::end(kFunctions) ? nullptr : found;
}

const MethodEntry* find_method(const Value& self, std::string_view name) {
  for (const MethodEntry& entry : methods_of(self)) {
    if (name != entry.name) continue;
    if (entry.run == nullptr) not_here(fmt::format("{}.{}() is not in this interpreter", type_name(self), name));
    return &entry;
  }
  return nullptr;
}

}  // namespace terrace::text::jinja
