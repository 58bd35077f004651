// terrace-random-model: see random_model.h.
#include <cstdio>
#include <exception>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "common/base/console.h"
#include "tests/tools/random_model/random_model.h"

namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

struct Arguments {
  terrace::tools::RandomModel model;
  std::string type = "q4_k_m";
  std::string out;
};

// CLI11 reads 64-bit numbers by strtoull(), which takes -1 for the largest.
std::string no_sign(const std::string& text) {
  return text.starts_with('-') ? fmt::format("'{}' is not a whole number from 0", text) : "";
}

void add_options(CLI::App& app, Arguments& a) {
  auto& m = a.model;
  app.add_option("--arch", m.architecture, "Architecture")->capture_default_str();
  app.add_option("--layers", m.layers, "Blocks")->capture_default_str();
  app.add_option("--d-model", m.d_model, "Width of a row")->capture_default_str();
  app.add_option("--heads", m.heads, "Query heads")->capture_default_str();
  app.add_option("--kv-heads", m.kv_heads, "Key and value heads; divides --heads")->capture_default_str();
  app.add_option("--head-dim", m.head_dim, "Width of a head")->capture_default_str();
  app.add_option("--experts", m.experts, "Experts of a layer")->capture_default_str();
  app.add_option("--top-k", m.top_k, "Experts that a token uses in a layer")->capture_default_str();
  app.add_option("--ff", m.ff, "Width of an expert")->capture_default_str();
  app.add_option("--vocab", m.vocab, "Tokens, the 256 bytes among them")->capture_default_str();
  app.add_option("--context", m.context, "Longest sequence")->capture_default_str();
  app.add_option("--embedding-scale", m.embedding_scale,
                 "Tokens' embeddings are so many times as large; with 256 rows choose experts nearly evenly")
      ->capture_default_str();
  app.add_option("--type", a.type, "f32, f16, bf16, q8_0, q4_0 or q4_k_m")->capture_default_str();
  app.add_option("--seed", m.seed, "Same seed, same bytes")->check(no_sign)->capture_default_str();
  app.add_option("--out", a.out, "File to write")->required();
}

int fail(const terrace::Error& error) {
  terrace::print_err("terrace-random-model: {}\n", error.text());
  return error.code() == terrace::ErrorCode::kInvalidArgument ? kExitUsage : kExitFailure;
}

int run(int argc, char** argv) {
  CLI::App app("Writes a model file of random weights, for benchmarks and tests.", "terrace-random-model");
  Arguments arguments;
  add_options(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      terrace::print_out("{}", app.help());
      return terrace::stdout_is_written() ? 0 : kExitFailure;
    }
    return fail({terrace::ErrorCode::kInvalidArgument, fmt::format("{} (see --help)", error.what())});
  }
  const auto mix = terrace::tools::mix_from_name(arguments.type);
  if (!mix.ok()) return fail(mix.error());
  arguments.model.mix = *mix;
  const auto written = terrace::tools::write_random_model(arguments.model, arguments.out);
  if (!written.ok()) return fail(written.error());
  terrace::print_err("{}: {} tensors, {} bytes\n", arguments.out, written->n_tensors, written->bytes);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  terrace::prepare_standard_streams();
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {  // out of memory, or a library's own bug
    return fail({terrace::ErrorCode::kInternal, error.what()});
  }
}
