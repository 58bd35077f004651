#include "coordinator/serve/trace/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include "common/base/check.h"
#include "common/threads/start.h"

namespace terrace::serve {
namespace {

// How long spans lie in the ring; a step of a large model over several legs makes some hundreds.
constexpr std::chrono::milliseconds kDrainPeriod{50};

std::int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\')
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out + "\"";
}

const char* name(TraceSpan::Kind kind) {
  switch (kind) {
    case TraceSpan::Kind::kStep:
      return "step";
    case TraceSpan::Kind::kBatch:
      return "batch";
    case TraceSpan::Kind::kSubmit:
      return "submit";
    case TraceSpan::Kind::kCollect:
      return "collect";
  }
  return "step";
}

std::string arguments(const TraceSpan& span) {
  switch (span.kind) {
    case TraceSpan::Kind::kStep:
      return fmt::format("{{\"rows\":{}}}", span.rows);
    case TraceSpan::Kind::kBatch:
      return fmt::format("{{\"layer\":{},\"rows\":{},\"pairs\":{}}}", span.layer, span.rows, span.pairs);
    case TraceSpan::Kind::kSubmit:
      return "{}";
    case TraceSpan::Kind::kCollect:
      return fmt::format("{{\"compute_us\":{}}}", span.compute_us);
  }
  return "{}";
}

// Microseconds to the nanosecond, without a detour through floating point.
std::string microseconds(std::int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

std::string event(const TraceSpan& span) {
  return fmt::format(R"({{"name":"{}","ph":"X","pid":1,"tid":{},"ts":{},"dur":{},"args":{}}})", name(span.kind),
                     span.track, microseconds(span.begin_ns), microseconds(span.end_ns - span.begin_ns),
                     arguments(span));
}

std::string track_event(std::uint32_t track, const std::string& track_name) {
  return fmt::format(R"({{"name":"thread_name","ph":"M","pid":1,"tid":{},"args":{{"name":{}}}}})", track,
                     quoted(track_name));
}

}  // namespace

Result<std::unique_ptr<TraceRecorder>> TraceRecorder::open(const std::filesystem::path& file,
                                                           const std::vector<std::string>& legs, Options options) {
  std::FILE* out = std::fopen(file.c_str(), "we");
  if (out == nullptr)
    return Error(ErrorCode::kIo, fmt::format("{}: the trace cannot be written there: {}", file.string(),
                                             std::generic_category().message(errno)));
  std::unique_ptr<TraceRecorder> recorder(new TraceRecorder(file, out, options));
  recorder->write_tracks(legs);
  TERRACE_ASSIGN_OR_RETURN(recorder->writer_, start_thread("terrace-trace", [r = recorder.get()] { r->write_loop(); }));
  return recorder;
}

TraceRecorder::TraceRecorder(std::filesystem::path file, std::FILE* out, Options options)
    : file_(std::move(file)), options_(options), begin_ns_(steady_ns()), ring_(options.ring_spans), out_(out) {
  TERRACE_CHECK((options.ring_spans & (options.ring_spans - 1)) == 0, "the ring's size is a power of two");
}

TraceRecorder::~TraceRecorder() {
  if (const Status closed = close(); !closed.ok()) return;  // who wants to know has called it before
}

std::int64_t TraceRecorder::now() const { return steady_ns() - begin_ns_; }

void TraceRecorder::record(const TraceSpan& span) {
  const std::uint64_t at = written_.load(std::memory_order_relaxed);
  if (at - read_.load(std::memory_order_acquire) == ring_.size()) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  ring_[at & (ring_.size() - 1)] = span;
  written_.store(at + 1, std::memory_order_release);
}

void TraceRecorder::write(const std::string& text) {
  if (bytes_ + text.size() > options_.max_bytes) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  bytes_ += text.size();
  failed_ |= std::fwrite(text.data(), 1, text.size(), out_) != text.size();
}

// Every event but the first follows a comma, so that each line is whole when the process ends there.
void TraceRecorder::write_tracks(const std::vector<std::string>& legs) {
  write(R"([{"name":"process_name","ph":"M","pid":1,"tid":0,"args":{"name":"terrace"}})");
  write(fmt::format(R"(,{}{{"name":"began","ph":"M","pid":1,"tid":0,"args":{{"monotonic_us":{}}}}})", '\n',
                    microseconds(begin_ns_)));
  write(",\n" + track_event(kStepTrack, "steps"));
  for (std::uint32_t i = 0; i < legs.size(); ++i) write(",\n" + track_event(i + 1, legs[i]));
}

void TraceRecorder::drain() {
  const std::uint64_t end = written_.load(std::memory_order_acquire);
  for (std::uint64_t at = read_.load(std::memory_order_relaxed); at != end; ++at) {
    write(",\n" + event(ring_[at & (ring_.size() - 1)]));
    read_.store(at + 1, std::memory_order_release);
  }
  failed_ |= std::fflush(out_) != 0;
}

void TraceRecorder::write_loop() {
  while (true) {
    bool closing = false;
    {
      std::unique_lock lock(mutex_);
      closing = wake_.wait_for(lock, kDrainPeriod, [this] { return closing_; });
    }
    drain();
    if (closing) return;
  }
}

Status TraceRecorder::close() {
  if (writer_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    wake_.notify_all();
    writer_.join();
    failed_ |= std::fputs("\n]\n", out_) < 0;
  }
  if (std::FILE* const out = std::exchange(out_, nullptr)) failed_ |= std::fclose(out) != 0;
  if (!failed_) return {};
  return Error(ErrorCode::kIo,
               fmt::format("{}: the trace could not be written whole; is the disk full?", file_.string()));
}

}  // namespace terrace::serve
