// UTF-8 text that knows which of its bytes somebody said (template.h), kept through every operation: joining and
// cutting keep the marks where they are; an operation that rewrites text marks its whole result if it read a marked
// byte.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/text/jinja/template.h"  // Range

namespace terrace::text::jinja {

class Text {
 public:
  Text() = default;
  explicit Text(std::string bytes, bool said = false) : bytes_(std::move(bytes)) {
    if (said) mark_all();
  }

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  const std::vector<Range>& said() const { return said_; }
  bool any_said() const { return !said_.empty(); }
  // Of Python's Markup: `+` then escapes what is not.
  bool markup() const { return markup_; }
  void set_markup(bool markup) { markup_ = markup; }

  void append(const Text& other);
  void append(std::string_view bytes, bool said = false);
  // Bytes [begin, end), markup kept; the ends are those of characters.
  Text slice(std::size_t begin, std::size_t end) const;
  // Another text made of this one: its bytes, marked all or nothing.
  Text rewritten(std::string bytes) const;

 private:
  void mark_all() {
    said_.clear();
    if (!bytes_.empty()) said_.push_back({0, bytes_.size()});
  }
  void mark(std::size_t begin, std::size_t end);

  std::string bytes_;
  std::vector<Range> said_;  // rising, disjoint, not adjacent, not empty
  bool markup_ = false;
};

}  // namespace terrace::text::jinja
