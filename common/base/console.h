// What a program says on stdout and stderr. A write that fails never throws and never ends the process: it stays in the
// stream's error flag, where the program looks once, at its end.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace terrace {

// Call first in main(). A standard stream that the caller had closed is replaced by one whose every use fails, so that
// no file or socket gets its number and the program's output with it. SIGPIPE is ignored: a closed pipe is an error of
// that write.
void prepare_standard_streams();

// True: all that was written to stdout arrived there. Flushes.
bool stdout_is_written();

inline void write_to(std::FILE* stream, std::string_view text) { std::fwrite(text.data(), 1, text.size(), stream); }

template <class... Args>
void print_out(fmt::format_string<Args...> format, Args&&... args) {
  write_to(stdout, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void print_err(fmt::format_string<Args...> format, Args&&... args) {
  write_to(stderr, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace terrace
