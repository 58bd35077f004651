// A recording of frames, as a file.
#include "common/base/check.h"
#include "common/transport/recording/recorder.h"
#include "common/transport/recording/recording.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/test_data.h"
#include "tests/unit/common/temp_dir.h"
#include "tests/unit/common/wire/sample_frames.h"

namespace terrace::fuzz {

void run_target(std::span<const std::byte> input) {
  auto bytes = AlignedBuffer::allocate(input.size());
  TERRACE_CHECK(bytes.ok(), "memory for the input");
  if (!input.empty()) std::memcpy(bytes->data(), input.data(), input.size());
  const auto recording = transport::Recording::parse(std::move(bytes).value());
  if (!recording.ok()) {
    TERRACE_CHECK(!recording.error().text().empty(), "an error without why");
    return;
  }
  std::size_t total = 0;
  for (const transport::RecordedEntry& entry : recording->entries()) {
    TERRACE_CHECK(entry.connection < recording->n_connections(), "a connection that was never made");
    total += entry.frame.size();
  }
  TERRACE_CHECK(total <= input.size(), "frames longer than their file");
}

std::vector<Seed> make_seeds() {
  // Made by hand: a recorder writes the time.
  Seed seed{"link.frames", {}};
  const auto append = [&](const auto& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    seed.bytes.insert(seed.bytes.end(), bytes.begin(), bytes.end());
  };
  struct Entry {
    std::uint64_t time_ns;
    std::uint32_t connection;
    std::uint32_t event;
    std::uint32_t bytes;
    std::uint32_t reserved[3];
  };
  for (const char c : {'T', 'R', 'R', 'C', 'F', 'R', 'M', 'S'}) append(c);
  append(std::uint64_t{1});
  append(Entry{1000, 0, 0, 0, {}});
  std::uint64_t time = 2000;
  for (const auto& frame : wire::test::sample_frames()) {
    append(Entry{
        time += 500, 0, 1 + static_cast<std::uint32_t>(time / 500 % 2), static_cast<std::uint32_t>(frame.size()), {}});
    seed.bytes.insert(seed.bytes.end(), frame.view().begin(), frame.view().end());
  }
  append(Entry{time, 0, 3, 0, {}});
  return {seed};
}

}  // namespace terrace::fuzz
