// An event of which a stream has one a token: its JSON is written once, and what differs is filled in as text. A tree
// of values for each token would cost more than all else that serving adds to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/serve/api/json_text.h"

namespace terrace::serve::api {

// Constant once made.
class EventTemplate {
 public:
  // Stands in the JSON for a value that is filled in: no name, id or text of ours is one control character.
  static constexpr std::string_view kOpen = "\x01";

  EventTemplate() = default;
  // event: the bytes of one, as event() gives them, with n_open open values.
  EventTemplate(std::string_view event, std::size_t n_open);
  bool empty() const { return parts_.empty(); }

  // Appends the event to `out`, its open values in the order in which they stand in the text: a string or a whole
  // number each, or an array of token ids. As many as the template has.
  template <class... Values>
  void append_to(std::string& out, const Values&... values) const {
    out.reserve(out.size() + n_bytes_ + (most_bytes(values) + ...));
    std::size_t part = 0;
    ((out += parts_[part++], append_value(out, values)), ...);
    out += parts_[part];
  }

 private:
  // So that most events are one piece of memory: text that JSON escapes takes more.
  static std::size_t most_bytes(std::string_view text) { return text.size() + 2; }
  static std::size_t most_bytes(std::uint64_t) { return 20; }
  static std::size_t most_bytes(const std::vector<std::int32_t>& ids) { return 2 + 12 * ids.size(); }

  static void append_value(std::string& out, std::string_view text) { append_json(out, text); }
  static void append_value(std::string& out, std::uint64_t number);
  static void append_value(std::string& out, const std::vector<std::int32_t>& ids);

  std::vector<std::string> parts_;  // around the open values
  std::size_t n_bytes_ = 0;         // of all of them
};

}  // namespace terrace::serve::api
