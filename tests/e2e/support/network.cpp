#include "tests/e2e/support/network.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "tests/e2e/support/process.h"
#include "tests/test_data.h"

namespace terrace::test {
namespace {

bool is_own = false;  // this process's namespaces are its own

// A namespace that lives as long as the descriptor; -1 and errno where that is not allowed.
int new_network() {
  int made = -1, why = 0;
  std::thread([&] {
    if (::unshare(CLONE_NEWNET) == 0) made = ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    why = errno;
  }).join();
  errno = why;
  return made;
}

// As `ip link set lo up`.
bool loopback_up() {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  bool up = fd >= 0 && ::ioctl(fd, SIOCGIFFLAGS, &request) == 0;
  request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP);
  up = up && ::ioctl(fd, SIOCSIFFLAGS, &request) == 0;
  ::close(fd);
  return up;
}

class OwnNetwork final : public testing::Environment {
 public:
  void SetUp() override {
    if (::unshare(CLONE_NEWNET | CLONE_NEWNS) != 0) return;  // tests that need it say so themselves
    // Mounts made here are seen by nobody else.
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 || !loopback_up())
      throw std::runtime_error(fmt::format("a network of this test's own is of no use: {}", std::strerror(errno)));
    is_own = true;
  }
};

}  // namespace

std::string lacking(const std::vector<std::string>& capabilities) {
  if (capabilities.empty()) return "";
  std::vector<std::string> command = {(source_dir() / "tests" / "capability.sh").string()};
  command.insert(command.end(), capabilities.begin(), capabilities.end());
  const Outcome outcome = run_program(command);
  if (outcome.exit_code != 0 && outcome.exit_code != 1) throw std::runtime_error(outcome.err);
  return outcome.out;
}

testing::Environment* own_network() { return testing::AddGlobalTestEnvironment(new OwnNetwork); }

bool in_own_network() { return is_own; }

std::string run_shell_lines(const std::string& lines, int network) {
  const Outcome outcome =
      run_program({"/bin/sh", "-ec", "export PATH=$PATH:/usr/sbin:/sbin\n" + lines}, "", kPatience, network);
  if (!outcome.ended || outcome.exit_code != 0) throw std::runtime_error(lines + "\n" + outcome.err);
  return outcome.out;
}

// ---- machines ------------------------------------------------------------------------------------------------------

Machine::Machine(unsigned number) : number_(number), link_(fmt::format("m{}", number)) {
  if (!is_own) throw std::runtime_error("a machine needs a network of the test's own");
  network_ = new_network();
  if (network_ < 0) throw std::runtime_error(fmt::format("no network namespace: {}", std::strerror(errno)));
  const auto end = [&](const std::string& device, unsigned host) {
    return fmt::format(
        "ip link set lo up\n"
        "echo 1 > /proc/sys/net/ipv6/conf/{0}/keep_addr_on_down\n"
        "ip addr add 10.77.{1}.{2}/24 dev {0}\n"
        "ip addr add fd77:{1}::{2}/64 dev {0} nodad\n{3}",
        device, number_, host, up(device, host));
  };
  try {
    ours(fmt::format("ip link add {} type veth peer name link0 netns /proc/{}/fd/{}\n{}", link_, ::getpid(), network_,
                     end(link_, 1)));
    theirs(end("link0", 2));
  } catch (...) {
    take_down();
    throw;
  }
}

// Cubic is asked for by route: a namespace inherits the machine's own algorithm, and the kernel lets nobody choose
// another for all of it. Routes are made anew when a link comes up.
std::string Machine::up(const std::string& device, unsigned host) const {
  return fmt::format(
      "ip link set {0} up\n"
      "ip route replace 10.77.{1}.0/24 dev {0} src 10.77.{1}.{2} congctl cubic\n"
      "ip -6 route replace fd77:{1}::/64 dev {0} congctl cubic\n",
      device, number_, host);
}

Machine::~Machine() { take_down(); }

