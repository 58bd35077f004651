#include "tier_node/session/slab_receiver.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "common/security/sha_instructions.h"

namespace terrace::node {
namespace {

// A link of 10 Gbit/s brings 1.25 GB/s: two threads where one hashes 1.2 GB/s, four where it hashes a third of that.
TEST(SlabReceiver, HashingThreads_FollowWhatOneHashesAndTheCpusThereAre) {
  constexpr bool kWithSha = true, kWithout = false;
  struct Case {
    std::size_t cpus;
    unsigned with_sha, without;
  };
  for (const Case& c : {Case{0, 1, 1}, Case{1, 1, 1}, Case{2, 1, 1}, Case{3, 1, 1}, Case{4, 2, 2}, Case{7, 2, 3},
                        Case{8, 2, 4}, Case{12, 3, 4}, Case{16, 4, 4}, Case{128, 4, 4}}) {
    EXPECT_EQ(SlabReceiver::threads_for(c.cpus, kWithSha), c.with_sha) << c.cpus;
    EXPECT_EQ(SlabReceiver::threads_for(c.cpus, kWithout), c.without) << c.cpus;
  }
}

#if defined(__x86_64__)
TEST(SlabReceiver, ShaInstructions_AsTheSystemSays) {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line;
  while (std::getline(cpuinfo, line) && !line.starts_with("flags")) {
  }
  EXPECT_EQ(security::has_sha_instructions(), (line + ' ').find(" sha_ni ") != std::string::npos);
}
#endif

}  // namespace
}  // namespace terrace::node
