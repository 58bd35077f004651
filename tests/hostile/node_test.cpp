// Bug class of a file that is not what it was when it was opened.
#include <fcntl.h>
#include <sys/stat.h>

#include "tests/e2e/support/node_process.h"
#include "tests/hostile/support/bug_class.h"

namespace terrace::test {
namespace {

class GgufBugClass : public BugClassFiles {};

// As a careless copy does: the same inode and size, and the times put back.
void overwrite_in_place(const std::filesystem::path& file, const std::string& bytes) {
  struct stat before {};
  ASSERT_EQ(::stat(file.c_str(), &before), 0);
  ASSERT_EQ(static_cast<std::size_t>(before.st_size), bytes.size());
  const int fd = ::open(file.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_EQ(::pwrite(fd, bytes.data(), bytes.size(), 0), static_cast<::ssize_t>(bytes.size()));
  const struct timespec times[] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(::futimens(fd, times), 0);
  ::close(fd);
}

TEST_F(GgufBugClass, C26_FileChangedUnderARunningNode_OtherBytesAreNeverServed) {
  const std::filesystem::path ours = write(RawGguf::base(), "ours.gguf"),
                              theirs = write(RawGguf::base(), "theirs.gguf");
  NodeProcess node({"--model", theirs.string()});
  RawGguf changed = RawGguf::base();
  std::string& stack = changed.tensor("blk.0.ffn_up_exps.weight").data;
  for (std::size_t i = 0; i < stack.size(); i += 18) stack[i + 5] = static_cast<char>(~stack[i + 5]);
  overwrite_in_place(theirs, changed.bytes());

  app::ModelOptions options = gate_options(ours);
  options.nodes = {node.address()};
  options.share = node.address() + "=0-3";
  const GateRun with_node = gate_run(options, {1, 2, 3, 200}, 4);
  EXPECT_EQ(difference(run(ours), with_node), std::nullopt);
  // Every slab of the changed stack was asked for anew.
  EXPECT_EQ(with_node.legs.back().pairs, with_node.expected_pairs);
  EXPECT_GT(with_node.legs.back().weight_bytes_sent, 0u);
  node.stop();
}

// And before it runs: the hashes kept of the old bytes do not count for the new ones.
TEST_F(GgufBugClass, C26_FileChangedSinceItsManifestWasKept_IsHashedAnew) {
  const std::filesystem::path path = write(RawGguf::base(), "theirs.gguf");
  NodeProcess({"--model", path.string()}).stop();
  RawGguf changed = RawGguf::base();
  changed.tensor("blk.0.ffn_up_exps.weight").data[5] ^= 1;
  overwrite_in_place(path, changed.bytes());
  NodeProcess node({"--model", path.string()});
  const std::filesystem::path same = write(changed, "ours.gguf");
  app::ModelOptions options = gate_options(same);
  options.nodes = {node.address()};
  options.share = node.address() + "=0-3";
  const GateRun with_node = gate_run(options, {1, 2, 3, 200}, 4);
  EXPECT_EQ(difference(run(same), with_node), std::nullopt);
  EXPECT_EQ(with_node.legs.back().weight_bytes_sent, 0u) << "the node's file is this model";
  node.stop();
}

}  // namespace
}  // namespace terrace::test
