// A trace of steps by leg, for Perfetto (ui.perfetto.dev) and chrome://tracing: `--trace FILE`.
//
// File     The JSON array form of Chrome's trace events, one event a line; the closing bracket may be missing, so that
//          the trace of a process that was killed can be read. Times are microseconds since the recorder was made; the
//          event `began` has that moment by CLOCK_MONOTONIC, beside which other programs of the machine can be put.
// Threads  record() is called by one thread, the step's: it stores 48 bytes in a ring and returns; no lock, no
//          allocation, no system call. A thread of the recorder's own writes the file. What the ring has no room for is
//          dropped and counted, and so is all beyond max_bytes of the file.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/base/result.h"

namespace terrace::serve {

struct TraceSpan {
  enum class Kind : std::uint8_t { kStep, kBatch, kSubmit, kCollect };
  Kind kind = Kind::kStep;
  std::uint32_t track = 0;    // kStepTrack, or 1 + the leg's place
  std::int64_t begin_ns = 0;  // of Recorder::now()
  std::int64_t end_ns = 0;
  std::uint32_t layer = 0;       // of kBatch
  std::uint32_t rows = 0;        // of kStep and kBatch
  std::uint64_t pairs = 0;       // of kBatch
  std::uint64_t compute_us = 0;  // of kCollect: the leg's own kernels meanwhile
};

class TraceRecorder {
 public:
  static constexpr std::uint32_t kStepTrack = 0;

  struct Options {
    std::size_t ring_spans = std::size_t{1} << 16;  // a power of two
    std::uint64_t max_bytes = std::uint64_t{1} << 30;
  };
  // Creates the file (one that exists is replaced) with a track of steps and one of each leg. kIo: it cannot be
  // written.
  static Result<std::unique_ptr<TraceRecorder>> open(const std::filesystem::path& file,
                                                     const std::vector<std::string>& legs, Options options);
  static Result<std::unique_ptr<TraceRecorder>> open(const std::filesystem::path& file,
                                                     const std::vector<std::string>& legs) {
    return open(file, legs, Options());
  }
  // As close(), its error lost.
  ~TraceRecorder();
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  std::int64_t now() const;  // ns since the recorder was made
  void record(const TraceSpan& span);
  std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

  // Writes what is left and ends the file; record() is not called any more. kIo: something could not be written, to a
  // full disk for instance; the text names the file. Idempotent.
  Status close();

 private:
  TraceRecorder(std::filesystem::path file, std::FILE* out, Options options);
  void write_tracks(const std::vector<std::string>& legs);
  void write_loop();
  void drain();
  void write(const std::string& text);

  const std::filesystem::path file_;
  const Options options_;
  const std::int64_t begin_ns_;

  std::vector<TraceSpan> ring_;
  std::atomic<std::uint64_t> written_ = 0;  // by the step's thread
  std::atomic<std::uint64_t> read_ = 0;     // by the recorder's
  std::atomic<std::uint64_t> dropped_ = 0;

  std::FILE* out_;  // the recorder's thread, and close() after its end
  std::uint64_t bytes_ = 0;
  bool failed_ = false;

  std::mutex mutex_;  // guards closing_
  std::condition_variable wake_;
  bool closing_ = false;
  std::thread writer_;
};

}  // namespace terrace::serve
