// Where lines that a person types come from: a terminal with editing and history, or any other stream as it is.
#pragma once

#include <memory>
#include <string>

#include "common/base/result.h"
#include "coordinator/terminal/input_history.h"
#include "coordinator/terminal/interrupts.h"

namespace terrace::terminal {

struct Line {
  enum class Kind { kText, kInterrupted, kEnd };
  Kind kind = Kind::kEnd;
  std::string text;  // kText: UTF-8, without its newline
};

// One thread at a time.
class LineReader {
 public:
  virtual ~LineReader() = default;
  // kInterrupted: Ctrl-C came, what stood on the line is dropped. kEnd: Ctrl-D on an empty line, or the end of the
  // stream. kIo: the stream cannot be read.
  virtual Result<Line> read() = 0;
};

// Standard input, line by line; nothing is shown. Bytes that are not UTF-8 become U+FFFD.
std::unique_ptr<LineReader> make_plain_reader();

// Standard input is a terminal: the line is edited behind `prompt` (ASCII), with what was typed before; what is read
// goes to the history. The prompt is shown on stdout where that is a terminal, else on stderr. Sets the process's
// character type to UTF-8, so it is made before other threads are. `interrupts` and `history` are borrowed.
// kIo: the terminal cannot be used. A history that cannot be written is no error here.
Result<std::unique_ptr<LineReader>> make_line_editor(const std::string& prompt, Interrupts& interrupts,
                                                     InputHistory& history);

}  // namespace terrace::terminal
