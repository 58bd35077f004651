#include "coordinator/serve/api/event_template.h"

#include <fmt/format.h>

#include <iterator>

#include "common/base/check.h"

namespace terrace::serve::api {
namespace {

constexpr std::string_view kOpenText = "\"\\u0001\"";  // as JSON has it

}  // namespace

EventTemplate::EventTemplate(std::string_view event, std::size_t n_open) {
  for (std::size_t i = 0; i < n_open; ++i) {
    const std::size_t end = event.find(kOpenText);
    TERRACE_CHECK(end != std::string_view::npos, "an event has all its open values");
    parts_.emplace_back(event.substr(0, end));
    event.remove_prefix(end + kOpenText.size());
  }
  parts_.emplace_back(event);
}

void EventTemplate::append_value(std::string& out, std::uint64_t number) {
  fmt::format_to(std::back_inserter(out), "{}", number);
}

void EventTemplate::append_value(std::string& out, const std::vector<std::int32_t>& ids) {
  out += '[';
  for (std::size_t i = 0; i < ids.size(); ++i)
    fmt::format_to(std::back_inserter(out), "{}{}", i == 0 ? "" : ",", ids[i]);
  out += ']';
}

}  // namespace terrace::serve::api
