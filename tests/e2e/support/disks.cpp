#include "tests/e2e/support/disks.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/e2e/support/network.h"
#include "tests/e2e/support/process.h"

namespace terrace::test {
namespace {

const std::filesystem::path kGroups = "/sys/fs/cgroup/blkio";
constexpr const char* kGroupName = "terrace-test-";

// A control group has a name that outlives who made it: what dead processes left is removed first.
void remove_leftovers() {
  for (const auto& entry : std::filesystem::directory_iterator(kGroups)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kGroupName)) continue;
    const pid_t pid = std::atoi(name.c_str() + std::strlen(kGroupName));
    if (pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH) ::rmdir(entry.path().c_str());
  }
}

// Of the file, by this process.
std::vector<std::span<std::byte>> mappings_of(const std::filesystem::path& file) {
  std::vector<std::span<std::byte>> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    if (line.ends_with(" " + file.string()) && std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &begin, &end) == 2)
      found.emplace_back(reinterpret_cast<std::byte*>(begin), end - begin);
  }
  return found;
}

// Of an open file no more than a quarter is in memory.
bool is_mostly_on_disk(int fd) {
  struct stat file {};
  if (::fstat(fd, &file) != 0 || file.st_size == 0) return false;
  const auto size = static_cast<std::size_t>(file.st_size);
  void* const mapping = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (mapping == MAP_FAILED) return false;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((size + page - 1) / page);
  const bool known = ::mincore(mapping, size, pages.data()) == 0;
  ::munmap(mapping, size);
  const auto resident = std::ranges::count_if(pages, [](unsigned char in_memory) { return (in_memory & 1) != 0; });
  return known && 4 * static_cast<std::size_t>(resident) <= pages.size();
}

}  // namespace

SmallDisk::SmallDisk(std::uint64_t bytes) {
  if (::mount("none", path().c_str(), "tmpfs", 0, fmt::format("size={}", bytes).c_str()) != 0)
    throw std::runtime_error(fmt::format("cannot mount {}: {}", path().string(), std::strerror(errno)));
}

SmallDisk::~SmallDisk() { ::umount2(path().c_str(), MNT_DETACH); }

void SmallDisk::fill() const {
  run_shell_lines(fmt::format("cat /dev/zero > '{}' 2>/dev/null || true", (path() / "fill").string()));
}

SlowDisk::SlowDisk(std::uint64_t megabytes, std::uint64_t bytes_per_second)
    : group_(kGroups / (kGroupName + std::to_string(::getpid()))) {
  remove_leftovers();
  std::filesystem::create_directory(path());
  // The device is let go once it is mounted: the end of the mount, which is the end of the namespace, frees it.
  device_ =
      run_shell_lines(fmt::format("truncate -s {}M '{}/image'\n"
                                  "device=$(losetup -f --show --direct-io=on --sector-size 4096 '{}/image')\n"
                                  "mkfs.ext4 -q $device && mount $device '{}/disk'\n"
                                  "losetup -d $device\n"
                                  "stat -c '%Hr:%Lr' $device | tr -d '\\n'",
                                  megabytes, dir_.path().string(), dir_.path().string(), dir_.path().string()));
  std::filesystem::create_directory(group_);
  write_file(group_ / "blkio.throttle.read_bps_device", fmt::format("{} {}\n", device_, bytes_per_second));
  write_file(group_ / "cgroup.procs", fmt::format("{}\n", ::getpid()));
}

SlowDisk::~SlowDisk() {
  write_file(kGroups / "cgroup.procs", fmt::format("{}\n", ::getpid()));
  ::rmdir(group_.c_str());
  ::umount2(path().c_str(), MNT_DETACH);
}

std::uint64_t SlowDisk::bytes_read() const {
  std::istringstream lines(read_file(group_ / "blkio.throttle.io_service_bytes"));
  std::string device, what;
  for (std::uint64_t bytes = 0; lines >> device >> what >> bytes;)
    if (device == device_ && what == "Read") return bytes;
  return 0;
}

// Pages that somebody has mapped stay: this process's mappings of the file let go of theirs first. A step that goes on
// meanwhile may map them again, so until most are gone.
void SlowDisk::forget_cache() const {
  for (const auto& entry : std::filesystem::directory_iterator(path())) {
    if (!entry.is_regular_file()) continue;
    const int fd = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    const bool forgot = fd >= 0 && ::fsync(fd) == 0 && eventually([&] {
                          for (const std::span<std::byte> mapping : mappings_of(entry.path()))
                            (void)::madvise(mapping.data(), mapping.size(), MADV_DONTNEED);
                          return ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0 && is_mostly_on_disk(fd);
                        });
    ::close(fd);
    if (!forgot) throw std::runtime_error("the cache of " + entry.path().string() + " stays");
  }
}

}  // namespace terrace::test
