// Bytes on the wire a token, as `terrace bench` prints them, equal docs/wire.md 9: computed here from rows, pairs,
// packed widths, headers and padding alone, without common/wire.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "coordinator/app/bench_run.h"
#include "coordinator/legs/leg.h"
#include "tests/e2e/support/cli.h"
#include "tests/e2e/support/gate_parts.h"
#include "tests/e2e/support/node_process.h"
#include "tests/e2e/support/random_model.h"

namespace terrace::test {
namespace wire_bytes_test {

// ---- docs/wire.md 9 -------------------------------------------------------------------------------------------------

std::uint64_t pad(std::uint64_t n) { return (n + 15) / 16 * 16; }
std::uint64_t section(std::uint64_t n) { return 16 + pad(n); }

std::uint64_t row_bytes_of(ActivationClass activation, std::uint64_t d) {
  switch (activation) {
    case ActivationClass::kF32:
      return 4 * d;
    case ActivationClass::kA8x32:
      return d / 32 * 36;
    case ActivationClass::kA8x256:
      return d / 256 * 260;
  }
  return 0;
}

// The least bytes in which every value of the block is a signed integer.
std::uint64_t width_of(std::span<const std::int64_t> block) {
  std::uint64_t width = 0;
  for (const std::int64_t value : block) {
    std::uint64_t needed = 0;
    if (value != 0)
      for (needed = 1; needed < 8; ++needed) {
        const std::int64_t limit = std::int64_t{1} << (8 * needed - 1);
        if (value >= -limit && value < limit) break;
      }
    width = std::max(width, needed);
  }
  return width;
}

std::uint64_t packed_row(std::span<const std::int64_t> row) {
  std::uint64_t bytes = 0;
  for (std::size_t first = 0; first < row.size(); first += 64) {
    const auto block = row.subspan(first, std::min<std::size_t>(64, row.size() - first));
    bytes += 1 + block.size() * width_of(block);
  }
  return bytes;
}

// ---- what a node would be sent --------------------------------------------------------------------------------------

// Stands where a node stands, computes its share here, and counts what its frames would have.
class CountingLeg final : public legs::Leg {
 public:
  CountingLeg(const GateModel& model, const legs::OwnerTable& owners)
      : inner_(swapped(owners), model.slabs.lookup(), model.kernels, model.serial, model.ops) {}

  const std::string& name() const override { return inner_.name(); }
  legs::LegKind kind() const override { return legs::LegKind::kNode; }
  legs::LegState state() const override { return legs::LegState::kOk; }
  std::uint64_t experts() const override { return inner_.experts(); }
  legs::LegCounters counters() const override { return {}; }

  Result<legs::Ticket> submit(const legs::LegBatch& batch) override {
    auto ticket = inner_.submit(batch);
    open_[must(ticket)] = batch;
    return ticket;
  }
  Status collect(legs::Ticket ticket, kernels::SumsView sums, std::span<std::uint8_t> failed) override {
    batch_ = open_.at(ticket);
    open_.erase(ticket);
    rows_.clear();
    for (const kernels::Pair& pair : batch_.pairs) rows_.insert(pair.row);
    std::vector<std::int64_t> mine(batch_.n_rows * sums.d_model);
    TERRACE_RETURN_IF_ERROR(inner_.collect(ticket, {mine.data(), sums.d_model, sums.shift}, failed));
    for (std::size_t i = 0; i < mine.size(); ++i) sums.data[i] += mine[i];
    count(mine, sums.d_model);
    return {};
  }

  std::uint64_t sent = 0, received = 0, batches = 0;
  std::uint64_t widths_seen = 0;  // bit b: a block of width b was packed

