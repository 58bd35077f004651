// What the tests of a bug class do with the file that they made: open it, or run it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "common/gguf/file.h"
#include "common/manifest/experts.h"
#include "coordinator/app/engine.h"
#include "coordinator/arch/architectures.h"
#include "tests/e2e/support/gate_run.h"
#include "tests/hostile/support/raw_gguf.h"
#include "tests/unit/common/temp_dir.h"

namespace terrace::test {

class BugClassFiles : public ::testing::Test {
 protected:
  std::filesystem::path write(const RawGguf& raw, const std::string& name = "model.gguf") const {
    return write(raw.bytes(), name);
  }
  std::filesystem::path write(const std::string& bytes, const std::string& name = "model.gguf") const {
    write_file(dir_ / name, bytes);
    return dir_ / name;
  }

  // The error of opening it, which names the file and a byte offset. Other stages: the same of what they look at.
  Error open_error(const RawGguf& raw) const { return open_error(raw.bytes()); }
  Error open_error(const std::string& bytes) const { return error_of(gguf::File::open(write(bytes))); }

  // Opens it; the error of looking for its experts and of binding its tensors, which must both be one.
  Error model_error(const RawGguf& raw) const {
    const auto file = gguf::File::open(write(raw));
    if (!file.ok()) throw std::runtime_error(file.error().text());
    const Error trunk = error_of(arch::describe(*file, {}));
    error_of(app::Engine::open(gate_options(dir_ / "model.gguf"), Environment(std::map<std::string, std::string>())));
    return trunk;
  }
  Error experts_error(const RawGguf& raw) const {
    const auto file = gguf::File::open(write(raw));
    if (!file.ok()) throw std::runtime_error(file.error().text());
    return error_of(manifest::find_experts(*file));
  }
  Error tokenizer_error(const RawGguf& raw) const {
    const auto file = gguf::File::open(write(raw));
    if (!file.ok()) throw std::runtime_error(file.error().text());
    return error_of(app::open_tokenizer(*file, true));
  }

  // Logit hashes and tokens of a short greedy run through the whole engine.
  static GateRun run(const std::filesystem::path& path) { return gate_run(gate_options(path), {1, 2, 3, 200}, 4); }
  static void expect_as_base(const std::filesystem::path& path) {
    EXPECT_EQ(difference(run(data_dir() / "gguf" / "base.gguf"), run(path)), std::nullopt);
  }

  template <class T>
  static Error error_of(const Result<T>& result) {
    if (result.ok()) {
      ADD_FAILURE() << "accepted";
      return Error(ErrorCode::kInternal, "");
    }
    EXPECT_THAT(result.error().text(), ::testing::HasSubstr(".gguf: "));
    return result.error();
  }

  const TempDir dir_;
};

// The error has this code, and its sentence each of these parts.
inline void expect_says(const Error& error, ErrorCode code, const std::vector<std::string>& parts) {
  EXPECT_EQ(std::string(name(error.code())), name(code)) << error.text();
  for (const std::string& part : parts) EXPECT_THAT(error.text(), ::testing::HasSubstr(part));
}

}  // namespace terrace::test
