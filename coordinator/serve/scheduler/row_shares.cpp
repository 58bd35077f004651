#include "coordinator/serve/scheduler/row_shares.h"

#include <algorithm>

namespace terrace::serve {

void share_rows(std::span<PromptRows> prompts, std::uint32_t chunk) {
  constexpr std::uint32_t kOldestsPart = 4;
  for (PromptRows& prompt : prompts) prompt.rows = 0;
  if (prompts.empty()) return;
  PromptRows& oldest = prompts.front();
  oldest.rows = std::min(oldest.left, (chunk + kOldestsPart - 1) / kOldestsPart);
  chunk -= oldest.rows;
  std::ranges::stable_sort(prompts, {}, [](const PromptRows& p) { return p.left; });
  bool one_ends = false;
  for (PromptRows& prompt : prompts) {
    const std::uint32_t lacks = prompt.left - prompt.rows;
    if (one_ends && lacks > chunk) break;
    const std::uint32_t more = std::min(lacks, chunk);
    prompt.rows += more;
    chunk -= more;
    one_ends = one_ends || more == lacks;
  }
}

}  // namespace terrace::serve
