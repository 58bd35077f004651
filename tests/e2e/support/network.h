// Machines on a network, for tests: network namespaces joined to the test's own by veth pairs, whose links have a rate,
// lose packets, go down and come up again.
//
// Nothing of it has a name outside of the process: the namespaces are anonymous and held by descriptors of the test
// alone, so that the kernel takes them and their links away when the test and its children end, however they end.
// There are no leftovers to look for, and two tests at once do not meet.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace terrace::test {

// "" where this machine has all of these capabilities (tests/capability.sh), else a line for each that it lacks: for
// GTEST_SKIP().
std::string lacking(const std::vector<std::string>& capabilities);

// The whole test program in a network (and mount) namespace of its own, with loopback up, where that is allowed: a
// line `const auto* const kOwn = own_network();` in the test's file registers it, before anything has threads.
testing::Environment* own_network();
// Whether it is so; false: the machine lacks "netns", and the program stays where it was.
bool in_own_network();

// Lines of sh, with the administrator's programs in the path; throws what they say where one of them fails. network: as
// for spawn().
std::string run_shell_lines(const std::string& lines, int network = -1);

// Another machine: a namespace with one link to ours. Needs in_own_network(). Throws (the test fails) where the kernel
// refuses something. IPv4 and IPv6; cubic congestion control at both ends; the addresses stay when the link goes down.
class Machine {
 public:
  // `number` tells machines of a test apart: 1 to 250.
  explicit Machine(unsigned number);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  int network() const { return network_; }  // for spawn(), Process and NodeProcess
  // Runs `work` on a thread inside: sockets that it makes are the machine's from then on, whoever uses them.
  void inside(const std::function<void()>& work) const;
  std::string ipv4() const;      // of the machine, as we reach it
  std::string ipv6() const;      // without brackets
  std::string our_ipv4() const;  // of our end of the link

  // Both ways, by tc tbf: 1000, 2500, 10000. Needs "tbf". 0: unlimited again. A delay stays.
  void set_rate(unsigned megabits);
  // One in so many packets that come in is dropped, both ways, by nft numgen: counted, so that a run of any length
  // loses some. Once. Needs "nft".
  void set_loss(unsigned one_in);
  std::uint64_t lost() const;  // packets so far
  // So much more one way, both ways, by netem. Needs "netem". 0: none again. A rate stays: what has waited its time
  // then waits for its turn.
  void set_delay(unsigned us);
  void set_link(bool is_up);

 private:
  std::string up(const std::string& device, unsigned host) const;
  void shape() const;
  void take_down();
  void ours(const std::string& lines) const;    // run_shell_lines() in our namespace
  void theirs(const std::string& lines) const;  // and in the machine's

  unsigned number_;
  int network_ = -1;
  unsigned megabits_ = 0, delay_us_ = 0;  // of the link; 0: none
  std::string link_;                      // our end's name
};

// Processes of which this one is the parent, zombies among them; of a test that cleaned up: none.
std::vector<std::string> children();

}  // namespace terrace::test
