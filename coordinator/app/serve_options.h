// The options of `terrace serve`.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "common/base/options.h"
#include "common/base/units.h"
#include "coordinator/app/model_options.h"
#include "coordinator/sampler/sampler.h"
#include "coordinator/serve/http/server.h"

namespace terrace::app {

struct ServeOptions {
  ModelOptions model;
  sampler::SamplingOptions sampling;  // where a request names nothing
  LogOptions log;

  std::string host = "127.0.0.1";
  std::uint16_t port = 8080;
  std::filesystem::path api_key_file;
  bool no_api_key = false;
  std::vector<std::string> cors_origins;
  std::string alias;  // empty: the file's name

  std::uint32_t slots = 4;
  std::uint32_t queue = 64;
  std::uint32_t prompt_chunk = 64;  // rows
  Bytes cache_ram{std::uint64_t{1} << 30};
  std::filesystem::path slot_save_path;

  std::uint32_t max_connections = 1024;
  Bytes max_body{std::uint64_t{16} << 20};
  double rate_limit = 0;  // requests a second
  std::chrono::nanoseconds header_timeout{std::chrono::seconds(10)};
  std::chrono::nanoseconds body_timeout{std::chrono::seconds(120)};
  std::chrono::nanoseconds idle_timeout{std::chrono::seconds(30)};
  std::chrono::nanoseconds write_timeout{std::chrono::seconds(30)};
  std::chrono::nanoseconds stop_timeout{std::chrono::seconds(30)};
};

OptionTable make_table(ServeOptions* options);

// What the options say together: model options and sampling, a folder for slots that is none, an address that others
// can reach without a key. kInvalidArgument.
Status check(const ServeOptions& options);

// Of ModelOptions::streams: what the scheduler runs in, and what it keeps for reuse.
std::uint32_t trunk_streams(const ServeOptions& options);

// Those of the HTTP server, with the key file read; who may read that beside its owner is noted on stderr.
Result<serve::http::ServerOptions> server_options(const ServeOptions& options);

}  // namespace terrace::app
