#include "coordinator/app/text_input.h"

#include <fmt/core.h>
#include <stdio.h>

#include <nlohmann/json.hpp>

#include "common/base/text_file.h"
#include "common/json/read_json.h"

namespace terrace::app {
namespace {

// A value as an error quotes it: numbers and short texts as they are, of the rest only what they are.
std::string shown(const nlohmann::json& value) {
  constexpr std::size_t kShortText = 60;
  const bool is_short = value.is_string() && value.get_ref<const std::string&>().size() <= kShortText;
  if (value.is_structured() || (value.is_string() && !is_short)) return fmt::format("of type {}", value.type_name());
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

// Of the stream, not 0: where standard input was closed, another file has that number.
Result<std::string> read_stdin() { return read_text(::fileno(stdin), "standard input"); }

Result<std::vector<std::int32_t>> read_ids(std::string_view text, const std::string& name, std::int32_t most) {
  const auto json = read_json<nlohmann::json>(text);
  if (!json.ok() || !json->is_array())
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{}: is no JSON array of token ids, for example [15, 3, 27]{}", name,
                             json.ok() ? "" : fmt::format(" ({})", json.error().text())));
  std::vector<std::int32_t> ids;
  for (const nlohmann::json& id : *json) {
    if (!id.is_number_integer() || id < 0 || id > most)
      return Error(ErrorCode::kInvalidArgument, fmt::format("{}: entry {} is {}: no token id; allowed are 0 to {}",
                                                            name, ids.size(), shown(id), most));
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

}  // namespace terrace::app
