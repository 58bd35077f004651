#include "common/json/read_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "common/gguf/text.h"

namespace terrace {
namespace {

// Ends a parse from within the library's callback; never leaves this file.
struct OutOfBounds {
  std::string why;
};

template <class Json>
class Guard {
 public:
  explicit Guard(const JsonBounds& bounds) : bounds_(bounds) {}

  bool operator()(int depth, nlohmann::detail::parse_event_t event, Json& parsed) {
    using Event = nlohmann::detail::parse_event_t;
    const bool begins = event == Event::value || event == Event::object_start || event == Event::array_start;
    if (begins && ++n_values_ > bounds_.values)
      throw OutOfBounds{fmt::format("has more than {} values", bounds_.values)};
    if (event == Event::object_start || event == Event::array_start) {
      if (static_cast<std::size_t>(depth) >= bounds_.depth)
        throw OutOfBounds{fmt::format("is nested deeper than {} levels", bounds_.depth)};
      if (event == Event::object_start) keys_.emplace_back();
    } else if (event == Event::object_end) {
      keys_.pop_back();
    } else if (event == Event::key) {
      see_key(depth, parsed.template get_ref<const std::string&>());
    }
    return true;
  }
  const std::string& field() const { return field_; }

 private:
  void see_key(int depth, const std::string& key) {
    if (depth == 1) field_ = key;
    if (keys_.back().size() == bounds_.keys)
      throw OutOfBounds{fmt::format("has more than {} keys in one object", bounds_.keys)};
    if (!keys_.back().insert(key).second)
      throw OutOfBounds{fmt::format("key \"{}\" stands twice in one object", gguf::escaped(key))};
  }

  const JsonBounds& bounds_;
  std::size_t n_values_ = 0;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
  std::string field_;
};

// nlohmann's sentence without its own number in brackets.
std::string plain(const nlohmann::json::exception& error) {
  const std::string_view text = error.what();
  const std::size_t end = text.find("] ");
  return std::string(end == std::string_view::npos ? text : text.substr(end + 2));
}

Error invalid(std::string text) { return Error(ErrorCode::kInvalidArgument, std::move(text)); }

}  // namespace

template <class Json>
Result<Json> read_json(std::string_view text, const JsonBounds& bounds, JsonFault* fault) {
  Guard<Json> guard(bounds);
  JsonFault ignored;
  JsonFault& found = fault == nullptr ? ignored : *fault;
  const auto look = [&guard](int depth, nlohmann::detail::parse_event_t event, Json& parsed) {
    return guard(depth, event, parsed);
  };
  try {
    return Json::parse(text, look);
  } catch (const OutOfBounds& bad) {
    found = {guard.field(), bad.why, true};
    return invalid("the JSON " + bad.why);
  } catch (const nlohmann::json::parse_error& error) {
    found = {guard.field(), plain(error), false};
    return invalid(fmt::format("no JSON: byte {} is not as it should be", error.byte));
  } catch (const nlohmann::json::exception& error) {
    found = {guard.field(), plain(error), false};
    return invalid("JSON with a number that no double holds");
  }
}

template Result<nlohmann::json> read_json(std::string_view, const JsonBounds&, JsonFault*);
template Result<nlohmann::ordered_json> read_json(std::string_view, const JsonBounds&, JsonFault*);

}  // namespace terrace
