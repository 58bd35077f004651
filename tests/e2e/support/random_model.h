// Models of any size by terrace-random-model: no end-of-sequence token, so that generation ends only at its limit.
#pragma once

#include <filesystem>
#include <string>

#include "tests/e2e/support/process.h"
#include "tests/test_data.h"

namespace terrace::test {

struct RandomModel {
  std::uint32_t layers = 4;
  std::uint32_t d_model = 256;
  std::uint32_t experts = 16;
  std::uint32_t ff = 256;
  std::string type = "q8_0";
  std::uint64_t seed = 1;
  std::uint32_t context = 40960;
};

// Writes it to `file`; the test fails when it cannot. programs: the folder of terrace-random-model, where that is not
// the one it was built in.
inline void make_random_model(const RandomModel& model, const std::filesystem::path& file,
                              const std::filesystem::path& programs = binary_dir()) {
  const Outcome outcome = run_program({(programs / "terrace-random-model").string(),
                                       "--arch",
                                       "qwen3moe",
                                       "--heads",
                                       "4",
                                       "--kv-heads",
                                       "2",
                                       "--head-dim",
                                       "64",
                                       "--top-k",
                                       "4",
                                       "--vocab",
                                       "1000",
                                       "--context",
                                       std::to_string(model.context),
                                       "--layers",
                                       std::to_string(model.layers),
                                       "--d-model",
                                       std::to_string(model.d_model),
                                       "--experts",
                                       std::to_string(model.experts),
                                       "--ff",
                                       std::to_string(model.ff),
                                       "--type",
                                       model.type,
                                       "--seed",
                                       std::to_string(model.seed),
                                       "--out",
                                       file.string()});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

}  // namespace terrace::test
