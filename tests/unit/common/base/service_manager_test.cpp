#include "common/base/service_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string>

namespace terrace {
namespace {

// The manager's end: a datagram socket at `name` ('@': abstract).
class Manager {
 public:
  explicit Manager(const std::string& name) : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    if (name[0] == '@') address.sun_path[0] = '\0';
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&address), size), 0) << std::strerror(errno);
  }
  ~Manager() { ::close(fd_); }

  std::string next() const {
    char text[64] = {};
    const ssize_t got = ::recv(fd_, text, sizeof text, 0);
    return got < 0 ? "nothing" : std::string(text, static_cast<std::size_t>(got));
  }

 private:
  int fd_;
};

ServiceManager manager_at(const std::string& name) { return ServiceManager(Environment({{"NOTIFY_SOCKET", name}})); }

void expect_both_messages(const std::string& name) {
  const Manager manager(name);
  EXPECT_TRUE(manager_at(name).ready().ok());
  EXPECT_TRUE(manager_at(name).stopping().ok());
  EXPECT_EQ(manager.next(), "READY=1");
  EXPECT_EQ(manager.next(), "STOPPING=1");
  EXPECT_EQ(manager.next(), "nothing");
}

TEST(ServiceManager, NoSocketInTheEnvironment_NothingFails) {
  EXPECT_TRUE(ServiceManager(Environment()).ready().ok());
  EXPECT_TRUE(ServiceManager(Environment()).stopping().ok());
}

TEST(ServiceManager, SocketByPath_ToldBothStates) {
  const auto path = std::filesystem::temp_directory_path() / ("terrace-notify-" + std::to_string(::getpid()));
  expect_both_messages(path.string());
  std::filesystem::remove(path);
}

TEST(ServiceManager, AbstractSocket_ToldBothStates) {
  expect_both_messages("@terrace-notify-" + std::to_string(::getpid()));
}

TEST(ServiceManager, NobodyListens_ErrorNamesTheSocket) {
  const Status told = manager_at("/nonexistent/notify").ready();
  ASSERT_FALSE(told.ok());
  EXPECT_THAT(told.error().text(), testing::HasSubstr("/nonexistent/notify"));
}

TEST(ServiceManager, PathLongerThanASocketName_Refused) {
  EXPECT_FALSE(manager_at("/" + std::string(sizeof(sockaddr_un::sun_path), 'x')).ready().ok());
}

}  // namespace
}  // namespace terrace
