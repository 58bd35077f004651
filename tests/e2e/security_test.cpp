// Credentials through the real programs: who gets in, what the others are told, what is listened on, what is logged.
#include <gmock/gmock.h>
#include <linux/landlock.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/e2e/support/cli.h"
#include "tests/e2e/support/network.h"
#include "tests/e2e/support/node_process.h"
#include "tests/unit/common/security/test_authority.h"

namespace terrace::test {
namespace security_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int kFailure = 1, kUsage = 2;
const Arguments kStory = {"generate", "--quiet", "--json", "-p", "Once upon a time", "-n", "4"};

class Security : public ::testing::Test {
 protected:
  std::string secret(int byte) const { return secret_options(dir_, byte).secret_file.string(); }
  static Arguments with(Arguments all, const Arguments& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // A short text computed with the node; its logit hashes.
  static json hashes(const Arguments& more) { return run_terrace_json(with(kStory, more))["logits_xxh3"]; }
  static std::string error_of(const Arguments& arguments, int exit_code = kFailure) {
    const Outcome run = run_terrace(arguments, exit_code);
    EXPECT_EQ(run.out, "");
    EXPECT_EQ(std::ranges::count(run.err, '\n'), 1) << run.err;
    return run.err;
  }
  static Arguments flags_of(const security::SecurityOptions& files) {
    return {"--cert", files.certificate, "--key", files.key, "--ca", files.authority};
  }
  const TempDir dir_;
};

TEST_F(Security, SecretNew_MakesAFileThatBothProgramsTake_AndTheStoryIsTheSame) {
  const std::string file = dir_ / "made";
  const Outcome made = run_shell("umask 077; exec \"$@\" > " + file, {program("terrace"), "secret", "new"});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(made.err, "");
  EXPECT_THAT(read_file(file), ::testing::MatchesRegex("[0-9a-f]{64}\n"));
  const json alone = hashes({});
  for (const char* listen : {"127.0.0.2:0", "[::1]:0"}) {
    NodeProcess node({"--secret-file", file, "--listen", listen});
    EXPECT_THAT(node.process().err(), HasSubstr("coordinators need the same secret"));
    EXPECT_EQ(hashes({"--node", node.address(), "--secret-file", file}), alone) << listen;
    EXPECT_EQ(run_terrace_json({"status", "--json", "--node", node.address(), "--secret-file", file})["state"], "ok");
    run_terrace({"plan", "--quiet", "--node", node.address(), "--secret-file", file});
    node.stop();
  }
}

TEST_F(Security, SecretNew_IntoAFileThatOthersMayRead_SaysSo) {
  const Outcome made =
      run_shell("umask 022; exec \"$@\" > " + (dir_ / "open").string(), {program("terrace"), "secret", "new"});
  EXPECT_THAT(made.err, HasSubstr("chmod 600"));
  EXPECT_THAT(error_of({"secret", "old"}, kUsage), HasSubstr("terrace secret new"));
  EXPECT_THAT(error_of({"secret"}, kUsage), HasSubstr("ACTION"));
}

TEST_F(Security, NodeWithASecret_TakesNobodyElse) {
  NodeProcess node({"--secret-file", secret(1)});
  const Arguments status = {"status", "--node", node.address()};
  EXPECT_THAT(error_of(with(status, {"--secret-file", secret(2)})),
              AllOf(HasSubstr(node.address()), HasSubstr("secret, certificate or clock?")));
  EXPECT_THAT(error_of(status), AllOf(HasSubstr(node.address()), HasSubstr("--secret-file")));
  EXPECT_THAT(error_of(with(kStory, {"--node", node.address(), "--secret-file", secret(2)})),
              HasSubstr(node.address()));
  // A node's own certificate is none for a client.
  const TestAuthority authority(secret_of(1));
  const LeafTerms server_terms{.names = "DNS:node.terrace.internal,IP:127.0.0.1", .usage = "serverAuth"};
  const security::SecurityOptions server = authority.options(dir_, "server", server_terms);
  EXPECT_THAT(error_of(with(status, {"--cert", server.certificate, "--key", server.key, "--ca", server.authority})),
              HasSubstr("lacks clientAuth"));
  run_terrace(with(status, {"--secret-file", secret(1)}));
  node.stop();
}

TEST_F(Security, PlainNode_IsNotSpokenToWithASecret) {
  NodeProcess node;
  EXPECT_THAT(error_of({"status", "--node", node.address(), "--secret-file", secret(1)}),
              HasSubstr("it answers without TLS"));
  node.stop();
}

TEST_F(Security, SecretFileThatOthersMayRead_EndsBothProgramsByName) {
  const std::string file = secret(1);
  ASSERT_EQ(::chmod(file.c_str(), 0644), 0);
  const std::string says = file + ": others may read or write this file (mode 0644)";
  EXPECT_THAT(error_of({"status", "--node", "127.0.0.1:1", "--secret-file", file}), StartsWith("terrace: " + says));
  const Outcome node = run_program({program("terrace-node"), "--listen", "127.0.0.1:0", "--secret-file", file});
  EXPECT_EQ(node.exit_code, kFailure);
  EXPECT_THAT(node.err, AllOf(HasSubstr("terrace-node: " + says), Not(HasSubstr("listening"))));
  EXPECT_THAT(error_of({"status", "--node", "127.0.0.1:1", "--plain-data"}, kUsage), HasSubstr("--plain-data"));
}

TEST_F(Security, OptionsComeFromFileAndEnvironmentToo) {
  NodeProcess node({"--secret-file", secret(1)});
  write_file(dir_ / "terrace.toml", "secret-file = \"" + secret(1) + "\"\n[terrace-node]\nmodel-dir = \"/srv\"\n");
  const Arguments status = {program("terrace"), "status", "--node", node.address()};
  EXPECT_EQ(run_in(dir_.path(), {}, status).exit_code, 0);
  EXPECT_EQ(run_in("/", {"TERRACE_SECRET_FILE=" + secret(1)}, status).exit_code, 0);
  EXPECT_EQ(run_in("/", {"TERRACE_SECRET_FILE=" + secret(2)}, status).exit_code, kFailure);
  node.stop();
}

TEST_F(Security, MadeCertificates_AreTakenByName) {
  const std::string lacks = lacking({"tool:openssl"});
  if (!lacks.empty()) GTEST_SKIP() << lacks;
  const std::string script = (source_dir() / "deploy" / "make_certs.sh").string(), folder = dir_ / "certs";
  const auto make = [&](const Arguments& words) {
    const Outcome made = run_program(with({script, "--out", folder}, words));
    EXPECT_EQ(made.exit_code, 0) << made.err << made.out;
  };
  make({"node", "box1", "127.0.0.1"});
  const std::string authority = read_file(folder + "/ca.crt");
  make({"coordinator", "desk"});
  EXPECT_EQ(read_file(folder + "/ca.crt"), authority) << "one authority for all";
  const auto files = [&](const std::string& name) {
    return Arguments{"--cert",          folder + "/" + name + ".crt", "--key", folder + "/" + name + ".key", "--ca",
                     folder + "/ca.crt"};
  };
  NodeProcess node(files("box1"));
  EXPECT_EQ(hashes(with({"--node", node.address()}, files("desk"))), hashes({}));
  const std::string by_name = "localhost" + node.address().substr(node.address().rfind(':'));
  EXPECT_THAT(error_of(with({"status", "--node", by_name}, files("desk"))), HasSubstr("not for this name"));
  EXPECT_THAT(error_of(with({"status", "--node", node.address()}, files("box1"))), HasSubstr("lacks clientAuth"));
  for (const char* key : {"ca.key", "box1.key", "desk.key"}) {
    struct stat facts {};
    ASSERT_EQ(::stat((folder + "/" + key).c_str(), &facts), 0) << key;
    EXPECT_EQ(facts.st_mode & 0777, 0600u) << key;
  }
  node.stop();
}

// Nothing that a debug log says, and nothing that either program prints, is a secret or a key.
TEST_F(Security, DebugLogs_HoldNoSecretAndNoKey) {
  const std::string file = secret(0x5a);
  NodeProcess node({"--secret-file", file, "--log-level", "debug"});
  const Outcome run =
      run_terrace({"generate", "-p", "Once upon a time", "-n", "4", "--node", node.address(), "--secret-file", file});
  run_terrace({"status", "--node", node.address(), "--secret-file", secret(2)}, kFailure);
  run_terrace({"status", "--node", node.address(), "--secret-file", file});
  node.stop();
  for (const std::string& text : {node.process().err(), run.err, run.out}) {
    EXPECT_THAT(text, Not(HasSubstr("5a5a5a5a")));
    EXPECT_THAT(text, Not(HasSubstr("PRIVATE KEY")));
    EXPECT_THAT(text, Not(HasSubstr("BEGIN CERT")));
    // Ids and tokens of sessions are 16 hexadecimal digits and more; hashes of models are told by their own word.
    EXPECT_THAT(text, Not(::testing::ContainsRegex("session [0-9a-f]{16}")));
  }
}

TEST_F(Security, ModelOutsideTheModelDirectory_IsRefusedThroughLinksToo) {
  const std::filesystem::path models = dir_ / "models", tiny = data_dir() / "tiny" / "tiny-q8_0.gguf";
  std::filesystem::create_directory(models);
  std::filesystem::copy_file(tiny, models / "own.gguf");
  std::filesystem::create_symlink(tiny, models / "link.gguf");
  const auto run_node = [&](const std::string& model) {
    return run_program({program("terrace-node"), "--listen", "127.0.0.1:0", "--model-dir", models, "--model", model});
  };
  for (const std::string& model : {tiny.string(), std::string("link.gguf"), std::string("../models/../secret")}) {
    write_file(dir_ / "secret", "x");
    const Outcome run = run_node(model);
    EXPECT_EQ(run.exit_code, kFailure) << model;
    EXPECT_THAT(run.err, HasSubstr("is not below --model-dir")) << model;
  }
  EXPECT_THAT(run_node("nowhere.gguf").err, HasSubstr("nowhere.gguf"));
  NodeProcess node({"--model-dir", models.string(), "--model", "own.gguf"});
  node.stop();
}

// Each of its threads, for each has rights of its own.
TEST_F(Security, Node_HasNoCapabilitiesAndCanGainNoRights) {
  NodeProcess node;
  std::size_t threads = 0;
  const std::string tasks = "/proc/" + std::to_string(node.process().pid()) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    const std::string status = read_file(task.path() / "status");
    SCOPED_TRACE(status);
    EXPECT_THAT(status, HasSubstr("NoNewPrivs:\t1\n"));
    for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapAmb"})
      EXPECT_THAT(status, HasSubstr(std::string(set) + ":\t0000000000000000\n"));
    ++threads;
  }
  EXPECT_GT(threads, 2u);
  node.stop();
}

// What the kernel holds it to is told, in the log and by `status`.
TEST_F(Security, Node_TellsItsConfinement) {
  const long landlock = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  NodeProcess node;
  const json told = run_terrace_json({"status", "--json", "--node", node.address()})["confinement"];
  ASSERT_EQ(told.size(), 3u) << told;
  EXPECT_EQ(told[0], "no new privileges");
  EXPECT_THAT(told[1].get<std::string>(), StartsWith("no capabilities"));
  EXPECT_THAT(told[2].get<std::string>(),
              StartsWith(landlock > 0 ? "opens no file but its own" : "files not restricted: no Landlock here"));
  for (const char* part : {"confinement: no new privileges; ", told[2].get_ref<const std::string&>().c_str()})
    EXPECT_THAT(node.process().err(), HasSubstr(part));
  node.stop();
}

// Certificates that are replaced by links to files elsewhere are what a running node would open: without Landlock it
// takes them, and says "read again".
TEST_F(Security, Node_OpensNoFileBeyondItsOwn) {
  if (::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) <= 0)
    GTEST_SKIP() << "this kernel has no Landlock";
  const TempDir elsewhere;
  const TestAuthority authority;
  const auto own = authority.options(dir_, "node", {.usage = "serverAuth"});
  const auto other = authority.options(elsewhere, "node", {.usage = "serverAuth"});
  NodeProcess node(flags_of(own));
  for (const auto& [mine, theirs] : {std::pair(own.certificate, other.certificate), std::pair(own.key, other.key)}) {
    std::filesystem::remove(mine);
    std::filesystem::create_symlink(theirs, mine);
  }
  const Arguments client = flags_of(authority.options(dir_, "desk", {.usage = "clientAuth"}));
  run_terrace(with({"status", "--node", node.address()}, client));
  node.stop();
  EXPECT_THAT(node.process().err(), AllOf(HasSubstr("Permission denied; going on with the certificate read before"),
                                          Not(HasSubstr("certificate read again"))));
}

