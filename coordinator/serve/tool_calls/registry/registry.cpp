#include "coordinator/serve/tool_calls/registry/registry.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "coordinator/serve/tool_calls/hermes/hermes.h"

namespace terrace::serve::tool_calls {
namespace {

struct Row {
  Family family;
  // A template is of the family if it has all of `has` and none of `lacks`: others use the same outer mark around a
  // call that is no JSON (Qwen3-Coder: <function=, GLM 4.5: <arg_key>).
  std::array<std::string_view, 1> has;
  std::array<std::string_view, 2> lacks;
};

constexpr Family kHermes{"hermes",      make_hermes_parser, "<think>",        "</think>",
                         "<tool_call>", "</tool_call>",     tell_hermes_tools};

constexpr Row kRows[] = {
    {kHermes, {"<tool_call>"}, {"<function=", "<arg_key>"}},
    {kHermes, {"<|im_start|>"}, {"<tool_call>", "tools"}},  // ChatML without tools: they are told in a message
};

}  // namespace

const Family* find_family(std::string_view template_source) {
  const auto has = [&](std::string_view mark) { return template_source.find(mark) != std::string_view::npos; };
  for (const Row& row : kRows)
    if (std::ranges::all_of(row.has, has) && std::ranges::none_of(row.lacks, has)) return &row.family;
  return nullptr;
}

const Family& plain_family() { return kHermes; }

}  // namespace terrace::serve::tool_calls
