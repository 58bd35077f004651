// Checks for our own bugs. Bytes from a file, a peer or a user never reach one: those get an Error.
#pragma once

namespace terrace {
// Prints file, line, condition and message on stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const char* message);
}  // namespace terrace

#define TERRACE_CHECK(condition, message)                               \
  do {                                                                  \
    if (!(condition)) [[unlikely]]                                      \
      ::terrace::check_failed(__FILE__, __LINE__, #condition, message); \
  } while (false)
