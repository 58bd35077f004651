#include "coordinator/terminal/notes.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "common/base/console.h"
#include "coordinator/terminal/progress_text.h"

namespace terrace::terminal {
namespace {

constexpr const char* kEraseLine = "\r\x1b[K";
constexpr const char* kLineUp = "\x1b[1A";
constexpr std::size_t kUnknownColumns = 80;

std::size_t columns_of_stderr() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUnknownColumns;
}

}  // namespace

NotesOptions notes_on_stderr(bool quiet, const Environment& environment) {
  NotesOptions options;
  options.quiet = quiet;
  options.live = isatty(STDERR_FILENO) == 1 && environment.get("TERM").value_or("dumb") != "dumb";
  options.write = [](std::string_view text) { write_to(stderr, text); };
  options.now = [] { return std::chrono::steady_clock::now(); };
  options.columns = columns_of_stderr;
  return options;
}

Notes::~Notes() {
  const std::lock_guard lock(mutex_);
  if (drawn_ > 0) options_.write(erase());
}

std::unique_ptr<Notes::Task> Notes::begin(std::string what) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Task> task(new Task(*this, std::move(what), options_.now()));
  tasks_.push_back(task.get());
  return task;
}

void Notes::print_line(const std::string& line) {
  const std::lock_guard lock(mutex_);
  if (options_.line) return options_.line(line);
  const bool stood = drawn_ > 0;
  std::string out = erase();
  out += "terrace: " + line + "\n";
  if (stood) out += draw(options_.now());
  options_.write(out);
}

void Notes::update(Task& task, std::uint64_t done, std::uint64_t total) {
  if (options_.quiet) return;
  const std::lock_guard lock(mutex_);
  task.total_ = total;
  task.done_ = std::min(done, total);
  const TimePoint now = options_.now();
  if (!options_.live || options_.line) return tell(task, now);
  if (drawn_ > 0 && now - drawn_at_ < kRedraw) return;
  redraw(now);
}

void Notes::end(Task& task) {
  const std::lock_guard lock(mutex_);
  std::erase(tasks_, &task);
  if (drawn_ > 0) redraw(options_.now());
}

std::string Notes::text_of(const Task& task, TimePoint now) const {
  return progress_text(task.what_, {task.done_, task.total_, now - task.begin_});
}

void Notes::tell(Task& task, TimePoint now) {
  const std::uint64_t tenths =
      task.total_ == 0
          ? 0
          : static_cast<std::uint64_t>(static_cast<double>(task.done_) * 10 / static_cast<double>(task.total_));
  const bool due = tenths > task.told_tenths_ || now - task.told_at_ >= kPause;
  if (!due || now - task.begin_ < kSilence) return;
  task.told_tenths_ = tenths;
  task.told_at_ = now;
  if (options_.line) return options_.line(text_of(task, now));
  options_.write("terrace: " + text_of(task, now) + "\n");
}

void Notes::redraw(TimePoint now) {
  std::string out = erase();
  out += draw(now);
  options_.write(out);
}

// Takes the drawn lines away; the cursor then stands at the beginning of the first of them.
std::string Notes::erase() {
  std::string out;
  for (std::size_t i = 0; i < drawn_; ++i) out += i == 0 ? kEraseLine : std::string(kLineUp) + kEraseLine;
  drawn_ = 0;
  return out;
}

// One line a task, and one for all of them where there are several. The cursor stays at the end of the last.
std::string Notes::draw(TimePoint now) {
  std::vector<std::string> lines;
  ProgressState all;
  for (const Task* task : tasks_) {
    lines.push_back(text_of(*task, now));
    all.done += task->done_;
    all.total += task->total_;
    all.elapsed = std::max<std::chrono::nanoseconds>(all.elapsed, now - task->begin_);
  }
  if (lines.size() > 1) lines.push_back(progress_text("in all", all));
  const std::size_t columns = options_.columns();
  std::string out;
  for (const std::string& line : lines) {
    if (!out.empty()) out += '\n';
    out += fit(line, columns > 0 ? columns - 1 : 0);  // a full line would move the cursor to the next
  }
  drawn_ = lines.size();
  drawn_at_ = now;
  return out;
}

}  // namespace terrace::terminal