 private:
  // The node's experts as the host's.
  static legs::OwnerTable swapped(const legs::OwnerTable& owners) {
    std::vector<std::uint16_t> legs;
    for (std::uint32_t layer = 0; layer < owners.n_layers(); ++layer)
      for (const std::uint16_t leg : owners.owners(layer)) legs.push_back(leg == 1 ? 0 : 1);
    return legs::OwnerTable(owners.epoch(), owners.leg_names(), owners.n_layers(), owners.n_experts(), std::move(legs));
  }

  void count(const std::vector<std::int64_t>& sums, std::uint64_t d) {
    const ActivationClass gate = batch_.gate_rows.activation, up = batch_.up_rows.activation;
    std::uint64_t ranges = 0;
    for (const legs::RowRange& range : batch_.ranges) {
      std::uint64_t packed = 0;
      for (const std::uint16_t row : rows_) {
        if (row < range.first || row >= range.first + range.count) continue;
        packed += packed_row(std::span(sums).subspan(row * d, d));
        widths_seen |= std::uint64_t{1} << width_of(std::span(sums).subspan(row * d, 64));
      }
      if (packed == 0) continue;
      ++ranges;
      received += 64 + section(16) + section(packed);
    }
    sent += 64 + section(32) + section(rows_.size() * row_bytes_of(gate, d)) + section(8 * batch_.pairs.size()) +
            section(8 * ranges);
    if (up != gate) sent += section(rows_.size() * row_bytes_of(up, d));
    ++batches;
  }

