#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "common/base/utf8.h"
#include "coordinator/terminal/line_reader.h"

namespace terrace::terminal {
namespace {

class PlainReader final : public LineReader {
 public:
  Result<Line> read() override {
    std::string line;
    int c = 0;
    while ((c = std::getc(stdin)) != EOF && c != '\n') line += static_cast<char>(c);
    if (std::ferror(stdin) != 0)
      return Error(ErrorCode::kIo,
                   fmt::format("standard input: cannot be read: {}", std::generic_category().message(errno)));
    if (c == EOF && line.empty()) return Line{};
    if (line.ends_with('\r')) line.pop_back();
    return Line{Line::Kind::kText, replace_bad_utf8(line)};
  }
};

}  // namespace

std::unique_ptr<LineReader> make_plain_reader() { return std::make_unique<PlainReader>(); }

}  // namespace terrace::terminal
