// The flags of terrace-node: declared beside the struct they fill.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "common/base/log.h"
#include "common/base/options.h"
#include "common/base/program_options.h"
#include "common/base/units.h"
#include "common/security/options.h"
#include "kernels/card/options.h"
#include "kernels/cpu/isa.h"

namespace terrace::node {

struct NodeOptions {
  std::string listen = "127.0.0.1:9000";
  std::optional<std::uint16_t> data_port;  // empty: the control port + 1
  std::string metrics;                     // HOST:PORT; empty: none are served
  std::uint32_t busy_poll = 0;             // us, of data connections
  security::SecurityOptions security;      // none: loopback alone
  std::filesystem::path model;             // empty: no copy of its own
  std::filesystem::path model_dir;         // where model files may be; empty: where `model` says
  std::optional<Bytes> ram;                // empty: kDefaultRamShare of what is available
  kernels::CardRequest card;
  std::optional<std::uint32_t> threads;  // these two: CpuRequest
  std::optional<std::string> cpu_list;
  std::optional<kernels::Isa> isa;
  LogOptions log;
};

// Of the memory that the machine has available at start; the rest is for the page cache, buffers and others.
inline constexpr double kDefaultRamShare = 0.75;

// Below this a session's receive windows and scratch leave little or nothing for experts.
inline constexpr std::uint64_t kSmallRam = std::uint64_t{64} << 20;

OptionTable make_option_table(NodeOptions* options);

}  // namespace terrace::node