// ---- certificates out of their time ---------------------------------------------------------------------------------

TEST_F(Security, OwnCertificateOutOfItsTime_EndsBothProgramsAndSaysSo) {
  using std::chrono::hours;
  const TestAuthority authority;
  const struct {
    std::chrono::seconds begins, ends;
    const char* says;
  } cases[] = {{-hours(48), -hours(24), "certificate has expired"},
               {hours(24), hours(48), "certificate is not yet valid"}};
  for (const auto& c : cases) {
    const auto server = authority.options(dir_, "node", {.usage = "serverAuth", .begins = c.begins, .ends = c.ends});
    const auto client = authority.options(dir_, "desk", {.usage = "clientAuth", .begins = c.begins, .ends = c.ends});
    const Outcome node = run_program(with({program("terrace-node"), "--listen", "127.0.0.1:0"}, flags_of(server)));
    EXPECT_EQ(node.exit_code, kFailure);
    EXPECT_THAT(node.err, AllOf(StartsWith("terrace-node: " + server.certificate.string()), HasSubstr(c.says)));
    EXPECT_THAT(error_of(with({"status", "--node", "127.0.0.1:1"}, flags_of(client))),
                AllOf(StartsWith("terrace: " + client.certificate.string()), HasSubstr(c.says)));
  }
}

