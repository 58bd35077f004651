#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "common/base/utf8.h"
#include "coordinator/terminal/line_reader.h"

namespace terrace::terminal {
namespace {

// The library asks the locale how characters are written and how wide they are.
void use_utf8() {
  const bool known = setlocale(LC_CTYPE, "") != nullptr;
  if (!known || std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
}

// A whole character of UTF-8.
wchar_t code_point(std::string_view bytes) {
  const auto first = static_cast<unsigned char>(bytes[0]);
  std::uint32_t code = bytes.size() == 1 ? first : first & (0xFFu >> (bytes.size() + 1));
  for (const char c : bytes.substr(1)) code = code << 6 | (static_cast<unsigned char>(c) & 0x3F);
  return static_cast<wchar_t>(code);
}

std::string to_utf8(std::wstring_view text) {
  std::string out;
  for (const wchar_t wide : text) {
    const auto code = std::bit_cast<std::uint32_t>(wide);
    const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((code >> shift) & 0x3F)); };
    if (code < 0x80) {
      out += static_cast<char>(code);
    } else if (code < 0x800) {
      out += static_cast<char>(0xC0 | code >> 6);
      tail(0);
    } else if (code < 0x10000) {
      out += static_cast<char>(0xE0 | code >> 12);
      tail(6);
      tail(0);
    } else {
      out += static_cast<char>(0xF0 | code >> 18);
      tail(12);
      tail(6);
      tail(0);
    }
  }
  return out;
}

std::wstring to_wide(std::string_view text) {
  std::wstring out;
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    out += step.kind == Utf8Kind::kCharacter ? code_point(text.substr(0, step.length)) : L'\xFFFD';
    text.remove_prefix(step.length);
  }
  return out;
}

class LineEditor final : public LineReader {
 public:
  LineEditor(std::string prompt, Interrupts& interrupts, InputHistory& history)
      : prompt_(std::move(prompt)), interrupts_(interrupts), history_(history) {}
  ~LineEditor() override {
    if (editor_ != nullptr) el_end(editor_);
    if (lines_ != nullptr) history_wend(lines_);
  }

  Status open();
  Result<Line> read() override;

 private:
  static LineEditor& of(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return *static_cast<LineEditor*>(self);
  }
  static char* show_prompt(EditLine* editor) { return of(editor).prompt_.data(); }
  static int read_character(EditLine* editor, wchar_t* out) { return of(editor).next_character(out); }
  int next_character(wchar_t* out);
  void remember(const std::wstring& line);

  std::string prompt_;
  Interrupts& interrupts_;
  InputHistory& history_;
  EditLine* editor_ = nullptr;
  HistoryW* lines_ = nullptr;
  bool interrupted_ = false;
};

void LineEditor::remember(const std::wstring& line) {
  HistEventW event;
  if (!line.empty()) history_w(lines_, &event, H_ENTER, line.c_str());
}

Status LineEditor::open() {
  use_utf8();
  std::FILE* shown = isatty(STDOUT_FILENO) == 1 ? stdout : stderr;
  editor_ = el_init("terrace", stdin, shown, stderr);
  lines_ = history_winit();
  if (editor_ == nullptr || lines_ == nullptr)
    return Error(ErrorCode::kIo, "the terminal cannot be used for editing; give the lines on standard input");
  HistEventW event;
  history_w(lines_, &event, H_SETSIZE, static_cast<int>(InputHistory::kMostLines));
  history_w(lines_, &event, H_SETUNIQUE, 1);
  for (const std::string& line : history_.lines()) remember(to_wide(line));
  el_set(editor_, EL_CLIENTDATA, this);
  el_set(editor_, EL_PROMPT, &LineEditor::show_prompt);
  el_set(editor_, EL_EDITOR, "emacs");
  el_set(editor_, EL_SIGNAL, 1);  // the terminal is put right when the program is stopped, goes on or is ended
  el_wset(editor_, EL_HIST, history_w, lines_);
  el_set(editor_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_wset(editor_, EL_GETCFN, &LineEditor::read_character);
  return {};
}

// 1: a character; 0: the end; -1: an error. Ctrl-C ends the line: read() then drops it.
int LineEditor::next_character(wchar_t* out) {
  std::array<char, 4> bytes{};
  std::size_t n = 0;
  pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {interrupts_.fd(), POLLIN, 0}};
  while (n < bytes.size()) {
    if (::poll(fds, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return -1;
    }
    if (fds[1].revents != 0) {
      interrupts_.clear();
      interrupted_ = true;
      *out = L'\n';
      return 1;
    }
    const ssize_t got = ::read(STDIN_FILENO, &bytes[n], 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return static_cast<int>(got);
    const std::string_view so_far(bytes.data(), ++n);
    const Utf8Kind kind = utf8_step(so_far).kind;
    if (kind == Utf8Kind::kCut) continue;
    *out = kind == Utf8Kind::kCharacter ? code_point(so_far) : L'\xFFFD';
    return 1;
  }
  return -1;
}

Result<Line> LineEditor::read() {
  interrupted_ = false;
  int n = 0;
  const wchar_t* typed = el_wgets(editor_, &n);
  if (interrupted_) return Line{Line::Kind::kInterrupted, ""};
  if (typed == nullptr || n <= 0) return Line{};
  std::wstring line(typed, static_cast<std::size_t>(n));
  while (!line.empty() && (line.back() == L'\n' || line.back() == L'\r')) line.pop_back();
  Line read{Line::Kind::kText, to_utf8(line)};
  remember(line);
  (void)history_.add(read.text);
  return read;
}

}  // namespace

Result<std::unique_ptr<LineReader>> make_line_editor(const std::string& prompt, Interrupts& interrupts,
                                                     InputHistory& history) {
  auto editor = std::make_unique<LineEditor>(prompt, interrupts, history);
  TERRACE_RETURN_IF_ERROR(editor->open());
  return std::unique_ptr<LineReader>(std::move(editor));
}

}  // namespace terrace::terminal