  legs::HostLeg inner_;
  std::map<legs::Ticket, legs::LegBatch> open_;
  legs::LegBatch batch_;          // that is counted
  std::set<std::uint16_t> rows_;  // that have a pair
};

struct Expected {
  std::uint64_t sent = 0, received = 0, batches = 0;
};

// What one run of the test would send, had the node's share been on a node.
Expected expected_bytes(const GateModel& model, const legs::OwnerTable& owners, const app::BenchTest& test,
                        std::uint32_t batch) {
  CountingLeg leg(model, owners);
  // What the rule makes of them over a node: the prompt's batches are cut, of 20 rows none is.
  const arch::Overlap overlap = test.n_prompt >= 2 * arch::kLeastPromptPart ? arch::Overlap::kOn : arch::Overlap::kOff;
  GateCoordinator coordinator(model, owners, model.slabs.lookup(), model.kernels, {&leg}, 1, false, overlap);
  arch::Trunk& trunk = coordinator.trunk();
  const std::vector<std::int32_t> tokens = app::bench_tokens(test, trunk.info().vocabulary);
  const arch::StreamId stream = must(trunk.open_stream());
  const auto feed = [&](std::size_t first, std::size_t end, std::size_t step) {
    for (; first < end; first += step) {
      std::vector<arch::StepRow> rows;
      for (std::size_t i = first; i < std::min(end, first + step); ++i)
        rows.push_back({stream, static_cast<std::uint32_t>(i), tokens[i], false});
      rows.back().want_logits = true;
      must(trunk.step(rows));
    }
  };
  feed(0, test.depth, batch);
  const Expected before = {leg.sent, leg.received, leg.batches};
  feed(test.depth, tokens.size(), test.n_gen == 0 ? batch : 1);
  trunk.close_stream(stream);
  return {leg.sent - before.sent, leg.received - before.received, leg.batches - before.batches};
}

struct Case {
  const char* name;
  const char* random_type;  // null: the demo model
  const char* host;
  const char* node;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// On a machine under load a node may be late: it is then asked for a sign of life, or some batches are not sent at all.
json bench_without_a_late_batch(const Arguments& arguments) {
  json rows;
  for (int attempt = 0; attempt < 20; ++attempt) {
    rows = run_terrace_json(arguments);
    const json& leg = rows.at(0).at("legs").at(1);
    if (leg.at("late") == 0 && leg.at("skipped") == 0) break;
  }
  return rows;
}

class WireBytes : public testing::TestWithParam<Case> {};

TEST_P(WireBytes, BenchPrintsWhatTheArithmeticSays) {
  const Case c = GetParam();
  const TempDir dir;
  std::filesystem::path file = demo_model();
  if (c.random_type != nullptr) {
    file = dir / "model.gguf";
    RandomModel random;
    random.experts = 32;
    random.type = c.random_type;
    make_random_model(random, file);
  }
  const GateModel model(file);
  NodeProcess node;
  const std::string spec = c.host + node.address() + c.node;
  const legs::OwnerTable owners = model.share({node.address()}, spec);
  constexpr std::uint32_t kBatch = 320, kRepeats = 2;  // a prompt of two batches, of two row ranges and of one

  const std::vector<app::BenchTest> tests = {{.depth = 0, .n_prompt = 400, .n_gen = 0},
                                             {.depth = 0, .n_prompt = 0, .n_gen = 24},
                                             {.depth = 7, .n_prompt = 20, .n_gen = 0},
                                             {.depth = 7, .n_prompt = 0, .n_gen = 3}};
  std::size_t done = 0;
  for (const app::BenchTest& test : tests) {
    const json rows = bench_without_a_late_batch({"bench",
                                                  "--quiet",
                                                  "--limits-buffer",
                                                  "4M",
                                                  "-r",
                                                  std::to_string(kRepeats),
                                                  "-m",
                                                  file.string(),
                                                  "--node",
                                                  node.address(),
                                                  "--audit",
                                                  "0",
                                                  "--share",
                                                  spec,
                                                  "--batch",
                                                  std::to_string(kBatch),
                                                  "-p",
                                                  std::to_string(test.n_prompt),
                                                  "-n",
                                                  std::to_string(test.n_gen),
                                                  "-d",
                                                  std::to_string(test.depth),
                                                  "-o",
                                                  "json"});
    ASSERT_EQ(rows.size(), 1u);
    const Expected expected = expected_bytes(model, owners, test, kBatch);
    SCOPED_TRACE(fmt::format("{} at depth {}", test.name(), test.depth));
    const json& leg = rows[0]["legs"][1];
    EXPECT_EQ(leg["batches"], kRepeats * expected.batches);
    EXPECT_EQ(leg["bytes_sent"], kRepeats * expected.sent);
    EXPECT_EQ(leg["bytes_received"], kRepeats * expected.received);
    EXPECT_EQ(rows[0]["wire_bytes_per_token"].get<double>(),
              static_cast<double>(expected.sent + expected.received) / test.tokens());
    // What a prompt may cost at the most, each way: 1.125 or 1.016 bytes a value out, up to 4 and a block's width back.
    // The 16 a pair go out alone: 8 are its entry in kPairs, the others more than pay for headers and padding there.
    // Back there is nothing by pair, and what a value may have beside its 4 bytes and 1/64 pays for headers.
    const bool quantised = c.random_type == nullptr || std::string_view(c.random_type) != "f16";
    if (test.n_prompt >= 100 && quantised) {
      const double width = model.experts.d_model;
      const double values = leg["rows"].get<double>() * width;
      EXPECT_LE(leg["bytes_sent"].get<double>(), values * 1.13 + 16 * leg["pairs"].get<double>());
      EXPECT_LE(leg["bytes_received"].get<double>(), values * 4.1);
      EXPECT_EQ(rows[0]["parts"], 2);
    }
    ++done;
  }
  EXPECT_EQ(done, tests.size());
  node.stop();
}

INSTANTIATE_TEST_SUITE_P(Models, WireBytes,
                         testing::Values(Case{"Demo_SomeExperts", nullptr, "host=0-19,", "=20-31"},
                                         Case{"Demo_EveryExpert", nullptr, "", "=0-31"},
                                         Case{"Q8_0", "q8_0", "host=0-7,", "=8-31"},
                                         Case{"F16", "f16", "host=0-7,", "=8-31"}),
                         [](const auto& test) { return test.param.name; });

}  // namespace wire_bytes_test
}  // namespace terrace::test
