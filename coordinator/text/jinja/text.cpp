#include "coordinator/text/jinja/text.h"

#include <algorithm>

namespace terrace::text::jinja {

void Text::mark(std::size_t begin, std::size_t end) {
  if (begin == end) return;
  if (!said_.empty() && said_.back().end == begin)
    said_.back().end = end;
  else
    said_.push_back({begin, end});
}

void Text::append(const Text& other) {
  const std::size_t at = bytes_.size();
  bytes_.append(other.bytes_);
  for (const Range& range : other.said_) mark(at + range.begin, at + range.end);
}

void Text::append(std::string_view bytes, bool said) {
  const std::size_t at = bytes_.size();
  bytes_.append(bytes);
  if (said) mark(at, bytes_.size());
}

Text Text::slice(std::size_t begin, std::size_t end) const {
  Text out(bytes_.substr(begin, end - begin));
  out.markup_ = markup_;
  auto range = std::ranges::lower_bound(said_, begin, {}, &Range::end);
  for (; range != said_.end() && range->begin < end; ++range)
    out.mark(std::max(range->begin, begin) - begin, std::min(range->end, end) - begin);
  return out;
}

Text Text::rewritten(std::string bytes) const {
  Text out(std::move(bytes), any_said());
  out.markup_ = markup_;
  return out;
}

}  // namespace terrace::text::jinja
