// Values of a template while it runs: Python's None, bool, int (64 bits here), float, str, list, tuple, dict and what
// Jinja adds. A Value is two words; what it points to belongs to the Heap of the rendering, or to the Program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "coordinator/text/jinja/failure.h"
#include "coordinator/text/jinja/limits.h"
#include "coordinator/text/jinja/text.h"

namespace terrace::text::jinja {

struct List;
struct Dict;
struct Namespace;
struct Loop;
struct Macro;
struct Function;
struct Method;

enum class Kind : std::uint8_t {
  kUndefined,  // prints as nothing; nearly all else that is done with it is refused
  kNone,
  kBoolean,
  kInteger,
  kFloat,
  kString,
  kList,  // and tuples, ranges, views, generators: List::form
  kDict,
  kNamespace,
  kLoop,
  kMacro,
  kFunction,
  kMethod,  // bound to its object
};

class Value {
 public:
  Value() : kind_(Kind::kNone), integer_(0) {}
  explicit Value(bool value) : kind_(Kind::kBoolean), integer_(value ? 1 : 0) {}
  explicit Value(std::int64_t value) : kind_(Kind::kInteger), integer_(value) {}
  explicit Value(double value) : kind_(Kind::kFloat), number_(value) {}
  explicit Value(const Text* text) : kind_(Kind::kString), text_(text) {}
  explicit Value(List* list) : kind_(Kind::kList), list_(list) {}
  explicit Value(Dict* dict) : kind_(Kind::kDict), dict_(dict) {}
  explicit Value(Namespace* space) : kind_(Kind::kNamespace), namespace_(space) {}
  explicit Value(Loop* loop) : kind_(Kind::kLoop), loop_(loop) {}
  explicit Value(const Macro* macro) : kind_(Kind::kMacro), macro_(macro) {}
  explicit Value(const Function* function) : kind_(Kind::kFunction), function_(function) {}
  explicit Value(const Method* method) : kind_(Kind::kMethod), method_(method) {}
  // `why`: what is said where it is used as if it were there.
  static Value undefined(const Text* why) {
    Value value(why);
    value.kind_ = Kind::kUndefined;
    return value;
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  // int or bool, which Python counts as one
  bool is_integral() const { return kind_ == Kind::kInteger || kind_ == Kind::kBoolean; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }

  // Each only for its kind.
  std::int64_t integer() const { return integer_; }  // of a bool 0 or 1
  double number() const { return kind_ == Kind::kFloat ? number_ : static_cast<double>(integer_); }
  const Text& text() const { return *text_; }
  const std::string& bytes() const { return text_->bytes(); }
  const std::string& why() const { return text_->bytes(); }
  List& list() const { return *list_; }
  Dict& dict() const { return *dict_; }
  Namespace& name_space() const { return *namespace_; }
  Loop& loop() const { return *loop_; }
  const Macro& macro() const { return *macro_; }
  const Function& function() const { return *function_; }
  const Method& method() const { return *method_; }
  const void* address() const { return list_; }  // of what is no simple value
  // The same object, or the same simple value: Python's `is`, as far as it is defined.
  bool same_as(const Value& other) const;

 private:
  Kind kind_;
  union {
    std::int64_t integer_;
    double number_;
    const Text* text_;
    List* list_;
    Dict* dict_;
    Namespace* namespace_;
    Loop* loop_;
    const Macro* macro_;
    const Function* function_;
    const Method* method_;
  };
};

struct List {
  enum class Form : std::uint8_t { kList, kTuple, kRange, kView, kGenerator };
  std::vector<Value> items;
  Form form = Form::kList;
  const char* view = "";  // kView: "dict_items"
  bool spent = false;     // kGenerator: its items were taken
};

// Keys are strings, numbers, None and tuples of these, equal as in Python (1 == 1.0 == True); order is that of
// insertion.
struct Dict {
  struct Entry {
    Value key, value;
  };
  std::vector<Entry> entries;
  std::unordered_map<std::string, std::size_t> places;  // key_text() -> index into entries

  const Value* find(const std::string& key) const {
    const auto place = places.find(key);
    return place == places.end() ? nullptr : &entries[place->second].value;
  }
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> names;
  Value* find(std::string_view name);
};

// Makes values and counts what the rendering takes. Nothing is freed before the end, so values may point to one
// another as they like.
class Heap {
 public:
  explicit Heap(const Limits& limits) : limits_(limits) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  const Limits& limits() const { return limits_; }
  // Counts steps, or bytes; over_limit() beyond what is allowed.
  void step(std::uint64_t n = 1) {
    if (n > steps_left_) no_steps_left();
    steps_left_ -= n;
  }
  void read(std::size_t bytes) { step(1 + bytes / 64); }
  void charge(std::size_t bytes) {
    if (bytes > limits_.value_bytes - used_) no_bytes_left();
    used_ += bytes;
    step(bytes / 64);
  }

  Value string(Text text);
  Value string(std::string bytes) { return string(Text(std::move(bytes))); }
  Value undefined(std::string why);
  List* list(std::vector<Value> items, List::Form form = List::Form::kList);
  Value sequence(std::vector<Value> items, List::Form form = List::Form::kList) {
    return Value(list(std::move(items), form));
  }
  Dict* dict();
  // Sets the entry; a key that is there keeps its place. Refused: keys that are lists or objects.
  void set(Dict& dict, const Value& key, const Value& value);
  void append(List& list, const Value& value);
  // An object of another kind, kept to the end.
  template <class T>
  T* keep(std::deque<T>& where, T object) {
    charge(sizeof(T));
    where.push_back(std::move(object));
    return &where.back();
  }
  Namespace* name_space() { return keep(namespaces_, Namespace{}); }

 private:
  [[noreturn]] void no_steps_left() const;
  [[noreturn]] void no_bytes_left() const;

  const Limits limits_;
  std::uint64_t steps_left_ = limits_.steps;
  std::size_t used_ = 0;
  std::deque<Text> texts_;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
  std::deque<Namespace> namespaces_;
};

// A key as the text under which a Dict files it. Refused: "unhashable type: 'list'".
std::string key_text(Heap& heap, const Value& key);

// "str", "int", "NoneType": as Python's messages name the type.
const char* type_name(const Value& value);
// "str object", "None": as Jinja's messages name what lacks an attribute.
std::string object_name(const Value& value);

// Counts one level of nested values while it lives; over_limit() beyond Limits::value_depth.
class Nesting {
 public:
  Nesting(Heap& heap, std::uint32_t& depth);
  ~Nesting() { --depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  std::uint32_t& depth_;
};

}  // namespace terrace::text::jinja
