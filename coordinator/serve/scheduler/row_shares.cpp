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
  for (PromptRows& prompt : prompts) {
    const std::uint32_t more = std::min(prompt.left - prompt.rows, chunk);
    prompt.rows += more;
    chunk -= more;
  }
}

}  // namespace terrace::serve
