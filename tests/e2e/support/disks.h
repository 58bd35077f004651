// Disks that are full, or slow, for tests that have namespaces of their own (network.h): they end with the process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "tests/unit/common/temp_dir.h"

namespace terrace::test {

// A folder that takes so many bytes, whole pages, and then is full. Needs "mount".
class SmallDisk {
 public:
  explicit SmallDisk(std::uint64_t bytes);
  ~SmallDisk();
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  const std::filesystem::path& path() const { return dir_.path(); }
  // Writes a file of its own until nothing more fits.
  void fill() const;

 private:
  TempDir dir_;
};

// A file system on a loop device from which this process reads so many bytes a second and no more, direct I/O included.
// Needs "throttle" and "mount". Throws (the test fails) where the kernel refuses something.
class SlowDisk {
 public:
  // megabytes: how much it holds.
  SlowDisk(std::uint64_t megabytes, std::uint64_t bytes_per_second);
  ~SlowDisk();
  SlowDisk(const SlowDisk&) = delete;
  SlowDisk& operator=(const SlowDisk&) = delete;

  std::filesystem::path path() const { return dir_ / "disk"; }
  // What was read before is forgotten: the next read is the device's.
  void forget_cache() const;
  // By the device so far.
  std::uint64_t bytes_read() const;

 private:
  TempDir dir_;
  std::string device_;           // "MAJOR:MINOR"
  std::filesystem::path group_;  // the control group in which reads are slow
};

}  // namespace terrace::test
