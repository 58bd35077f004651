#include "coordinator/sampler/grammar/expression.h"

#include <algorithm>

namespace terrace::sampler::grammar {

std::vector<CodePointRange> normalised(std::vector<CodePointRange> ranges) {
  std::ranges::sort(ranges, {}, &CodePointRange::first);
  std::vector<CodePointRange> merged;
  for (const CodePointRange& range : ranges) {
    if (!merged.empty() && range.first <= merged.back().last + 1)
      merged.back().last = std::max(merged.back().last, range.last);
    else
      merged.push_back(range);
  }
  return merged;
}

std::vector<CodePointRange> complement(std::vector<CodePointRange> ranges) {
  std::vector<CodePointRange> rest;
  char32_t next = 0;
  for (const CodePointRange& range : normalised(std::move(ranges))) {
    if (range.first > next) rest.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCodePoint) rest.push_back({next, kLastCodePoint});
  return rest;
}

}  // namespace terrace::sampler::grammar
