// Finds tokens that are matched in raw text before it is cut into pieces: leftmost first, the longest at a place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::text {

class SpecialMatcher {
 public:
  // A token's text, not empty, and its id; of two with one text the lower id is found.
  using Entry = std::pair<std::string, std::int32_t>;
  explicit SpecialMatcher(std::vector<Entry> entries);

  struct Match {
    std::size_t begin = 0;
    std::size_t length = 0;
    std::int32_t id = 0;
  };
  // The first match at `from` or later. Takes time of the bytes passed over times the length of the longest entry that
  // they begin, at the worst. Const: any number of threads.
  std::optional<Match> find(std::string_view text, std::size_t from) const;

 private:
  std::optional<Match> match_at(std::string_view text, std::size_t begin) const;
  std::vector<Entry> entries_;    // by text, then id: entries with a common prefix stand together
  std::string first_characters_;  // distinct
};

}  // namespace terrace::text