void Machine::take_down() {
  // The other end, and whatever stands on both, goes with it.
  (void)run_program({"/bin/sh", "-c", fmt::format("PATH=$PATH:/usr/sbin:/sbin ip link del {}", link_)});
  ::close(network_);
}

void Machine::inside(const std::function<void()>& work) const {
  std::exception_ptr thrown;
  std::thread([&] {
    try {
      if (::setns(network_, CLONE_NEWNET) != 0)
        throw std::runtime_error(fmt::format("cannot enter a namespace: {}", std::strerror(errno)));
      work();
    } catch (...) {
      thrown = std::current_exception();
    }
  }).join();
  if (thrown) std::rethrow_exception(thrown);
}

std::string Machine::ipv4() const { return fmt::format("10.77.{}.2", number_); }
std::string Machine::ipv6() const { return fmt::format("fd77:{}::2", number_); }
std::string Machine::our_ipv4() const { return fmt::format("10.77.{}.1", number_); }

// Rate and delay are made together, since a device has one root: netem's, with the rate below it.
void Machine::shape() const {
  const auto lines = [&](const std::string& device) {
    std::string made = fmt::format("tc qdisc del dev {} root 2>/dev/null || true\n", device);
    if (delay_us_ != 0) made += fmt::format("tc qdisc add dev {} root handle 1: netem delay {}us\n", device, delay_us_);
    if (megabits_ == 0) return made;
    // Bursts as measured to give 94 % of the rate and more: a tick's worth of bytes.
    const char* burst = megabits_ <= 100 ? "64k" : megabits_ <= 1000 ? "256k" : megabits_ <= 2500 ? "512k" : "4m";
    return made + fmt::format("tc qdisc add dev {} {} tbf rate {}mbit burst {} latency 20ms", device,
                              delay_us_ != 0 ? "parent 1:1" : "root", megabits_, burst);
  };
  ours(lines(link_));
  theirs(lines("link0"));
}

void Machine::set_rate(unsigned megabits) {
  megabits_ = megabits;
  shape();
}

void Machine::set_delay(unsigned us) {
  delay_us_ = us;
  shape();
}

void Machine::set_loss(unsigned one_in) {
  const auto lines = [&](const std::string& device) {
    return fmt::format(
        "nft add table inet loss\n"
        "nft add chain inet loss in '{{ type filter hook input priority 0; }}'\n"
        "nft add rule inet loss in iifname {} numgen inc mod {} 0 counter drop",
        device, one_in);
  };
  ours(lines(link_));
  theirs(lines("link0"));
}

std::uint64_t Machine::lost() const {
  std::uint64_t packets = 0;
  for (const int network : {-1, network_}) {
    const std::string said = run_shell_lines("nft list table inet loss", network);
    const std::size_t at = said.find("counter packets ");
    if (at != std::string::npos) packets += std::stoull(said.substr(at + 16));
  }
  return packets;
}

void Machine::set_link(bool is_up) {
  ours(is_up ? up(link_, 1) : fmt::format("ip link set {} down", link_));
  if (is_up) theirs(up("link0", 2));
}

void Machine::ours(const std::string& lines) const { run_shell_lines(lines); }

void Machine::theirs(const std::string& lines) const { run_shell_lines(lines, network_); }

// ---- what is left --------------------------------------------------------------------------------------------------

std::vector<std::string> children() {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream stat(entry.path() / "stat");
    std::string line;
    if (!std::getline(stat, line)) continue;  // it has ended meanwhile
    // PID (NAME) STATE PARENT ...; a name may hold anything.
    const std::size_t end = line.rfind(')');
    char state = 0;
    long parent = 0;
    if (end == std::string::npos || std::sscanf(line.c_str() + end + 1, " %c %ld", &state, &parent) != 2) continue;
    if (parent == ::getpid()) found.push_back(fmt::format("{} {}", line.substr(0, end + 1), state));
  }
  return found;
}

}  // namespace terrace::test
