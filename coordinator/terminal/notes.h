// What a run says on stderr beside its result: lines, and how far long work is.
//
// On a terminal the work in progress has one line each below all others, redrawn in place; a line that is printed
// meanwhile goes above them. Elsewhere progress is plain lines, few of them. Nothing at all when quiet.
//
//   Notes notes({.quiet = options.quiet, .live = ..., .write = ..., .now = ..., .columns = ...});
//   auto task = notes.begin("box1:9000");        // its line goes with the task
//   task->update(done, total);
//
// Threads  Any, also at once: lines are written whole. Tasks end before the Notes.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/environment.h"

namespace terrace::terminal {

struct NotesOptions {
  bool quiet = false;
  bool live = false;  // a terminal that can move its cursor
  std::function<void(std::string_view)> write;
  // Where set, lines go there, without "terrace: " and without a line break, and nothing is written or drawn: a log.
  std::function<void(const std::string& line)> line = {};
  std::function<std::chrono::steady_clock::time_point()> now;
  std::function<std::size_t()> columns;  // of the terminal
};

// Of this process's stderr.
NotesOptions notes_on_stderr(bool quiet, const Environment& environment);

class Notes {
 public:
  static constexpr std::chrono::milliseconds kRedraw{100};  // no more often
  // Plain lines: none of work that takes less than this, then one for each tenth, and after each pause of kPause.
  static constexpr std::chrono::seconds kSilence{2};
  static constexpr std::chrono::seconds kPause{5};

  explicit Notes(NotesOptions options) : options_(std::move(options)) {}
  ~Notes();
  Notes(const Notes&) = delete;
  Notes& operator=(const Notes&) = delete;

  // One line, "terrace: " before it.
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) {
    if (!options_.quiet) print_line(fmt::format(format, std::forward<Args>(args)...));
  }

  class Task {
   public:
    ~Task() { notes_.end(*this); }
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;
    // Bytes done and in all; what is beyond the total counts as the total.
    void update(std::uint64_t done, std::uint64_t total) { notes_.update(*this, done, total); }

   private:
    friend class Notes;
    Task(Notes& notes, std::string what, std::chrono::steady_clock::time_point begin)
        : notes_(notes), what_(std::move(what)), begin_(begin), told_at_(begin) {}
    Notes& notes_;
    const std::string what_;
    const std::chrono::steady_clock::time_point begin_;
    // Guarded by the notes' lock.
    std::uint64_t done_ = 0, total_ = 0;
    std::uint64_t told_tenths_ = 0;
    std::chrono::steady_clock::time_point told_at_;
  };
  // Work begins: "box1:9000", "hashing experts". The notes outlive the task.
  std::unique_ptr<Task> begin(std::string what);

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  void print_line(const std::string& line);
  void update(Task& task, std::uint64_t done, std::uint64_t total);
  void end(Task& task);
  // Under the lock.
  void tell(Task& task, TimePoint now);
  std::string text_of(const Task& task, TimePoint now) const;
  void redraw(TimePoint now);
  std::string erase();
  std::string draw(TimePoint now);

  const NotesOptions options_;
  std::mutex mutex_;
  std::vector<Task*> tasks_;  // in the order of their beginnings
  std::size_t drawn_ = 0;     // lines that stand on the terminal now
  TimePoint drawn_at_{};
};

}  // namespace terrace::terminal
