// terrace-node as people start it: its one line, its refusals, its exit codes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "terrace/v1/node.grpc.pb.h"
#include "tests/test_data.h"

namespace terrace::node {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace v1 = ::terrace::v1;

constexpr std::chrono::seconds kPatience{60};  // sanitizers make the self check slow

// A terrace-node of its own process; killed when the test ends.
class Program {
 public:
  explicit Program(std::vector<std::string> arguments) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    arguments.insert(arguments.begin(), (test::binary_dir() / "terrace-node").string());
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(fds[1], STDERR_FILENO);
      dup2(fds[1], STDOUT_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(fds[1]);
    out_ = fds[0];
  }
  ~Program() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(out_);
  }

  // HOST:PORT of the line "listening on HOST:PORT"; empty: it ended or said nothing in time.
  std::string await_listening() {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < end) {
      const std::size_t at = text_.find("\nlistening on ");
      const std::size_t stop = at == std::string::npos ? at : text_.find('\n', at + 1);
      if (stop != std::string::npos) return text_.substr(at + 14, stop - at - 14);
      if (!read_some()) return "";
    }
    return "";
  }
  void signal(int number) { ::kill(pid_, number); }
  // Reads to the end; the exit code, or -1 if it was killed.
  int await_exit() {
    while (read_some()) {
    }
    int state = 0;
    waitpid(pid_, &state, 0);
    pid_ = -1;
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
  }
  const std::string& text() const { return text_; }

 private:
  bool read_some() {
    pollfd fd{out_, POLLIN, 0};
    if (::poll(&fd, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())) <= 0) return false;
    char buffer[4096];
    const ssize_t n = ::read(out_, buffer, sizeof buffer);
    if (n > 0) text_.append(buffer, static_cast<std::size_t>(n));
    return n > 0;
  }
  pid_t pid_ = -1;
  int out_ = -1;
  std::string text_;
};

int run(const std::vector<std::string>& arguments, std::string* text) {
  Program program(arguments);
  const int code = program.await_exit();
  *text = program.text();
  return code;
}

std::unique_ptr<v1::Node::Stub> connect(const std::string& address) {
  return v1::Node::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
}

TEST(TerraceNode, PortZero_PrintsTheRealPortServesAndEndsOnSigterm) {
  Program program({"--listen", "127.0.0.1:0", "--ram", "64M", "--threads", "1"});
  const std::string address = program.await_listening();
  ASSERT_THAT(address, ::testing::MatchesRegex("127\\.0\\.0\\.1:[1-9][0-9]*")) << program.text();
  grpc::ClientContext context;
  v1::DescribeReply reply;
  ASSERT_TRUE(connect(address)->Describe(&context, {}, &reply).ok());
  EXPECT_EQ(reply.memory_budget(), std::uint64_t{64} << 20);
  EXPECT_EQ(reply.threads(), 1u);
  EXPECT_NE(reply.data_port(), 0u);
  program.signal(SIGTERM);
  EXPECT_EQ(program.await_exit(), 0) << program.text();
  EXPECT_THAT(program.text(), HasSubstr("memory budget 64M"));
  EXPECT_THAT(program.text(), HasSubstr("kernel for Q4_K"));
}

TEST(TerraceNode, DrainCall_EndsTheNodeThatHasNoSessions) {
  Program program({"--listen", "127.0.0.1:0", "--ram", "64M", "--threads", "1"});
  const std::string address = program.await_listening();
  ASSERT_FALSE(address.empty()) << program.text();
  grpc::ClientContext context;
  v1::DrainReply reply;
  (void)connect(address)->Drain(&context, {}, &reply);
  EXPECT_EQ(program.await_exit(), 0) << program.text();
}

TEST(TerraceNode, PortInUse_OneLineAndExitOne) {
  Program first({"--listen", "127.0.0.1:0", "--ram", "64M", "--threads", "1"});
  const std::string address = first.await_listening();
  ASSERT_FALSE(address.empty()) << first.text();
  std::string text;
  EXPECT_EQ(run({"--listen", address, "--data-port", "0", "--ram", "64M", "--threads", "1"}, &text), 1);
  EXPECT_THAT(text, HasSubstr("terrace-node: " + address));
}

