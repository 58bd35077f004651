// Which rows of a step go to which prompt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace terrace::serve {

struct PromptRows {
  std::uint32_t left = 0;   // rows of the prompt that are not computed; > 0
  std::uint32_t rows = 0;   // out: of them, in this step
  std::uint32_t index = 0;  // the caller's
};

// Shares `chunk` rows out between prompts, given from the oldest to the youngest; reorders them. The fewest rows left
// go first, so that a short prompt does not wait for a long one; a quarter of the chunk is the oldest's, so that it
// never waits for ever. A step that ends a prompt has no further rows of those that it does not end: they would only
// put off the first token.
void share_rows(std::span<PromptRows> prompts, std::uint32_t chunk);

}  // namespace terrace::serve
