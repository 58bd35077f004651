// terrace-soak: generation after generation by real programs, each with a fault that a seed draws, each compared with
// the same generation of a coordinator alone.
//
//   terrace-soak --runs N [--seed S] [--only I]    exit 0: every run gave its tokens and nothing is left; --only: run I
//
// A fault may be drawn for a frame that its run does not come to. Where it came in less than a third of the runs, they
// show too little, and that is a failure too; of a single run it is not.
//
// A run is drawn from the seed and its number alone, so that `--seed S --only I` is that run again (what earlier runs
// left in the nodes aside).
#include <fmt/core.h>
#include <signal.h>

#include <array>
#include <charconv>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/e2e/support/network.h"
#include "tests/e2e/support/node_process.h"
#include "tests/e2e/support/process.h"
#include "tests/e2e/support/relay.h"
#include "tests/test_data.h"

namespace terrace::test {
namespace {

constexpr std::size_t kNodes = 2;
constexpr std::array<const char*, 4> kPrompts = {"the cat sat", "once upon a time there was", "hello",
                                                 "a b c d e f g h i j"};
constexpr int kTokens = 16;
// What a node may have grown by at the end: buffers that it keeps, not what runs left behind.
constexpr std::uint64_t kMostGrowth = std::uint64_t{64} << 20;

struct SoakOptions {
  std::uint64_t runs = 50;
  std::uint64_t seed = 1;
  std::optional<std::uint64_t> only;
};

enum class SoakFault : std::uint8_t { kNone, kKill, kStop, kStopBriefly, kCut, kMute, kCorrupt, kTruncate, kVersion };
constexpr std::size_t kSoakFaults = 9;
const char* name(SoakFault fault) {
  constexpr const char* kNames[kSoakFaults] = {"none", "kill",    "stop",     "stop briefly", "cut",
                                               "mute", "corrupt", "truncate", "version"};
  return kNames[static_cast<std::size_t>(fault)];
}

// All that a run is made of.
struct Draw {
  std::size_t prompt = 0;
  std::uint32_t batch = 0;
  SoakFault fault = SoakFault::kNone;
  std::size_t node = 0;
  Relay::Way way = Relay::Way::kToCoordinator;
  unsigned frame = 0;  // of batches or replies, from the first, which is the canary's

  Draw(std::uint64_t seed, std::uint64_t run) {
    std::seed_seq words{seed, run};
    std::mt19937_64 random(words);
    prompt = random() % kPrompts.size();
    batch = static_cast<std::uint32_t>(1 + random() % 8);
    fault = static_cast<SoakFault>(random() % kSoakFaults);
    node = random() % kNodes;
    way = random() % 2 == 0 ? Relay::Way::kToNode : Relay::Way::kToCoordinator;
    frame = static_cast<unsigned>(random() % 30);
  }
  std::string describe() const {
    return fmt::format("prompt {}, batch {}, {} of node {} at {} {}", prompt, batch, name(fault), node,
                       way == Relay::Way::kToNode ? "batch" : "reply", frame);
  }
};

class Soak {
 public:
  Soak() {
    write_file(secret_, std::string(64, '5') + "\n");
    std::filesystem::permissions(secret_, std::filesystem::perms::owner_read);
    for (std::size_t i = 0; i < kNodes; ++i)
      nodes_.push_back(
          std::make_unique<NodeProcess>(std::vector<std::string>{"--threads", "1", "--secret-file", secret_.string()}));
    for (const auto& node : nodes_) memory_.push_back(node->process().memory("RssAnon"));
  }

  // "" or what was wrong.
  std::string run(const Draw& draw) {
    std::vector<std::unique_ptr<Relay>> relays;
    std::vector<std::string> more = {"--secret-file", secret_.string()};
    for (const auto& node : nodes_) {
      relays.push_back(std::make_unique<Relay>(node->address(), node->data_port()));
      more.insert(more.end(), {"--node", relays.back()->address()});
    }
    const Outcome expected = reference(draw);
    Relay& relay = *relays[draw.node];
    const auto type = draw.way == Relay::Way::kToNode ? wire::FrameType::kBatch : wire::FrameType::kReply;
    relay.hold_at({draw.way, type, {}, draw.frame});
    if (draw.fault == SoakFault::kNone) relay.drop_point();

    Process coordinator(command(draw, more));
    auto struck = std::async(std::launch::async, [&] {
      const bool held = relay.wait_held();
      if (held) strike(draw, relay);
      return held;
    });
    const Outcome outcome = coordinator.wait();
    relay.drop_point();
    relay.set_mute(false);
    n_struck_ += struck.get();
    restore();
    return difference(expected, outcome);
  }

  // Runs whose fault came: in the others it was to come at a frame behind the last.
  std::uint64_t n_struck() const { return n_struck_; }

  // "" or what is left of all runs.
  std::string end() {
    std::string left;
    for (std::size_t i = 0; i < kNodes; ++i) {
      const std::uint64_t now = nodes_[i]->process().memory("RssAnon");
      if (now > memory_[i] + kMostGrowth) left += fmt::format("node {} grew from {} to {} bytes\n", i, memory_[i], now);
      const nlohmann::json status = status_of(*nodes_[i]);
      if (!status.contains("sessions") || !status["sessions"].empty())
        left += fmt::format("node {} has sessions left: {}\n", i, status.dump());
      nodes_[i]->kill(SIGTERM);
      const Outcome outcome = nodes_[i]->process().wait();
      if (outcome.exit_code != 0) left += fmt::format("node {} ended with {}: {}\n", i, outcome.exit_code, outcome.err);
    }
    nodes_.clear();
    for (const std::string& child : children()) left += "a process is left: " + child + "\n";
    return left;
  }

