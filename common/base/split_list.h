// Lists as users write them: items between commas.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

namespace terrace {

// Parts of `text`, never none: an empty one, behind a last comma for example, is for its reader to refuse.
inline std::vector<std::string_view> split_list(std::string_view text) {
  std::vector<std::string_view> items;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    items.push_back(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return items;
}

}  // namespace terrace