// It was valid when the node began. Nobody but time can end it, so that this test waits for some seconds.
TEST_F(Security, NodesCertificateThatEndsWhileItRuns_IsToldAsACertificateOrAClock) {
  const TestAuthority authority;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(6);
  NodeProcess node(flags_of(authority.options(dir_, "node", {.usage = "serverAuth", .ends = std::chrono::seconds(5)})));
  const Arguments status =
      with({"status", "--node", node.address()}, flags_of(authority.options(dir_, "desk", {.usage = "clientAuth"})));
  std::this_thread::sleep_until(end);
  EXPECT_THAT(error_of(status), AllOf(HasSubstr(node.address() + ": its certificate is not one that we trust"),
                                      HasSubstr("certificate or clock?")));
  node.stop();
}

// ---- beyond loopback: a network namespace of the test's own ---------------------------------------------------------

class SecurityBeyondLoopback : public Security {
 protected:
  void SetUp() override {
    const std::string lacks = lacking({"root", "netns"});
    if (!lacks.empty()) GTEST_SKIP() << lacks;
  }
  // Runs the shell lines where 10.77.0.1 and 10.77.0.2 are this machine's; $NODE and $TERRACE are the programs, and
  // `listening FILE` waits until a node whose stderr goes there listens.
  Outcome in_namespace(const std::string& lines) const {
    const std::string script = R"(set -e
ip link set lo up
ip addr add 10.77.0.1/24 dev lo
ip addr add 10.77.0.2/24 dev lo
listening() {
  for i in $(seq 1000); do grep -q '^listening on' "$1" && return 0; sleep 0.05; done
  cat "$1" >&2; return 1
}
cd )" + dir_.path().string() +
                               "\nNODE=" + program("terrace-node") + "\nTERRACE=" + program("terrace") + "\n" + lines;
    return run_program({"/usr/bin/env", "unshare", "-n", "/bin/sh", "-c", script});
  }
};

