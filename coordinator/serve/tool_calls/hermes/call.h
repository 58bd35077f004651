// The JSON object between the marks of a call, as it comes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/serve/tool_calls/json_scanner.h"
#include "coordinator/serve/tool_calls/reply_parser.h"

namespace terrace::serve::tool_calls {

// Threads: one stream, one thread.
class HermesCall {
 public:
  enum class State {
    kOpen,    // more is needed
    kDone,    // the object is complete
    kNone,    // it is no call, and no delta was given: abandon() has its text
    kBroken,  // it breaks JSON after its name was given
  };

  // `index` as Delta::call counts.
  explicit HermesCall(std::size_t index) : index_(index) {}

  // Takes text up to the end of the object, or to where it breaks, and returns how many bytes those are.
  std::size_t push(std::string_view text, std::vector<Delta>& deltas);
  State state() const { return state_; }
  // No more will come: the text so far if no delta was given, else empty.
  std::string abandon() { return given_ ? "" : raw_; }

 private:
  void feed(char byte, std::vector<Delta>& deltas);
  void begin_value(char byte, std::vector<Delta>& deltas);
  void end_value(std::vector<Delta>& deltas);
  void end_object(std::vector<Delta>& deltas);
  void give_name(std::vector<Delta>& deltas);
  void give_arguments(std::string text, std::vector<Delta>& deltas);
  void fail() { state_ = given_ ? State::kBroken : State::kNone; }

  enum class Field { kOther, kName, kArguments };

  std::size_t index_;
  State state_ = State::kOpen;
  JsonScanner scanner_;
  std::string raw_;              // all of the object so far
  std::size_t begin_ = 0;        // in raw_: of the key or value that is being read
  bool in_value_ = false;        // a value of the outermost object is being read
  Field field_ = Field::kOther;  // whose
  bool has_name_ = false, has_arguments_ = false;
  bool given_ = false;      // kCall was given
  bool streaming_ = false;  // the arguments are given byte by byte
  std::string name_;        // once known
  std::string arguments_;   // read before the name was known
};

}  // namespace terrace::serve::tool_calls
