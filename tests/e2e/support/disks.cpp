#include "tests/e2e/support/disks.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

#include "tests/e2e/support/network.h"

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
  const std::string numbers =
      run_shell_lines(fmt::format("truncate -s {}M '{}/image'\n"
                                  "device=$(losetup -f --show --direct-io=on --sector-size 4096 '{}/image')\n"
                                  "mkfs.ext4 -q $device && mount $device '{}/disk'\n"
                                  "losetup -d $device\n"
                                  "stat -c '%Hr:%Lr' $device | tr -d '\\n'",
                                  megabytes, dir_.path().string(), dir_.path().string(), dir_.path().string()));
  std::filesystem::create_directory(group_);
  write_file(group_ / "blkio.throttle.read_bps_device", fmt::format("{} {}\n", numbers, bytes_per_second));
  write_file(group_ / "cgroup.procs", fmt::format("{}\n", ::getpid()));
}

SlowDisk::~SlowDisk() {
  write_file(kGroups / "cgroup.procs", fmt::format("{}\n", ::getpid()));
  ::rmdir(group_.c_str());
  ::umount2(path().c_str(), MNT_DETACH);
}

void SlowDisk::forget_cache() const {
  run_shell_lines(fmt::format("sync; for file in '{}'/*; do dd if=\"$file\" iflag=nocache count=0 2>/dev/null; done",
                              path().string()));
}

}  // namespace terrace::test
