#include "coordinator/text/jinja/strings.h"

#include <string.h>  // memmem

#include <algorithm>
#include <string>

#include "coordinator/text/jinja/unicode.h"

namespace terrace::text::jinja {
namespace {

// memmem() takes linear time; std::string_view::find() takes the product of both lengths for chosen texts.
std::size_t place_of(std::string_view text, std::string_view what, std::size_t from) {
  if (what.empty()) return from <= text.size() ? from : std::string_view::npos;
  if (from >= text.size()) return std::string_view::npos;
  const void* const at = ::memmem(text.data() + from, text.size() - from, what.data(), what.size());
  if (at == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(at) - text.data());
}

}  // namespace

std::size_t find_first(Heap& heap, std::string_view text, std::string_view what, std::size_t from) {
  heap.read(text.size() + what.size());
  return place_of(text, what, from);
}

std::size_t find_last(Heap& heap, std::string_view text, std::string_view what) {
  heap.read(2 * (text.size() + what.size()));
  const std::string backward(text.rbegin(), text.rend()), pattern(what.rbegin(), what.rend());
  const std::size_t at = place_of(backward, pattern, 0);
  return at == std::string_view::npos ? at : text.size() - at - what.size();
}

std::vector<std::size_t> find_all(Heap& heap, std::string_view text, std::string_view what, std::size_t most) {
  heap.read(text.size());
  std::vector<std::size_t> places;
  std::size_t at = 0;
  while (places.size() < most && (at = place_of(text, what, at)) != std::string_view::npos) {
    heap.charge(sizeof(std::size_t));
    heap.read(what.size());
    places.push_back(at);
    at += what.size();
  }
  return places;
}

Text escaped(const Text& text) {
  std::string out;
  for (const char c : text.bytes()) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out.push_back(c);
    }
  }
  Text made = text.rewritten(std::move(out));
  made.set_markup(true);
  return made;
}

Text replaced(Heap& heap, const Text& text, const Text& what, const Text& by, std::int64_t most) {
  std::vector<std::size_t> places;
  const std::size_t limit = most < 0 ? SIZE_MAX : static_cast<std::size_t>(most);
  if (!what.empty()) {
    places = find_all(heap, text.bytes(), what.bytes(), limit);
  } else {
    for (std::size_t at = 0; at <= text.size() && places.size() < limit;
         at += at < text.size() ? character_bytes(text.bytes()[at]) : 1) {
      heap.charge(sizeof(std::size_t));
      places.push_back(at);
    }
  }
  // Before it is made, so that a short text of many places does not fill the memory first.
  std::size_t added = 0;
  if (__builtin_mul_overflow(places.size(), by.size(), &added)) added = SIZE_MAX;
  heap.charge(added);
  Text out;
  std::size_t from = 0;
  for (const std::size_t at : places) {
    out.append(text.slice(from, at));
    out.append(by);
    from = at + what.size();
  }
  out.append(text.slice(from, text.size()));
  out.set_markup(text.markup());
  return out;
}

std::vector<Text> split_lines(Heap& heap, const Text& text) {
  const std::string& bytes = text.bytes();
  heap.read(bytes.size());
  std::vector<Text> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = at;
    const char32_t c = character_at(bytes, at);
    at += character_bytes(bytes[at]);
    if (!is_line_end(c)) continue;
    if (c == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
    heap.charge(sizeof(Text));
    lines.push_back(text.slice(begin, end));
    begin = at;
  }
  if (begin < bytes.size()) lines.push_back(text.slice(begin, bytes.size()));
  return lines;
}

}  // namespace terrace::text::jinja