TEST_F(SecurityBeyondLoopback, WithoutCredentials_NeitherProgramGoesThere) {
  const Outcome run = in_namespace(R"(
$NODE --listen 10.77.0.1:9000 2>node && exit 3
grep 'is not loopback, and beyond loopback a node needs credentials' node
$NODE --listen 0.0.0.0:9000 2>node && exit 3
grep 'needs credentials: give --secret-file' node
$TERRACE status --node 10.77.0.1:9000 2>status && exit 3
grep 'links between machines need credentials' status
)");
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
}

TEST_F(SecurityBeyondLoopback, WithASecret_TheStoryIsTheSame) {
  const std::string file = secret(1);
  const Outcome run = in_namespace("$NODE --listen 10.77.0.1:9000 --secret-file " + file + R"( 2>node &
node=$!; listening node
$TERRACE generate --quiet --json -p 'Once upon a time' -n 4 --node 10.77.0.1:9000 --secret-file )" +
                                   file + "\nkill $node; wait $node");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(json::parse(run.out)["logits_xxh3"], hashes({}));
}

// What others bind though told one address: all of them, and ports of libraries besides.
TEST_F(SecurityBeyondLoopback, ListeningSockets_AreTheTwoThatWereTold) {
  const std::string file = secret(1);
  const Outcome run = in_namespace("$NODE --listen 10.77.0.1:9000 --secret-file " + file + R"( 2>node &
node=$!; listening node
ss -H -ltnu | awk '{print $1, $5}' | sort
kill $node; wait $node)");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, "tcp 10.77.0.1:9000\ntcp 10.77.0.1:9001\n");
}

