#include "coordinator/serve/api/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/base/suggestion.h"
#include "common/json/read_json.h"

namespace terrace::serve::api {
namespace {

std::string quoted_keys(std::initializer_list<std::string_view> names) {
  std::string list;
  for (const std::string_view name : names) list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ", name);
  return list;
}

}  // namespace

ParsedBody parse_body(std::string_view body) {
  ParsedBody parsed;
  JsonFault fault;
  auto value = read_json<Json>(body, {kMaxJsonDepth, kMaxJsonValues, kMaxJsonKeys}, &fault);
  if (!value.ok()) {
    parsed.field = fault.field;
    parsed.error = fault.is_json ? fault.why : fmt::format("the body is no JSON: {}", fault.why);
  } else if (!value->is_object()) {
    parsed.error = fmt::format("the body must be a JSON object; found {}", shown(*value));
  } else {
    parsed.object = std::make_shared<const Json>(std::move(*value));
  }
  return parsed;
}

std::string dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

void append_json(std::string& out, std::string_view text) {
  const auto is_plain = [](char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; };
  if (!std::ranges::all_of(text, is_plain)) {
    out += dump(Json(text));
    return;
  }
  out += '"';
  out += text;
  out += '"';
}

std::string shown(const Json& value) {
  constexpr std::size_t kMost = 40;
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_object()) return "an object";
  std::string text = dump(value);
  if (text.size() <= kMost) return text;
  std::size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

Error must_be(std::string_view allowed, const Json& found) {
  return Error(ErrorCode::kInvalidArgument, fmt::format("must be {}; found {}", allowed, shown(found)));
}

Result<bool> read_bool(const Json& value) {
  if (!value.is_boolean()) return must_be("true or false", value);
  return value.get<bool>();
}

Result<std::int64_t> read_whole(const Json& value, std::int64_t low, std::int64_t high) {
  const auto refuse = [&] { return must_be(fmt::format("a whole number from {} to {}", low, high), value); };
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > kMaxWhole) return refuse();
  if (!value.is_number_integer()) return refuse();
  const auto whole = value.get<std::int64_t>();
  if (whole < low || whole > high) return refuse();
  return whole;
}

Result<float> read_number(const Json& value, const NumberRange& range) {
  const double number = value.is_number() ? value.get<double>() : std::nan("");
  const bool above = range.low_allowed ? number >= range.low : number > range.low;
  if (above && number <= range.high) return static_cast<float>(number);  // false for NaN
  if (range.low == kFiniteFloat.low) return must_be("a finite number", value);
  const std::string low = fmt::format("a number {} {}", range.low_allowed ? "from" : "above", range.low);
  return must_be(range.high == kFiniteFloat.high ? low + (range.low_allowed ? " up" : "")
                                                 : fmt::format("{} to {}", low, range.high),
                 value);
}

Result<std::string> read_string(const Json& value) {
  if (!value.is_string()) return must_be("a string", value);
  return value.get<std::string>();
}

Result<std::string> read_choice(const Json& value, std::initializer_list<std::string_view> allowed) {
  if (value.is_string() && std::ranges::count(allowed, std::string_view(value.get_ref<const std::string&>())) > 0)
    return value.get<std::string>();
  return must_be("one of " + quoted_keys(allowed), value);
}

Status check_keys(const Json& value, std::initializer_list<std::string_view> allowed) {
  if (!value.is_object()) return must_be("an object", value);
  for (const auto& [key, item] : value.items()) {
    if (std::ranges::count(allowed, std::string_view(key)) > 0) continue;
    const std::vector<std::string> known(allowed.begin(), allowed.end());
    return Error(ErrorCode::kInvalidArgument, fmt::format("has the unknown key \"{}\"{}; known are {}", key,
                                                          suggestion(key, known), quoted_keys(allowed)));
  }
  return {};
}

const Json* find(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(std::string(key));
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

}  // namespace terrace::serve::api
