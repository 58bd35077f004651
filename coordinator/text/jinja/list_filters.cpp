// Filters over what can be looped over.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <span>

#include "coordinator/text/jinja/builtins.h"
#include "coordinator/text/jinja/operators.h"
#include "coordinator/text/jinja/unicode.h"
#include "coordinator/text/jinja/write_value.h"

namespace terrace::text::jinja {
namespace {

using Arguments = CallArguments;
using Form = List::Form;

bool is_given(const std::optional<Value>& value) { return value && !value->is_none(); }
bool is_true(const std::optional<Value>& value) { return value && truth(*value); }

// Jinja's attribute getter: "a.0.b" goes down by key or index; none gives the item itself.
using Getter = std::function<Value(const Value&)>;

std::vector<Value> path_of(Heap& heap, const Value& attribute) {
  if (!attribute.is_string()) return {attribute};
  std::vector<Value> path;
  const std::string& bytes = attribute.bytes();
  for (std::size_t from = 0; from <= bytes.size();) {
    const std::size_t dot = std::min(bytes.find('.', from), bytes.size());
    const std::string_view part = std::string_view(bytes).substr(from, dot - from);
    std::int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool number = error == std::errc() && end == part.data() + part.size() && part.front() != '-';
    path.push_back(number ? Value(index) : heap.string(std::string(part)));
    from = dot + 1;
  }
  return path;
}

Getter getter_of(Interpreter& at, const std::optional<Value>& attribute, std::optional<Value> otherwise = {}) {
  if (!is_given(attribute)) return [](const Value& item) { return item; };
  return [&at, path = path_of(at.heap(), *attribute), otherwise](const Value& item) {
    Value value = item;
    for (const Value& part : path) {
      value = at.item(value, part);
      if (value.is_undefined() && otherwise) value = *otherwise;
    }
    return value;
  };
}

// For sorting and telling apart without regard to case.
Value without_case(Interpreter& at, const Value& value) {
  if (!value.is_string()) return value;
  at.heap().read(value.bytes().size());
  return at.heap().string(value.text().rewritten(lower(value.bytes())));
}

Value generator(Interpreter& at, std::vector<Value> items) {
  return at.heap().sequence(std::move(items), Form::kGenerator);
}

Value length_of(Interpreter& at, const Value& input, const Arguments& given) {
  (void)bind("length", given, {});
  if (input.is_string()) at.heap().read(input.bytes().size());
  return Value(static_cast<std::int64_t>(length(input)));
}

Value first(Interpreter& at, const Value& input, const Arguments& given) {
  (void)bind("first", given, {});
  const std::vector<Value> items = items_of(at.heap(), input);
  return items.empty() ? at.heap().undefined("No first item, sequence was empty.") : items.front();
}

void must_be_reversible(const Value& input) {
  const bool one_way = input.is(Kind::kList) && input.list().form == Form::kGenerator;
  if (one_way) refuse("'generator' object is not reversible");
}

Value last(Interpreter& at, const Value& input, const Arguments& given) {
  (void)bind("last", given, {});
  must_be_reversible(input);
  const std::vector<Value> items = items_of(at.heap(), input);
  return items.empty() ? at.heap().undefined("No last item, sequence was empty.") : items.back();
}

Value list(Interpreter& at, const Value& input, const Arguments& given) {
  (void)bind("list", given, {});
  return at.heap().sequence(items_of(at.heap(), input));
}

Value reverse(Interpreter& at, const Value& input, const Arguments& given) {
  (void)bind("reverse", given, {});
  std::vector<Value> items = items_of(at.heap(), input);
  std::ranges::reverse(items);
  if (!input.is_string()) return generator(at, std::move(items));
  Text text;
  for (const Value& item : items) text.append(item.text());
  text.set_markup(input.text().markup());
  return at.heap().string(std::move(text));
}

Value join(Interpreter& at, const Value& input, const Arguments& given) {
  const auto values = bind("join", given, {"d", "attribute"});
  Heap& heap = at.heap();
  const Getter get = getter_of(at, values[1]);
  const Text between = values[0] ? text_of(heap, *values[0]) : Text();
  Text out;
  bool is_first = true;
  for (const Value& item : items_of(heap, input)) {
    const Text text = text_of(heap, get(item));
    heap.charge(text.size() + between.size());
    if (!std::exchange(is_first, false)) out.append(between);
    out.append(text);
  }
  return heap.string(std::move(out));
}

Value otherwise(Interpreter&, const Value& input, const Arguments& given) {
  const auto values = bind("default", given, {"default_value", "boolean"});
  const bool missing = input.is_undefined() || (is_true(values[1]) && !truth(input));
  if (!missing) return input;
  static const Text kNothing;
  return values[0].value_or(Value(&kNothing));
}

Value items(Interpreter& at, const Value& input, const Arguments& given) {
  (void)bind("items", given, {});
  if (input.is_undefined()) return generator(at, {});
  if (!input.is(Kind::kDict)) refuse("Can only get item pairs from a mapping.");
  return generator(at, items_of(at.heap(), find_method(input, "items")->run(at, input, {})));
}

Value attr(Interpreter& at, const Value& input, const Arguments& given) {
  const Value name = *bind("attr", given, {"name"}, 1)[0];
  // Attributes alone: an object's entries are none.
  if (!input.is(Kind::kDict)) return at.attribute(input, text_of(at.heap(), name).bytes());
  const std::string& bytes = text_argument("attr", name).bytes();
  if (const MethodEntry* const method = find_method(input, bytes)) return at.bound(input, method);
  return at.heap().undefined(fmt::format("'{}' has no attribute '{}'", object_name(input), bytes));
}

// ---- order
void sort_by(Interpreter& at, std::vector<Value>& items, const Getter& key, bool backward) {
  struct Row {
    Value key, item;
  };
  std::vector<Row> rows;
  at.heap().charge(items.size() * sizeof(Row));
  for (const Value& item : items) rows.push_back({key(item), item});
  const auto before = [&at](const Row& a, const Row& b) { return order(at.heap(), a.key, b.key) < 0; };
  // Equal ones stay in their order both ways.
  if (backward)
    std::ranges::stable_sort(rows, [&before](const Row& a, const Row& b) { return before(b, a); });
  else
    std::ranges::stable_sort(rows, before);
  std::ranges::transform(rows, items.begin(), &Row::item);
}

Value sort(Interpreter& at, const Value& input, const Arguments& given) {
  const auto values = bind("sort", given, {"reverse", "case_sensitive", "attribute"});
  std::vector<Getter> keys;
  if (is_given(values[2]) && values[2]->is_string()) {
    // Several, with commas between.
    const std::string& bytes = values[2]->bytes();
    for (std::size_t from = 0; from <= bytes.size();) {
      const std::size_t comma = std::min(bytes.find(',', from), bytes.size());
      keys.push_back(getter_of(at, at.heap().string(bytes.substr(from, comma - from))));
      from = comma + 1;
    }
  } else {
    keys.push_back(getter_of(at, values[2]));
  }
  const bool case_sensitive = is_true(values[1]);
  // The keys of an item as a list, as Jinja has it: where two are equal, even if they have no order, the next decides.
  const Getter key = [&](const Value& item) {
    std::vector<Value> of_item;
    for (const Getter& get : keys) of_item.push_back(case_sensitive ? get(item) : without_case(at, get(item)));
    return at.heap().sequence(std::move(of_item));
  };
  std::vector<Value> all = items_of(at.heap(), input);
  sort_by(at, all, key, is_true(values[0]));
  return at.heap().sequence(std::move(all));
}

Value dictsort(Interpreter& at, const Value& input, const Arguments& given) {
  const auto values = bind("dictsort", given, {"case_sensitive", "by", "reverse"});
  const std::string by = values[1] ? text_argument("dictsort", *values[1]).bytes() : "key";
  if (by != "key" && by != "value") refuse("You can only sort by either \"key\" or \"value\"");
  if (input.is_undefined()) refuse(input.why());
  if (!input.is(Kind::kDict)) refuse(fmt::format("'{}' object has no attribute 'items'", type_name(input)));
  std::vector<Value> pairs = items_of(at.heap(), find_method(input, "items")->run(at, input, {}));
  const Getter key = [&, part = by == "key" ? 0u : 1u](const Value& pair) {
    const Value& value = pair.list().items[part];
    return is_true(values[0]) ? value : without_case(at, value);
  };
  sort_by(at, pairs, key, is_true(values[2]));
  return at.heap().sequence(std::move(pairs));
}

Value unique(Interpreter& at, const Value& input, const Arguments& given) {
  const auto values = bind("unique", given, {"case_sensitive", "attribute"});
  const Getter get = getter_of(at, values[1]);
  Dict* const seen = at.heap().dict();
  std::vector<Value> kept;
  for (const Value& item : items_of(at.heap(), input)) {
    const Value key = is_true(values[0]) ? get(item) : without_case(at, get(item));
    const std::size_t before = seen->entries.size();
    at.heap().set(*seen, key, Value());
    if (seen->entries.size() > before) kept.push_back(item);
  }
  return generator(at, std::move(kept));
}

template <bool largest>
Value extreme(Interpreter& at, const Value& input, const Arguments& given) {
  const auto values = bind(largest ? "max" : "min", given, {"case_sensitive", "attribute"});
  const Getter get = getter_of(at, values[1]);
  const auto key = [&](const Value& item) { return is_true(values[0]) ? get(item) : without_case(at, get(item)); };
  const std::vector<Value> all = items_of(at.heap(), input);
  if (all.empty()) return at.heap().undefined("No aggregated item, sequence was empty.");
  Value best = all.front(), best_key = key(best);
  for (std::size_t i = 1; i < all.size(); ++i) {
    const Value other = key(all[i]);
    const bool better = largest ? order(at.heap(), other, best_key, ">") > 0 : order(at.heap(), other, best_key) < 0;
    if (!better) continue;
    best = all[i];
    best_key = other;
  }
  return best;
}

Value sum(Interpreter& at, const Value& input, const Arguments& given) {
  const auto values = bind("sum", given, {"attribute", "start"});
  const Getter get = getter_of(at, values[0]);
  Value total = values[1].value_or(Value(std::int64_t{0}));
  if (total.is_string()) refuse("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : items_of(at.heap(), input)) total = add(at.heap(), total, get(item));
  return total;
}

// ---- choosing and changing
Value map(Interpreter& at, const Value& input, const Arguments& given) {
  std::vector<Value> made;
  if (!truth(input)) return generator(at, {});  // None too, as Jinja has it
  if (given.positional.empty()) {
    const auto values = bind("map", given, {"attribute", "default"}, 1);
    const Getter get = getter_of(at, values[0], values[1]);
    for (const Value& item : items_of(at.heap(), input)) made.push_back(get(item));
    return generator(at, std::move(made));
  }
  const std::string& name = text_argument("map", given.positional[0]).bytes();
  const Arguments rest = {{given.positional.begin() + 1, given.positional.end()}, given.named};
  for (const Value& item : items_of(at.heap(), input)) made.push_back(at.filter(name, item, rest));
  return generator(at, std::move(made));
}

// select, reject, selectattr, rejectattr: items for which a test (without one: truth) gives `wanted`.
template <bool wanted, bool by_attribute>
Value select(Interpreter& at, const Value& input, const Arguments& given) {
  if (!truth(input)) return generator(at, {});
  auto rest = given.positional;
  Getter get = getter_of(at, std::nullopt);
  if (by_attribute) {
    if (rest.empty()) refuse("Missing parameter for attribute name");
    get = getter_of(at, rest.front());
    rest.erase(rest.begin());
  }
  std::optional<std::string> test;
  if (!rest.empty()) {
    test = text_argument("select", rest.front()).bytes();
    rest.erase(rest.begin());
  }
  const Arguments test_arguments = {rest, given.named};
  std::vector<Value> kept;
  for (const Value& item : items_of(at.heap(), input)) {
    const Value value = get(item);
    if ((test ? at.test(*test, value, test_arguments) : truth(value)) == wanted) kept.push_back(item);
  }
  return generator(at, std::move(kept));
}

constexpr FilterEntry kFilters[] = {
    {"length", length_of},
    {"count", length_of},
    {"first", first},
    {"last", last},
    {"list", list},
    {"reverse", reverse},
    {"join", join},
    {"default", otherwise},
    {"d", otherwise},
    {"items", items},
    {"attr", attr},
    {"sort", sort},
    {"dictsort", dictsort},
    {"unique", unique},
    {"min", extreme<false>},
    {"max", extreme<true>},
    {"sum", sum},
    {"map", map},
    {"select", select<true, false>},
    {"reject", select<false, false>},
    {"selectattr", select<true, true>},
    {"rejectattr", select<false, true>},
};

}  // namespace

std::span<const FilterEntry> list_filters() { return kFilters; }

const FilterEntry* find_filter(std::string_view name) {
  for (const std::span<const FilterEntry> table : {text_filters(), list_filters()})
    for (const FilterEntry& entry : table)
      if (name == entry.name) return &entry;
  return nullptr;
}

}  // namespace terrace::text::jinja
