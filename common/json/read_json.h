// JSON of users, files and peers, read strictly and within bounds. nlohmann's own parser takes any depth and lets the
// last of equal keys win; what it then gives is copied, compared and written by recursion, so that a text nested a
// million deep ends the process. Whatever did not come from this program is read here.
#pragma once

#include <cstddef>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace terrace {

struct JsonBounds {
  std::size_t depth = 100;                                       // arrays and objects inside one another
  std::size_t values = std::numeric_limits<std::size_t>::max();  // 16 bytes and more each
  // Of one object: an ordered one looks each up among those before it.
  std::size_t keys = 10'000;
};

struct JsonFault {
  std::string field;     // the key of the outermost object at which it stands; empty: none
  std::string why;       // "is nested deeper than 100 levels"; of what is no JSON, the library's sentence
  bool is_json = false;  // only a bound or a rule of ours is broken
};

// Json: nlohmann::json or nlohmann::ordered_json. kInvalidArgument: no JSON (NaN, Infinity, what is not UTF-8 and
// numbers that no double holds among it), beyond the bounds, a key twice in one object. The text is fit for a terminal
// and does not name the source; `fault`, unless null, then says more.
template <class Json>
Result<Json> read_json(std::string_view text, const JsonBounds& bounds = {}, JsonFault* fault = nullptr);

extern template Result<nlohmann::json> read_json(std::string_view, const JsonBounds&, JsonFault*);
extern template Result<nlohmann::ordered_json> read_json(std::string_view, const JsonBounds&, JsonFault*);

}  // namespace terrace
