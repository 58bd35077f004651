#include "coordinator/app/serve_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <system_error>

#include "common/base/console.h"
#include "coordinator/app/sampling_options.h"
#include "coordinator/serve/http/host_name.h"

namespace terrace::app {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// Streams of the trunk beside one a slot, in which sequences of earlier requests wait to be gone on with. One costs a
// table of its blocks; the blocks count to --cache-ram.
constexpr std::uint32_t kRestingStreams = 64;

constexpr std::uint64_t kMostCache = std::uint64_t{1} << 50;  // bytes

constexpr long double kSecond = 1e9L;  // ns
constexpr long double kHour = 3600 * kSecond;

milliseconds to_ms(nanoseconds time) { return std::chrono::ceil<milliseconds>(time); }

void note_readers(const std::filesystem::path& file, bool quiet) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  using std::filesystem::perms;
  const bool others = (status.permissions() & (perms::group_read | perms::others_read)) != perms::none;
  if (!error && others && !quiet)
    print_err("terrace: {}: other users of this machine can read the API keys in it; `chmod 600` keeps them out\n",
              file.string());
}

}  // namespace

OptionTable make_table(ServeOptions* o) {
  OptionTable table("terrace serve",
                    "Answers HTTP as llama-server, OpenAI and Anthropic do, many requests at once (docs/http.md).");
  table.group("Server");
  table.add("host", &o->host, "address to listen on; beyond this machine (0.0.0.0, ::) API keys are asked for");
  table.add("port", &o->port, "port to listen on; 0: the system's choice").value_name("PORT");
  table.add(
      "api-key-file", &o->api_key_file,
      "one API key a line; each request but /health then needs one: Authorization: Bearer KEY, or X-Api-Key: KEY");
  table.add("no-api-key", &o->no_api_key, "listen beyond this machine although anyone there can use and stop it up");
  table
      .add("cors-origin", &o->cors_origins,
           "web pages of this origin may ask, and by its name, * for all; else none but our own")
      .value_name("ORIGIN");
  table.add("alias", &o->alias, "the model's name in answers").default_text("its file's name");
  table.add("stop-timeout", &o->stop_timeout, "at SIGTERM: requests may go on for so long, then end with an error")
      .range(0, kHour);
  table.group("Requests");
  table.add("slots", &o->slots, "requests that run at once, each with up to --ctx-size positions").range(1, 1024);
  table.add("queue", &o->queue, "requests that wait beside them; one more gets a 503").range(0, 1 << 20);
  table
      .add("prompt-chunk", &o->prompt_chunk,
           "prompt tokens computed between two tokens of those that are being answered: more is faster for the prompt "
           "and slower for the others")
      .range(1, 16384);
  table
      .add("cache-ram", &o->cache_ram,
           "memory for what was computed of ended requests, so that a conversation goes on at once")
      .range(0, static_cast<long double>(kMostCache));
  table.add("slot-save-path", &o->slot_save_path, "folder for saved slots; without it POST /slots/ID saves none")
      .value_name("DIR");
  table.group("Limits");
  table.add("max-connections", &o->max_connections, "one more gets a 503").range(1, 1 << 20);
  table.add("max-body", &o->max_body, "size of a request's body; a longer one gets a 413")
      .range(1024, static_cast<long double>(1ULL << 32));
  table
      .add("rate-limit", &o->rate_limit,
           "requests a second of one API key, or of one address without keys, up to 10 times as many at once; 0: no "
           "limit")
      .range(0, 1e6L);
  table.add("header-timeout", &o->header_timeout, "for a request's head to arrive").range(kSecond / 10, kHour);
  table.add("body-timeout", &o->body_timeout, "for its body to arrive").range(kSecond / 10, kHour);
  table.add("idle-timeout", &o->idle_timeout, "for the next request on a connection").range(kSecond / 10, kHour);
  table.add("write-timeout", &o->write_timeout, "for a client to take a part of what is sent to it")
      .range(kSecond / 10, kHour);
  add_log_options(table, &o->log);
  add_sampling_options(table, &o->sampling);  // each request says its own seed, or gets one
  add_model_options(table, &o->model);
  add_activations_option(table, &o->model);
  add_trace_option(table, &o->model);
  return table;
}

Status check(const ServeOptions& o) {
  TERRACE_RETURN_IF_ERROR(check(o.model));
  TERRACE_RETURN_IF_ERROR(sampler::validate(o.sampling));
  if (!serve::http::is_loopback(o.host) && o.api_key_file.empty() && !o.no_api_key)
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("--host {}: others than this machine could use the model without a key; give --api-key-file "
                    "FILE, or --no-api-key if that is what you want",
                    o.host));
  if (!o.api_key_file.empty() && o.no_api_key)
    return Error(ErrorCode::kInvalidArgument, "--api-key-file and --no-api-key contradict each other; give one");
  std::error_code error;
  if (!o.slot_save_path.empty() && !std::filesystem::is_directory(o.slot_save_path, error))
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("--slot-save-path {} is not a folder; make it first", o.slot_save_path.string()));
  return {};
}

std::uint32_t trunk_streams(const ServeOptions& o) { return o.slots + kRestingStreams; }

Result<serve::http::ServerOptions> server_options(const ServeOptions& o) {
  serve::http::ServerOptions options;
  options.host = o.host;
  options.port = o.port;
  options.cors_origins = o.cors_origins;
  if (!o.api_key_file.empty()) {
    TERRACE_ASSIGN_OR_RETURN(options.keys, serve::http::ApiKeys::from_file(o.api_key_file));
    note_readers(o.api_key_file, o.model.quiet);
  }
  options.max_connections = o.max_connections;
  options.max_body = o.max_body.value;
  options.max_bodies = std::max(options.max_bodies, 4 * o.max_body.value);
  options.requests_per_second = o.rate_limit;
  options.burst = std::max(1.0, 10 * o.rate_limit);
  options.header_timeout = to_ms(o.header_timeout);
  options.body_timeout = to_ms(o.body_timeout);
  options.idle_timeout = to_ms(o.idle_timeout);
  options.write_timeout = to_ms(o.write_timeout);
  return options;
}

}  // namespace terrace::app
