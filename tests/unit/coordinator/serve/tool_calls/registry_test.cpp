#include "coordinator/serve/tool_calls/registry/registry.h"

#include <gtest/gtest.h>

namespace terrace::serve::tool_calls {
namespace {

TEST(ToolCallFamilies, TemplateWithJsonCalls_IsHermes) {
  const Family* family = find_family("{{ '<tool_call>\\n{\"name\": ' }}");
  ASSERT_NE(family, nullptr);
  EXPECT_EQ(family->name, "hermes");
}

TEST(ToolCallFamilies, TemplatesWithOtherCalls_HaveNone) {
  for (const char* source : {"", "{{ messages }}", "<tool_call>\n<function=f>\n<parameter=x>",
                             "<tool_call>f\n<arg_key>x</arg_key>", "[TOOL_CALLS]", "<|python_tag|>"})
    EXPECT_EQ(find_family(source), nullptr) << source;
}

TEST(ToolCallFamilies, ChatMlWithoutTools_IsHermesThatIsTold) {
  const Family* family = find_family("<|im_start|>{{ message.role }}");
  ASSERT_NE(family, nullptr);
  EXPECT_NE(family->tell_tools, nullptr);
  EXPECT_EQ(find_family("<|im_start|>{{ tools }}[CALL]"), nullptr);
}

TEST(ToolCallFamilies, WithoutFamily_ReasoningIsSplitAndCallsAreText) {
  const auto parser = plain_family().make({.tools = false, .reasoning = true});
  std::vector<Delta> deltas;
  parser->push("<think>a</think>b<tool_call>{}", deltas);
  parser->finish(deltas);
  ASSERT_EQ(deltas.size(), 2U);
  EXPECT_EQ(deltas[0], (Delta{Delta::Kind::kReasoning, "a", 0}));
  EXPECT_EQ(deltas[1], (Delta{Delta::Kind::kContent, "b<tool_call>{}", 0}));
}

}  // namespace
}  // namespace terrace::serve::tool_calls
