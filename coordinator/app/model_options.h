// The options of every command that runs a model (README.md, using it).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "common/base/options.h"
#include "common/base/result.h"
#include "common/base/units.h"
#include "common/security/credentials.h"
#include "common/transport/link/link.h"
#include "coordinator/arch/trunk_options.h"
#include "coordinator/legs/auditor.h"
#include "coordinator/legs/node_session.h"
#include "kernels/card/options.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/ops/ops.h"
#include "kernels/executor/executor.h"

namespace terrace::app {

struct ModelOptions {
  std::filesystem::path model;  // empty: the demo model
  std::vector<std::string> nodes;
  std::string share;           // empty: even by id order
  std::filesystem::path plan;  // empty: none; else it says nodes and shares
  security::SecurityOptions security;
  transport::LinkOptions link;
  std::uint32_t sockets = 1;  // connections to each node for prompts, and as many for weights
  // A node that takes its share and tells nothing of it for so long is given up: ControlTimeouts::progress.
  std::chrono::nanoseconds load_timeout{std::chrono::seconds(60)};
  std::optional<Bytes> ram;  // empty: what is available
  kernels::CardRequest card;
  std::optional<std::uint32_t> threads;  // these two: CpuRequest
  std::optional<std::string> cpu_list;
  std::optional<kernels::Isa> isa;
  std::uint32_t context = 0;  // 0: the model's
  kernels::KvType kv = kernels::KvType::kF16;
  kernels::Activations activations = kernels::Activations::kQuantised;
  std::optional<std::uint32_t> batch;  // rows of a step
  std::filesystem::path trace;         // of steps by leg; empty: none
  double audit = legs::kDefaultAudit;  // of what nodes compute: AuditOptions::fraction; 0: none
  std::uint32_t streams = 1;           // sequences that may be open at once
  arch::Overlap overlap = arch::Overlap::kAuto;
  bool quiet = false;
  bool json = false;
  // Of a server, no flags: where set, what becomes of nodes and of credentials goes there at level warning, also when
  // quiet, and with notes_in_log what loading says too. Otherwise all of it is plain lines on stderr.
  std::optional<Logger> log = {};
  bool notes_in_log = false;
  bool records_experts = false;  // no flag: Engine::recorded()
};

// Rows of a prompt's step where nothing was said of them, and where a card computes whole steps of a single sequence:
// its experts then meet enough rows each.
inline constexpr std::uint32_t kPromptRows = 512, kCardPromptRows = 4096;
// Rows of a step on anything but such a card.
inline std::uint32_t prompt_rows(const ModelOptions& options) { return options.batch.value_or(kPromptRows); }

// Adds them to `table`, which fills `options`; all but --activations, which is for commands that compute.
void add_model_options(OptionTable& table, ModelOptions* options);
// --activations alone.
void add_activations_option(OptionTable& table, ModelOptions* options);
// --trace alone.
void add_trace_option(OptionTable& table, ModelOptions* options);
// --model and --quiet alone, for commands that only read the file.
void add_file_options(OptionTable& table, ModelOptions* options);
// --isa alone.
void add_isa_option(OptionTable& table, std::optional<kernels::Isa>* isa);

// What the options say together: nodes that stand twice, nodes or a card with f32 activations, memory of no card, a
// plan beside what it says itself, a link that cannot be. kInvalidArgument, kUnsupported.
// What passes is also prepared: the link's library reads its settings from the environment, before there are threads.
Status check(const ModelOptions& options);

// Of this end of links to nodes; null where the options name none. What goes wrong with a renewal is said in `log`, or
// on stderr.
Result<std::shared_ptr<security::Credentials>> load_credentials(const security::SecurityOptions& options,
                                                                const std::optional<Logger>& log = std::nullopt);

// What data connections to nodes are made by: the link chosen, proven and sealed. As transport::make_transport().
Result<std::shared_ptr<transport::Transport>> open_link(const transport::LinkOptions& options);

// What sessions with nodes have of the options; `coordinator` is the name that nodes log and show. kInvalidArgument: as
// transport::check_busy_poll().
Result<legs::NodeSessionOptions> session_options(const ModelOptions& options, std::string coordinator, Waiting waiting);

// The file to open: `model`, or else the demo model beside this program or in the source tree it was built from; which
// one is said on stderr unless quiet, or in the log. kNotFound: neither.
Result<std::filesystem::path> model_file(const ModelOptions& options);

}  // namespace terrace::app
