// A model ready to run on this machine and its nodes: file, tokenizer, legs and trunk, opened in the order in which
// things can go wrong cheaply, and closed in reverse.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/environment.h"
#include "common/base/function_ref.h"
#include "common/base/parallel.h"
#include "common/base/result.h"
#include "common/gguf/file.h"
#include "common/threads/cpus.h"
#include "coordinator/app/model_options.h"
#include "coordinator/arch/trunk.h"
#include "coordinator/arch/trunk_options.h"
#include "coordinator/legs/host_leg.h"
#include "coordinator/legs/leg.h"
#include "coordinator/legs/leg_board.h"
#include "coordinator/planner/prediction_file.h"
#include "coordinator/text/tokenizer.h"
#include "kernels/cpu/ops/ops.h"
#include "kernels/executor/executor.h"

namespace terrace::legs {
class Dispatcher;
}

namespace terrace::app {

class RecordedExperts;

// One owner thread for everything.
class Engine {
 public:
  // Opens the file, connects to the nodes, gives them their slabs and waits until each is ready. Any error names file,
  // tensor or node; what was opened is closed again.
  static Result<std::unique_ptr<Engine>> open(const ModelOptions& options, const Environment& environment);
  // before_load is called when the file is known and before a byte is hashed or sent: what the caller needs of the file
  // (engine.tokenizer() works, no more) is refused there. context: positions of a stream.
  using BeforeLoad = FunctionRef<Status(Engine& engine, const arch::ModelInfo& info, std::uint32_t context)>;
  static Result<std::unique_ptr<Engine>> open(const ModelOptions& options, const Environment& environment,
                                              BeforeLoad before_load);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const std::string& model_name() const { return model_name_; }
  arch::Trunk& trunk();
  const kernels::Ops& ops() const;
  // The threads that compute here, and where they do.
  Parallel& parallel();
  const CpuChoice& cpus() const;
  // Pins the calling thread, as the one that takes the steps, to the first worker's CPU while the result lives. Threads
  // that it starts meanwhile inherit that, so those that answer others are started before.
  Result<ThreadAffinity> pin_step_thread() const;
  // What is known of each leg, also of those that failed: for any thread.
  const legs::LegBoard& board() const;
  // Who owns which expert, and how much each is used: for any thread.
  const legs::Dispatcher& dispatcher() const;
  double load_ms() const { return load_ms_; }

  // What the trunk and the host leg are made of, for who measures parts of them. Borrowed.
  struct Made {
    const gguf::File& file;
    const arch::TrunkOptions& trunk;
    const std::vector<kernels::ExpertKernels>& experts;      // [n_layers]
    legs::SlabLookup slabs;                                  // of every expert of the file
    const kernels::ExpertCard* card;                         // the first of --gpu; null: none
    const std::optional<planner::StatedPrediction>& stated;  // by the plan file
  };
  Made made_of() const;

  // Writes the rest of ModelOptions::trace, once no step follows; notes what it had no room for. kIo: the file is not
  // whole.
  Status end_trace();

  // What stands between trunk and legs, with ModelOptions::records_experts; else null.
  RecordedExperts* recorded();

  // The file's tokenizer, read when it is first asked for: a run on ids needs none.
  Result<const text::Tokenizer*> tokenizer();

 private:
  struct Parts;
  Engine();
  Status open_legs(const ModelOptions& options, const std::filesystem::path& cache_dir, BeforeLoad before_load);

  std::string model_name_;
  double load_ms_ = 0;
  std::unique_ptr<Parts> parts_;
};

// Where this user's caches lie; empty: nowhere.
std::filesystem::path cache_directory(const Environment& environment);

// The tokenizer of a file, its notes printed on stderr unless quiet.
Result<text::Tokenizer> open_tokenizer(const gguf::File& file, bool quiet);

}  // namespace terrace::app
