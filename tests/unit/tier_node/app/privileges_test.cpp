#include "tier_node/app/privileges.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/landlock.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

#include "tests/unit/common/temp_dir.h"

namespace terrace::node {
namespace {

// Rights that are given up stay given up: each of these runs in a child. Its exit code is what `act` gives.
int in_child(const std::function<int()>& act) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(act());
  int state = 0;
  ::waitpid(pid, &state, 0);
  return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

// 0: it opens; else errno.
int open_errno(const std::filesystem::path& file, int flags = O_RDONLY) {
  const int fd = ::open(file.c_str(), flags | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  ::close(fd);
  return 0;
}

class Privileges : public testing::Test {
 protected:
  Privileges() {
    for (const char* folder : {"models", "cache", "other"}) {
      std::filesystem::create_directory(dir_ / folder);
      test::write_file(dir_ / folder / "file", "x");
    }
    std::filesystem::create_symlink(dir_ / "other" / "file", dir_ / "models" / "link");
    needs_.read = system_files();
    needs_.read.push_back(dir_ / "models");
    needs_.read.push_back(dir_ / "not there");
    needs_.write.push_back(dir_ / "cache");
  }
  static bool has_landlock() {
    return ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) > 0;
  }
  int after_giving_up(const std::function<int()>& act) const {
    return in_child([&] { return give_up_privileges(needs_).ok() ? act() : 250; });
  }

  const test::TempDir dir_;
  FileNeeds needs_;
};

TEST_F(Privileges, Files_OnlyTheNamedFoldersOpen) {
  if (!has_landlock()) GTEST_SKIP() << "this kernel has no Landlock";
  const struct {
    std::filesystem::path file;
    int flags, error;
  } cases[] = {{dir_ / "models" / "file", O_RDONLY, 0},
               {dir_ / "models" / "file", O_WRONLY, EACCES},
               {dir_ / "models" / "new", O_WRONLY | O_CREAT, EACCES},
               {dir_ / "models" / "link", O_RDONLY, EACCES},
               {dir_ / "other" / "file", O_RDONLY, EACCES},
               {dir_ / "models" / ".." / "other" / "file", O_RDONLY, EACCES},
               {dir_ / "cache" / "file", O_RDWR | O_TRUNC, 0},
               {dir_ / "cache" / "new", O_WRONLY | O_CREAT, 0},
               {"/etc/passwd", O_RDONLY, EACCES},
               {"/proc/self/status", O_RDONLY, 0},
               {"/dev/urandom", O_RDONLY, 0}};
  for (const auto& c : cases) {
    ASSERT_EQ(in_child([&] { return open_errno(c.file, c.flags & ~(O_CREAT | O_TRUNC)) == EACCES ? 1 : 0; }), 0)
        << c.file;
    EXPECT_EQ(after_giving_up([&] { return open_errno(c.file, c.flags); }), c.error) << c.file << " " << c.flags;
  }
}

// As a manifest is kept: beside the old one, then in its place.
TEST_F(Privileges, Cache_AFileIsMadeAndReplacesAnother) {
  EXPECT_EQ(after_giving_up([&] {
              const auto made = dir_ / "cache" / "new", kept = dir_ / "cache" / "file";
              if (open_errno(made, O_WRONLY | O_CREAT) != 0) return 1;
              return ::rename(made.c_str(), kept.c_str()) == 0 ? 0 : errno;
            }),
            0);
}

TEST_F(Privileges, Programs_AreNotStarted) {
  if (!has_landlock()) GTEST_SKIP() << "this kernel has no Landlock";
  const auto start = [] {
    ::execl("/bin/true", "true", nullptr);
    return errno;
  };
  EXPECT_EQ(in_child(start), 0);
  EXPECT_EQ(after_giving_up(start), EACCES);
}

TEST_F(Privileges, Capabilities_AreNoneAndSaidToBe) {
  EXPECT_EQ(after_giving_up([] {
              const std::string status = test::read_file("/proc/self/status");
              for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapAmb"})
                if (status.find(std::string(set) + ":\t0000000000000000\n") == std::string::npos) return 1;
              return status.find("NoNewPrivs:\t1\n") == std::string::npos ? 2 : 0;
            }),
            0);
}

TEST_F(Privileges, WhatHolds_IsALineEach) {
  needs_.all_because = "a test";
  EXPECT_EQ(in_child([&] {
              const auto told = give_up_privileges(needs_);
              if (!told.ok() || told->size() != 3) return 1;
              if ((*told)[0] != "no new privileges" || !(*told)[1].starts_with("no capabilities")) return 2;
              return (*told)[2] == "files not restricted: a test" ? 0 : 3;
            }),
            0);
}

}  // namespace
}  // namespace terrace::node
