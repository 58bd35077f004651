// Searching and cutting of texts, in time that grows with the text alone however the pattern is chosen.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "coordinator/text/jinja/value.h"

namespace terrace::text::jinja {

// Where `what` begins in `text`, at or behind `from`; npos: nowhere. Counted as read.
std::size_t find_first(Heap& heap, std::string_view text, std::string_view what, std::size_t from = 0);
std::size_t find_last(Heap& heap, std::string_view text, std::string_view what);
// All places, from left to right, none overlapping; at most `most`. `what` is not empty.
std::vector<std::size_t> find_all(Heap& heap, std::string_view text, std::string_view what, std::size_t most);

// HTML's five characters as entities: Jinja's `escape`. The result is markup.
Text escaped(const Text& text);
// str.replace(): `what` may be empty, then `by` goes between all characters. most < 0: all.
Text replaced(Heap& heap, const Text& text, const Text& what, const Text& by, std::int64_t most);
// str.splitlines(), without the line ends.
std::vector<Text> split_lines(Heap& heap, const Text& text);

}  // namespace terrace::text::jinja
