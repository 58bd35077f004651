// The text of a reply as it comes, split into content, reasoning and tool calls.
//
// A model marks its reasoning and its calls in its text, each family in its own way: a folder each implements this
// interface, registry/ picks it by the chat template. What a parser gives is the same however the text is cut into
// pieces: the deltas of one kind and call, joined, do not depend on the cuts. Text that may still turn out to begin a
// mark is withheld; a mark never appears in content.
//
// Threads  One stream, one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::serve::tool_calls {

struct Delta {
  enum class Kind {
    kContent,    // text for the user
    kReasoning,  // text between the marks of thought
    kCall,       // a call begins: its name
    kArguments,  // more of the call's arguments: JSON text
  };
  Kind kind = Kind::kContent;
  std::string text;
  std::size_t call = 0;  // of kCall and kArguments: 0, 1, ... in the order in which calls begin

  bool operator==(const Delta&) const = default;
};

struct ParserOptions {
  bool tools = false;         // calls are looked for
  bool reasoning = false;     // reasoning is split off; without it its marks are content
  bool in_reasoning = false;  // the prompt's end has opened the mark of thought already
};

class ReplyParser {
 public:
  virtual ~ReplyParser() = default;
  // Appends what `piece` settles. UTF-8 in, whole characters out.
  virtual void push(std::string_view piece, std::vector<Delta>& deltas) = 0;
  // Whether what comes next belongs to the reasoning, or to the mark that ends it.
  virtual bool in_reasoning() const = 0;
  // The reply is over: what was withheld. A call that is not complete keeps the arguments it has; one whose name is
  // not known yet is given as content, as it was written.
  virtual void finish(std::vector<Delta>& deltas) = 0;
};

}  // namespace terrace::serve::tool_calls