TEST(TerraceNode, BeyondLoopback_RefusedBeforeAnythingListens) {
  for (const char* address : {"0.0.0.0:9000", "[::]:9000", "192.0.2.7:9000"}) {
    std::string text;
    EXPECT_EQ(run({"--listen", address}, &text), 1) << address;
    EXPECT_THAT(text, HasSubstr("is not loopback")) << address;
    EXPECT_THAT(text, Not(HasSubstr("listening"))) << address;
  }
}

TEST(TerraceNode, WrongUse_ExitTwoAndNamesIt) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> cases = {
      {{"--lisen", "127.0.0.1:0"}, "--listen"},
      {{"--listen", "9000"}, "HOST:PORT"},
      {{"--listen", "127.0.0.1:99999"}, "HOST:PORT"},
      {{"--threads", "0"}, "threads"},
      {{"--cpu-list", "3-0"}, "--cpu-list: \"3-0\": ends before it begins"},
      {{"--cpu-list", "65000"}, "--cpu-list: there is no CPU 65000; this machine has "},
      {{"--ram", "-1"}, "ram"},
      {{"--ram", "0"}, "--ram: '0' is not a size from 1M to 1024T"},
      {{"--ram", "4K"}, "--ram: '4K' is not a size from 1M to 1024T"},
      {{"--ram", "9223372036854775808"}, "--ram: '9223372036854775808' is not a size from 1M to 1024T"},
      {{"--isa", "sse2"}, "sse2"},
      {{"--listen", "127.0.0.1:65535"}, "--data-port"},
  };
  for (const auto& [arguments, says] : cases) {
    std::string text;
    EXPECT_EQ(run(arguments, &text), 2) << arguments[1];
    EXPECT_THAT(text, HasSubstr(says));
  }
}

TEST(TerraceNode, BudgetThatDoesNotSuitTheMachine_IsServedWithAWarning) {
  const std::pair<const char*, const char*> cases[] = {
      {"900T", "warning a memory budget of 900T is more than the "},
      {"1M", "warning a memory budget of 1M is small: "},
      {"256M", ""},
  };
  for (const auto& [ram, says] : cases) {
    Program program({"--listen", "127.0.0.1:0", "--ram", ram, "--threads", "1"});
    ASSERT_FALSE(program.await_listening().empty()) << program.text();
    EXPECT_THAT(program.text(), HasSubstr(says)) << ram;
    EXPECT_EQ(program.text().find("warn") == std::string::npos, *says == '\0') << program.text();
    program.signal(SIGTERM);
    EXPECT_EQ(program.await_exit(), 0) << program.text();
  }
}

TEST(TerraceNode, DataPortInUse_OneLineAndExitOne) {
  Program first({"--listen", "127.0.0.1:0", "--ram", "64M", "--threads", "1"});
  const std::string address = first.await_listening();
  ASSERT_FALSE(address.empty()) << first.text();
  const std::string port = address.substr(address.rfind(':') + 1);  // taken by its control port
  std::string text;
  EXPECT_EQ(run({"--listen", "127.0.0.1:0", "--data-port", port, "--ram", "64M", "--threads", "1"}, &text), 1);
  EXPECT_THAT(text, HasSubstr("terrace-node: 127.0.0.1:" + port + ": cannot listen"));
}

TEST(TerraceNode, ModelThatIsNotThere_ExitOneAndNamesIt) {
  std::string text;
  EXPECT_EQ(run({"--listen", "127.0.0.1:0", "--model", "/nonexistent/model.gguf", "--threads", "1"}, &text), 1);
  EXPECT_THAT(text, HasSubstr("/nonexistent/model.gguf"));
}

TEST(TerraceNode, HelpAndPrintConfig_ShowEveryFlag) {
  std::string help, config;
  EXPECT_EQ(run({"--help"}, &help), 0);
  EXPECT_EQ(run({"--print-config"}, &config), 0);
  for (const char* flag :
       {"listen", "data-port", "model", "ram", "threads", "cpu-list", "isa", "log-level", "log-json"}) {
    EXPECT_THAT(help, HasSubstr(std::string("--") + flag));
    EXPECT_THAT(config, HasSubstr(flag));
  }
}

}  // namespace
}  // namespace terrace::node
