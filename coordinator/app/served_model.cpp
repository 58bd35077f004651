#include "coordinator/app/served_model.h"

#include <fmt/core.h>

#include <array>
#include <bit>
#include <chrono>
#include <ctime>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "common/base/version.h"
#include "common/gguf/file.h"
#include "common/security/random.h"
#include "coordinator/app/commit.h"
#include "coordinator/app/engine.h"
#include "coordinator/serve/api/context.h"
#include "coordinator/text/jinja/template.h"
#include "coordinator/text/vocabulary.h"

namespace terrace::app {

struct ServedModel::Parts {
  serve::api::Context context;
  std::optional<text::jinja::Template> chat_template;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<serve::Scheduler> scheduler;
};

namespace {

// What can be told before anything is loaded. The file is opened once more by the engine.
Status read_file(const ServeOptions& options, const Logger& log, ServedModel::Parts& parts);

std::string main_type(const gguf::File& file) {
  std::map<std::string_view, std::uint64_t> bytes;
  for (const gguf::TensorInfo& tensor : file.tensors()) bytes[info(tensor.type).name] += tensor.bytes;
  std::string_view most;
  for (const auto& [type, n] : bytes)
    if (most.empty() || n > bytes[most]) most = type;
  return std::string(most);
}

serve::api::ModelFacts facts(const gguf::File& file, const ServeOptions& options) {
  serve::api::ModelFacts facts;
  facts.name = options.alias.empty() ? file.path().filename().string() : options.alias;
  facts.path = file.path().string();
  facts.file_type = main_type(file);
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    std::uint64_t elements = 1;
    for (const std::uint64_t n : tensor.shape) elements *= n;
    facts.n_parameters += elements;
    facts.size_bytes += tensor.bytes;
  }
  return facts;
}

std::tm local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm out{};
  localtime_r(&now, &out);
  return out;
}

// Ids and seeds only: a system without randomness does not get as far as listening.
std::uint64_t random_number() {
  std::array<std::byte, sizeof(std::uint64_t)> bytes{};
  if (!security::random_bytes(bytes).ok()) return static_cast<std::uint64_t>(std::time(nullptr));
  return std::bit_cast<std::uint64_t>(bytes);
}

}  // namespace
}  // namespace terrace::app