// Connections with nodes are its own to make: it listens for HTTP, and for nothing else. With UCX: UcxLink.
TEST_F(SecurityBeyondLoopback, ListeningSocketsOfACoordinatorWithANode_AreTheServersOwnAlone) {
  const std::string file = secret(1), model = (data_dir() / "tiny" / "tiny-q8_0.gguf").string();
  const Outcome run = in_namespace("$NODE --listen 10.77.0.1:9000 --secret-file " + file + R"( 2>node &
node=$!; listening node
$TERRACE serve --port 8080 --threads 1 --link tcp --node 10.77.0.1:9000 --secret-file )" +
                                   file + " --model " + model + R"( 2>served &
served=$!
for i in $(seq 1000); do grep -q 'ready: ' served && break; sleep 0.05; done
grep -q 'ready: ' served || cat served >&2
ss -H -tn state established dst 10.77.0.1:9001 | grep -q . && echo connected
ss -H -ltnup | grep "pid=$served," | awk '{print $1, $5}' | sort
kill $served $node; wait $served $node)");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, "connected\ntcp 127.0.0.1:8080\n") << run.err;
}

TEST_F(SecurityBeyondLoopback, SecondNodeOnThePort_IsRefused) {
  const std::string file = secret(1);
  const Outcome run = in_namespace("$NODE --listen 10.77.0.1:9000 --secret-file " + file + R"( 2>node &
node=$!; listening node
$NODE --listen 10.77.0.1:9000 --data-port 9005 --secret-file )" +
                                   file + R"( 2>second && exit 3
grep 'is the port in use' second
$NODE --listen 0.0.0.0:9000 --data-port 9006 --secret-file )" +
                                   file + R"( 2>second && exit 3
grep 'is the port in use' second
kill $node; wait $node)");
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
}

}  // namespace security_test
}  // namespace terrace::test
