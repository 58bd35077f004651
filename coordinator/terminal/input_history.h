// What was typed before, over runs: a file of lines, the newest last.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/environment.h"
#include "common/base/result.h"

namespace terrace::terminal {

// $XDG_STATE_HOME/terrace/NAME, else $HOME/.local/state/terrace/NAME (the XDG base directory specification: a relative
// path is ignored). Empty where neither is set.
std::filesystem::path state_file(const Environment& environment, const std::string& name);

class InputHistory {
 public:
  static constexpr std::size_t kMostLines = 1000;  // kept; a file of twice as many is cut to them

  // In memory only.
  InputHistory() = default;
  // The file's last lines; the file may not exist yet. It is readable by its owner alone from here on. kIo: it cannot
  // be read; kInvalidArgument: it is no regular file.
  static Result<InputHistory> open(const std::filesystem::path& file);

  const std::vector<std::string>& lines() const { return lines_; }
  // Appends a line (control characters become spaces), to the file by one write, so that several programs may share
  // it. Empty lines and repeats of the last one are left out. kIo: the file cannot be written; the line is kept in
  // memory.
  Status add(std::string_view line);

 private:
  std::filesystem::path file_;  // empty: none
  std::vector<std::string> lines_;
};

}  // namespace terrace::terminal
