// What every transport owes its users of the memory that send() borrows: after close() nothing reads it. Layers above
// free it then, or have it on their stack.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <vector>

#include "common/base/check.h"
#include "tests/contract/transport_harness.h"
#include "tests/contract/transports.h"

namespace terrace::transport {
namespace {

using namespace test;

constexpr std::size_t kMebi = std::size_t{1} << 20;

class LentMemory : public testing::TestWithParam<TransportCase> {};
INSTANTIATE_TEST_SUITE_P(All, LentMemory, testing::ValuesIn(kTransports),
                         [](const auto& test) { return std::string(test.param.name); });

// Bytes in pages that a test can take away: whoever reads them then ends the program.
class Pages {
 public:
  explicit Pages(std::span<const std::byte> bytes)
      : size_(bytes.size()),
        memory_(::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    TERRACE_CHECK(memory_ != MAP_FAILED, "a test has memory");
    std::memcpy(memory_, bytes.data(), size_);
  }
  ~Pages() { ::munmap(memory_, size_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(memory_), size_}; }
  void take_away() { TERRACE_CHECK(::mprotect(memory_, size_, PROT_NONE) == 0, "pages of a test's own"); }

 private:
  const std::size_t size_;
  void* const memory_;
};

struct Sizes {
  std::size_t frame;
  int frames;
};

// The other end has looked a few times and stands still: some frames have begun to be fetched, and fill what lies
// between both, others wait.
TEST_P(LentMemory, ClosedWithOpenSends_IsReadNoMore) {
  const Options narrow{.socket_buffer = 65536};
  for (const Sizes& sizes : {Sizes{4096, 40}, Sizes{98304, 40}, Sizes{kMebi, 40}, Sizes{16 * kMebi, 8}}) {
    Link link = connect_over(GetParam(), narrow, narrow);
    link.server.hold = true;
    const auto bytes = TestFrame(1, sizes.frame).contiguous();
    std::vector<std::unique_ptr<Pages>> lent;
    for (int i = 0; i < sizes.frames; ++i) {
      lent.push_back(std::make_unique<Pages>(bytes));
      const Part part = lent.back()->bytes();
      ASSERT_TRUE(link.client->send({&part, 1}).ok());
    }
    for (int i = 0; i < 3; ++i) {
      (void)link.client.poll();
      (void)link.server.poll();
    }
    for (int i = 0; i < 100; ++i) (void)link.client.poll();
    (void)link.server.poll();
    link.client->close();
    for (const auto& pages : lent) pages->take_away();
    pump_briefly({&link.client, &link.server});
    ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.client.closed; }));
    EXPECT_EQ(link.client.sent.size(), lent.size());
    link.client.connection.reset();
    ASSERT_TRUE(pump({&link.server}, [&] { return link.server.closed; })) << "of " << sizes.frame << " bytes";
    for (const auto& frame : link.server.frames) EXPECT_TRUE(frame == bytes) << "of " << sizes.frame << " bytes";
    link.server.release_all();
  }
}

}  // namespace
}  // namespace terrace::transport
