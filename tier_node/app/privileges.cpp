#include "tier_node/app/privileges.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "common/base/descriptor.h"

namespace terrace::node {
namespace {

Error failed(const std::string& what) {
  return Error(ErrorCode::kIo, fmt::format("{} ({})", what, std::generic_category().message(errno)));
}

// ---- capabilities ---------------------------------------------------------------------------------------------------

using CapabilitySets = std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3>;

Result<CapabilitySets> capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  CapabilitySets sets{};
  if (::syscall(SYS_capget, &header, sets.data()) != 0) return failed("capabilities cannot be read: capget");
  return sets;
}

// The bounding set too where that is allowed; it alone gives nothing, as no new privileges can be gained.
Result<std::string> drop_capabilities() {
  TERRACE_ASSIGN_OR_RETURN(const CapabilitySets before, capabilities());
  const auto none = [](const __user_cap_data_struct& set) {
    return (set.effective | set.permitted | set.inheritable) == 0;
  };
  (void)::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  if (std::ranges::all_of(before, none)) return std::string("no capabilities, as it was started");
  for (int capability = 0; ::prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability)
    (void)::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const CapabilitySets nothing{};
  if (::syscall(SYS_capset, &header, nothing.data()) != 0) return failed("capabilities cannot be given up: capset");
  return std::string("no capabilities, those it was started with are given up");
}

// ---- files: Landlock ------------------------------------------------------------------------------------------------

// Rights that Debian 12's header does not name yet.
constexpr std::uint64_t kTruncate = std::uint64_t{1} << 14;  // from version 3 on
constexpr std::uint64_t kIoctlDev = std::uint64_t{1} << 15;  // 5
constexpr std::uint64_t kRead = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr std::uint64_t kOfFiles = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | kTruncate;
constexpr std::uint64_t kWrite = kRead | kOfFiles | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REMOVE_FILE;

// All rights that this version of Landlock can take.
std::uint64_t rights_of(long version) {
  std::uint64_t rights = (std::uint64_t{1} << 13) - 1;
  if (version >= 2) rights |= LANDLOCK_ACCESS_FS_REFER;
  if (version >= 3) rights |= kTruncate;
  if (version >= 5) rights |= kIoctlDev;
  return rights;
}

Status allow(int rules, const std::filesystem::path& path, std::uint64_t rights) {
  const Descriptor opened(::open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat what {};
  if (opened.get() < 0 || ::fstat(opened.get(), &what) != 0) return {};  // not there: nothing to open
  if (!S_ISDIR(what.st_mode)) rights &= kOfFiles;
  const landlock_path_beneath_attr rule{.allowed_access = rights, .parent_fd = opened.get()};
  if (::syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0)
    return failed(fmt::format("{}: cannot be allowed: landlock_add_rule", path.string()));
  return {};
}

Result<std::string> restrict_files(const FileNeeds& needs) {
  if (!needs.all_because.empty()) return fmt::format("files not restricted: {}", needs.all_because);
  const long version = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version <= 0)  // not built in, or switched off; old container profiles say EPERM
    return fmt::format("files not restricted: no Landlock here ({})", std::generic_category().message(errno));
  const std::uint64_t rights = rights_of(version);
  const landlock_ruleset_attr handled{.handled_access_fs = rights};
  const Descriptor rules(static_cast<int>(::syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0)));
  if (rules.get() < 0) return failed("files cannot be restricted: landlock_create_ruleset");
  for (const std::filesystem::path& path : needs.read)
    TERRACE_RETURN_IF_ERROR(allow(rules.get(), path, kRead & rights));
  for (const std::filesystem::path& path : needs.write)
    TERRACE_RETURN_IF_ERROR(allow(rules.get(), path, kWrite & rights));
  if (::syscall(SYS_landlock_restrict_self, rules.get(), 0) != 0)
    return failed("files cannot be restricted: landlock_restrict_self");
  return fmt::format("opens no file but its own, starts no program (Landlock {})", version);
}

}  // namespace

std::vector<std::filesystem::path> system_files() {
  return {
      "/usr/lib",  "/lib",         "/lib64", "/usr/lib64", "/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo",
      "/dev/null", "/dev/urandom", "/proc",  "/sys"};
}

Result<std::vector<std::string>> give_up_privileges(const FileNeeds& needs) {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return failed("new privileges cannot be refused: prctl");
  TERRACE_ASSIGN_OR_RETURN(std::string files, restrict_files(needs));
  TERRACE_ASSIGN_OR_RETURN(std::string kept, drop_capabilities());
  return std::vector<std::string>{"no new privileges", std::move(kept), std::move(files)};
}

bool has_root_rights() { return ::geteuid() == 0; }

}  // namespace terrace::node
