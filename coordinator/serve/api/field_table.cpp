#include "coordinator/serve/api/field_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/base/suggestion.h"
#include "coordinator/serve/api/field_row.h"

namespace terrace::serve::api {
namespace {

const std::vector<ReadableRow>& table() {
  static const std::vector<ReadableRow> rows = [] {
    std::vector<ReadableRow> all;
    for (const auto part : {sampling_rows(), answer_rows(), text_rows(), accepted_rows()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return rows;
}

const ReadableRow* find_row(std::string_view name, RouteBit route) {
  const auto found = std::ranges::find_if(
      table(), [&](const ReadableRow& row) { return row.row.name == name && (row.row.routes & route) != 0; });
  return found == table().end() ? nullptr : &*found;
}

// Clients echo what generation_settings told them: 0.1 as the float that it became.
bool same(const Json& left, const Json& right) {
  if (left.is_number() && right.is_number()) return left.get<float>() == right.get<float>();
  return left == right;
}

Status check_neutral(std::string_view values, const Json& value) {
  const Json allowed = Json::parse(values);
  if (std::ranges::any_of(allowed, [&](const Json& item) { return same(item, value); })) return {};
  std::string list;
  for (const Json& item : allowed) list += (list.empty() ? "" : " or ") + dump(item);
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("must be {}, or left out: nothing else is supported here; found {}", list, shown(value)));
}

HttpError unknown_field(std::string_view name, RouteBit route) {
  std::vector<std::string> known;
  for (const ReadableRow& row : table())
    if ((row.row.routes & route) != 0) known.emplace_back(row.row.name);
  return bad_field(name, fmt::format("is not known on this route{}", suggestion(name, known)));
}

std::optional<HttpError> read_field(const std::string& name, const Json& value, const Context& context, Ask& ask) {
  const ReadableRow* row = find_row(name, ask.route);
  if (row == nullptr) return unknown_field(name, ask.route);
  if (value.is_null()) return std::nullopt;  // clients send null for what they do not set
  switch (row->row.kind) {
    case FieldKind::kAccepted:
      return std::nullopt;
    case FieldKind::kRefused:
      return bad_field(name, fmt::format("is not supported: {}", row->row.note));
    case FieldKind::kNeutral:
      if (const Status status = check_neutral(row->neutral, value); !status.ok())
        return bad_field(name, status.error());
      return std::nullopt;
    case FieldKind::kHonoured:
      if (const Status status = row->read(value, ask, context); !status.ok()) return bad_field(name, status.error());
      return std::nullopt;
  }
  return std::nullopt;
}

// What no single field can see.
std::optional<HttpError> check_together(const Ask& ask) {
  if (ask.n_probs > 0 && !ask.logprobs) return bad_field("top_logprobs", "requires logprobs to be set to true");
  if (ask.include_usage && !ask.stream) return bad_field("stream_options", "include_usage needs stream");
  if (ask.return_progress && !ask.stream) return bad_field("return_progress", "needs stream");
  if (ask.echo && ask.logprobs)
    return bad_field("echo", "excludes logprobs: the probabilities of a prompt's tokens are not told");
  const int constraints = (ask.grammar != nullptr) + (ask.json_schema != nullptr) + ask.json_object;
  if (constraints > 1)
    return bad_field(ask.grammar != nullptr ? "grammar" : "response_format",
                     "is one of several constraints: give one of grammar, json_schema and response_format");
  return std::nullopt;
}

}  // namespace

std::span<const FieldRow> field_rows() {
  static const std::vector<FieldRow> rows = [] {
    std::vector<FieldRow> all;
    for (const ReadableRow& row : table()) all.push_back(row.row);
    return all;
  }();
  return rows;
}

HttpError bad_field(std::string_view field, std::string_view why) {
  HttpError error{400, "invalid_request_error", {}, std::string(field), {}, {}, false};
  error.message = field.empty() ? std::string(why) : fmt::format("field '{}' {}", field, why);
  return error;
}

std::optional<HttpError> read_fields(RouteBit route, std::string_view body, const Context& context, Ask& ask) {
  ask.route = route;
  ask.sampling = context.sampling;
  ParsedBody parsed = parse_body(body);
  if (parsed.object == nullptr) return bad_field(parsed.field, parsed.error);
  ask.body = std::move(parsed.object);
  for (const auto& [name, value] : ask.body->items())
    if (auto error = read_field(name, value, context, ask)) return error;
  return check_together(ask);
}

}  // namespace terrace::serve::api
