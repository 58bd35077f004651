// Which keys and tables of terrace.toml belong to which program. terrace and terrace-node read one file and one
// environment, neither includes the other, and each has to tell the other's options from misspelt ones of its own.
// tests/e2e/cli_config_test.cpp compares these lists with what the programs say in --help.
#pragma once

#include <cstdint>

namespace terrace {

inline constexpr const char* kNodeProgram = "terrace-node";
inline constexpr const char* kNodeOptions[] = {"busy-poll", "ca",           "cert",       "cpu-list",  "data-port",
                                               "gpu",       "gpu-optional", "interface",  "isa",       "key",
                                               "link",      "listen",       "log-json",   "log-level", "metrics",
                                               "model",     "model-dir",    "plain-data", "ram",       "secret-file",
                                               "threads",   "trusted-net",  "ucx-ports",  "ucx-rdma",  "vram"};

// Subcommands of terrace, and the options of all of them together.
inline constexpr const char* kTerraceCommands[] = {"generate", "chat",     "serve",      "score",    "bench",
                                                   "plan",     "tokenize", "detokenize", "template", "inspect",
                                                   "status",   "secret",   "selftest"};
inline constexpr const char* kTerraceOptions[] = {"activations",
                                                  "alias",
                                                  "api-key-file",
                                                  "audit",
                                                  "batch",
                                                  "body-timeout",
                                                  "busy-poll",
                                                  "ca",
                                                  "cache-ram",
                                                  "cert",
                                                  "chunk",
                                                  "cors-origin",
                                                  "cpu-list",
                                                  "ctx-size",
                                                  "depth",
                                                  "explain",
                                                  "frequency-penalty",
                                                  "gpu",
                                                  "gpu-optional",
                                                  "header-timeout",
                                                  "host",
                                                  "idle-timeout",
                                                  "ids",
                                                  "input",
                                                  "interface",
                                                  "isa",
                                                  "json",
                                                  "key",
                                                  "kv",
                                                  "legs-alone",
                                                  "limits",
                                                  "limits-buffer",
                                                  "link",
                                                  "load-timeout",
                                                  "log-json",
                                                  "log-level",
                                                  "manifest",
                                                  "max-body",
                                                  "max-connections",
                                                  "max-tokens",
                                                  "min-decode",
                                                  "min-p",
                                                  "model",
                                                  "n-gen",
                                                  "n-prompt",
                                                  "no-api-key",
                                                  "no-special",
                                                  "node",
                                                  "now",
                                                  "out",
                                                  "output",
                                                  "overlap",
                                                  "plain-data",
                                                  "plan",
                                                  "port",
                                                  "presence-penalty",
                                                  "probe",
                                                  "probe-memory",
                                                  "prompt",
                                                  "prompt-chunk",
                                                  "prompt-file",
                                                  "queue",
                                                  "quiet",
                                                  "ram",
                                                  "rate-limit",
                                                  "repeat-last-n",
                                                  "repeat-penalty",
                                                  "repeats",
                                                  "secret-file",
                                                  "seed",
                                                  "serving",
                                                  "share",
                                                  "slot-save-path",
                                                  "slots",
                                                  "sockets",
                                                  "stop",
                                                  "stop-timeout",
                                                  "stream",
                                                  "streams",
                                                  "sums",
                                                  "survive",
                                                  "system",
                                                  "temperature",
                                                  "template",
                                                  "text",
                                                  "threads",
                                                  "top-k",
                                                  "top-p",
                                                  "trace",
                                                  "trusted-net",
                                                  "ucx-ports",
                                                  "ucx-rdma",
                                                  "vram",
                                                  "write-timeout"};

// What --ram may say, of both programs. Between these a budget that does not suit the machine is warned of, not
// refused.
inline constexpr std::uint64_t kLeastRam = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kMostRam = std::uint64_t{1} << 50;
// The same of --vram: below this an executor works a row at a time, if at all.
inline constexpr std::uint64_t kLeastVram = std::uint64_t{4} << 20;

}  // namespace terrace
