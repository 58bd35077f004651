#include "coordinator/serve/api/event_template.h"

#include <array>
#include <charconv>

#include "common/base/check.h"

namespace terrace::serve::api {
namespace {

constexpr std::string_view kOpenText = "\"\\u0001\"";  // as JSON has it

template <class Number>
void append_number(std::string& out, Number number) {
  std::array<char, 24> digits;
  const char* end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  out.append(digits.data(), static_cast<std::size_t>(end - digits.data()));
}

}  // namespace

EventTemplate::EventTemplate(std::string_view event, std::size_t n_open) {
  for (std::size_t i = 0; i < n_open; ++i) {
    const std::size_t end = event.find(kOpenText);
    TERRACE_CHECK(end != std::string_view::npos, "an event has all its open values");
    parts_.emplace_back(event.substr(0, end));
    n_bytes_ += end;
    event.remove_prefix(end + kOpenText.size());
  }
  parts_.emplace_back(event);
  n_bytes_ += event.size();
}

void EventTemplate::append_value(std::string& out, std::uint64_t number) { append_number(out, number); }

void EventTemplate::append_value(std::string& out, const std::vector<std::int32_t>& ids) {
  out += '[';
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    append_number(out, ids[i]);
  }
  out += ']';
}

}  // namespace terrace::serve::api