 private:
  static std::vector<std::string> command(const Draw& draw, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"generate",
                                      "--quiet",
                                      "--json",
                                      "--threads",
                                      "1",
                                      "--model",
                                      (data_dir() / "tiny" / "tiny-q8_0.gguf").string(),
                                      "--prompt",
                                      kPrompts[draw.prompt],
                                      "--batch",
                                      std::to_string(draw.batch),
                                      "--temperature",
                                      "0",
                                      "--max-tokens",
                                      std::to_string(kTokens)};
    words.insert(words.end(), more.begin(), more.end());
    return terrace(words);
  }

  nlohmann::json status_of(const NodeProcess& node) const {
    const Outcome outcome =
        run_program(terrace({"status", "--node", node.address(), "--json", "--secret-file", secret_.string()}));
    return outcome.exit_code == 0 ? nlohmann::json::parse(outcome.out) : nlohmann::json::object();
  }

  const Outcome& reference(const Draw& draw) {
    auto& known = references_[draw.prompt];
    if (!known) known = run_program(command(draw, {}));
    return *known;
  }

  void strike(const Draw& draw, Relay& relay) {
    Process& node = nodes_[draw.node]->process();
    switch (draw.fault) {
      case SoakFault::kNone:
        break;
      case SoakFault::kKill:
        node.kill(SIGKILL);
        break;
      case SoakFault::kStop:
        node.kill(SIGSTOP);
        break;
      case SoakFault::kStopBriefly:
        node.kill(SIGSTOP);
        relay.go(Relay::Deed::kPass);
        for (int i = 0; i < 20; ++i) pause_briefly();
        node.kill(SIGCONT);
        return;
      case SoakFault::kCut:
        relay.cut();
        break;
      case SoakFault::kMute:
        relay.set_mute(true);
        break;
      case SoakFault::kCorrupt:
        return relay.go(Relay::Deed::kCorrupt);
      case SoakFault::kTruncate:
        return relay.go(Relay::Deed::kTruncate);
      case SoakFault::kVersion:
        return relay.go(Relay::Deed::kVersion);
    }
    relay.go(Relay::Deed::kPass);
  }

  void restore() {
    for (const auto& node : nodes_) {
      node->kill(SIGCONT);
      if (!node->process().running()) node->restart();
    }
  }

  static std::string difference(const Outcome& expected, const Outcome& outcome) {
    if (!outcome.ended) return "it hangs";
    if (outcome.exit_code != 0)
      return fmt::format("exit {}, signal {}: {}", outcome.exit_code, outcome.signal, outcome.err);
    const auto right = nlohmann::json::parse(expected.out), made = nlohmann::json::parse(outcome.out);
    for (const char* key : {"tokens", "logits_xxh3", "text"})
      if (right.at(key) != made.at(key))
        return fmt::format("{}: {}\nexpected {}", key, made.at(key).dump(), right.at(key).dump());
    return "";
  }

  std::uint64_t n_struck_ = 0;
  const TempDir dir_;
  const std::filesystem::path secret_ = dir_ / "secret";
  std::vector<std::unique_ptr<NodeProcess>> nodes_;
  std::vector<std::uint64_t> memory_;  // of each at the beginning; one that was started again has less
  std::array<std::optional<Outcome>, kPrompts.size()> references_;
};

std::uint64_t number(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) throw std::runtime_error("not a number: " + text);
  return value;
}

SoakOptions parse(const std::vector<std::string>& words) {
  SoakOptions options;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    const std::string value = i + 1 < words.size() ? words[i + 1] : "";
    if (words[i] == "--runs")
      options.runs = number(value);
    else if (words[i] == "--seed")
      options.seed = number(value);
    else if (words[i] == "--only")
      options.only = number(value);
    else
      throw std::runtime_error("terrace-soak --runs N [--seed S] [--only I], not " + words[i]);
  }
  return options;
}

int soak(const SoakOptions& options) {
  Soak all;
  std::uint64_t failed = 0, done = 0;
  const std::uint64_t first = options.only.value_or(0), end = options.only ? first + 1 : options.runs;
  for (std::uint64_t run = first; run < end; ++run, ++done) {
    const Draw draw(options.seed, run);
    const std::string wrong = all.run(draw);
    if (wrong.empty()) continue;
    ++failed;
    fmt::print("run {} (terrace-soak --seed {} --only {}): {}\n{}\n", run, options.seed, run, draw.describe(), wrong);
  }
  const std::string left = all.end();
  const bool too_few = !options.only && (done == 0 || 3 * all.n_struck() < done);
  fmt::print("{}seed {}: {} runs, {} with a fault, {} failed{}\n", left, options.seed, done, all.n_struck(), failed,
             too_few ? "; they show too little: a third is to have one" : "");
  return failed == 0 && left.empty() && !too_few ? 0 : 1;
}

}  // namespace
}  // namespace terrace::test

int main(int argc, char** argv) {
  try {
    return terrace::test::soak(terrace::test::parse({argv + 1, argv + argc}));
  } catch (const std::exception& error) {
    fmt::print(stderr, "terrace-soak: {}\n", error.what());
    return 2;
  }
}
