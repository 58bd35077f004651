// terrace inspect
#include <fmt/core.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/base/console.h"
#include "common/base/units.h"
#include "common/manifest/cache.h"
#include "common/manifest/experts.h"
#include "common/security/sha256.h"
#include "common/threads/cpus.h"
#include "common/threads/pool.h"
#include "coordinator/app/command.h"
#include "coordinator/app/engine.h"
#include "coordinator/app/model_options.h"
#include "coordinator/arch/architectures.h"
#include "coordinator/legs/routed_experts.h"
#include "coordinator/text/vocabulary.h"
#include "kernels/registry/registry.h"

namespace terrace::app {
namespace {

struct InspectOptions {
  std::filesystem::path file;
  bool manifest = false;
  bool json = false;
};

OptionTable make_table(InspectOptions* o) {
  OptionTable table("terrace inspect", "Shows what a model file holds, and what this build can run of it.");
  table.add_positional("FILE", &o->file, "the GGUF file; of a split set the first shard").required();
  table.add("manifest", &o->manifest, "also hash every expert and show the manifest (minutes for a large file)");
  table.add("json", &o->json, "print one JSON object");
  return table;
}

struct TypeCount {
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;
};

// What a file is, gathered once and shown in two ways.
struct Report {
  std::string architecture;
  std::map<std::string, TypeCount> types;
  std::optional<manifest::ModelExperts> experts;
  std::uint64_t expert_bytes = 0;
  std::optional<arch::ModelInfo> model;
  std::string model_problem;      // empty: it can be run
  std::string tokenizer_problem;  // empty: it can be used
  std::optional<manifest::Manifest> manifest;
};

std::string problem_of(const Error& error, const gguf::File& file) {
  const std::string prefix = file.path().string() + ": ";
  return error.text().starts_with(prefix) ? error.text().substr(prefix.size()) : error.text();
}

Result<Report> examine(const gguf::File& file, const InspectOptions& o, const Environment& environment) {
  Report report;
  if (const auto architecture = file.architecture(); architecture.ok()) report.architecture = *architecture;
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    TypeCount& count = report.types[std::string(info(tensor.type).name)];
    ++count.tensors;
    count.bytes += tensor.bytes;
  }
  if (auto experts = manifest::find_experts(file); experts.ok()) {
    report.expert_bytes = experts->total_bytes();
    report.experts = std::move(*experts);
  }
  if (const auto model = arch::describe(file, {}); model.ok())
    report.model = *model;
  else
    report.model_problem = problem_of(model.error(), file);
  if (const auto tokenizer = open_tokenizer(file, true); !tokenizer.ok())
    report.tokenizer_problem = problem_of(tokenizer.error(), file);
  if (o.manifest) {
    TERRACE_ASSIGN_OR_RETURN(const manifest::ModelExperts experts, manifest::find_experts(file));
    TERRACE_ASSIGN_OR_RETURN(const CpuChoice cpus, choose_cpus(cpus_of_this_machine(), {}));
    TERRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Pool> pool, Pool::create(cpus));
    TERRACE_ASSIGN_OR_RETURN(
        manifest::LoadedManifest loaded,
        manifest::load(file, experts, cache_directory(environment), *pool, [](std::uint64_t, std::uint64_t) {}));
    if (!loaded.cache_note.empty()) print_err("terrace: {}\n", loaded.cache_note);
    report.manifest = std::move(loaded.manifest);
  }
  return report;
}

nlohmann::ordered_json experts_json(const manifest::ModelExperts& experts) {
  auto layers = nlohmann::ordered_json::array();
  for (const manifest::LayerExperts& layer : experts.layers)
    layers.push_back({{"gate", info(layer.shape.types.gate).name},
                      {"up", info(layer.shape.types.up).name},
                      {"down", info(layer.shape.types.down).name},
                      {"ff", layer.shape.ff},
                      {"slab_bytes", layer.shape.slab_bytes()}});
  return {{"n_experts", experts.n_experts}, {"top_k", experts.top_k},         {"d_model", experts.d_model},
          {"shift", experts.shift},         {"bytes", experts.total_bytes()}, {"layers", layers}};
}

nlohmann::ordered_json manifest_json(const manifest::Manifest& m) {
  auto ids = nlohmann::ordered_json::array();
  for (std::uint32_t layer = 0; layer < m.n_layers(); ++layer) {
    auto row = nlohmann::ordered_json::array();
    for (std::uint32_t expert = 0; expert < m.n_experts; ++expert)
      row.push_back(security::to_hex(m.slab_id(layer, expert)));
    ids.push_back(std::move(row));
  }
  return {{"hash", security::to_hex(m.hash)}, {"shift", m.shift}, {"slab_ids", ids}};
}

void print_json(const gguf::File& file, const Report& r) {
  nlohmann::ordered_json json;
  json["file"] = file.path().string();
  json["bytes"] = file.file_bytes();
  json["shards"] = file.n_shards();
  json["version"] = file.version();
  json["architecture"] = r.architecture;
  auto& metadata = json["metadata"] = nlohmann::ordered_json::object();
  for (const gguf::KeyValue& entry : file.metadata().entries())
    metadata[std::string(entry.key)] = {{"type", entry.value.type_text()}, {"value", entry.value.text()}};
  auto& tensors = json["tensors"] = nlohmann::ordered_json::array();
  for (const gguf::TensorInfo& t : file.tensors()) {
    const std::vector<std::uint64_t> shape(t.shape.begin(), t.shape.begin() + t.n_dims);
    tensors.push_back({{"name", t.name},
                       {"type", info(t.type).name},
                       {"shape", shape},
                       {"bytes", t.bytes},
                       {"shard", t.shard},
                       {"offset", t.file_offset},
                       {"kernel", kernels::is_supported(t.type)}});
  }
  if (r.experts) json["experts"] = experts_json(*r.experts);
  if (r.manifest) json["manifest"] = manifest_json(*r.manifest);
  json["runs"] = {{"model", r.model_problem.empty()},
                  {"model_problem", r.model_problem},
                  {"tokenizer", r.tokenizer_problem.empty()},
                  {"tokenizer_problem", r.tokenizer_problem}};
  print_json_line(json);
}

void print_experts(const Report& r) {
  if (!r.experts) return;
  std::uint64_t largest = 0;
  for (const manifest::LayerExperts& layer : r.experts->layers) largest = std::max(largest, layer.shape.slab_bytes());
  print_out("experts      {} a layer, top {}, {} in all; the largest slab has {}\n", r.experts->n_experts,
            r.experts->top_k, format_size(r.expert_bytes), format_size(largest));
}

void print_text(const gguf::File& file, const Report& r) {
  print_out("file         {} ({}, {} shard{}, GGUF version {})\n", file.path().string(), format_size(file.file_bytes()),
            file.n_shards(), file.n_shards() == 1 ? "" : "s", file.version());
  print_out("architecture {}\n", r.architecture.empty() ? "(none)" : r.architecture);
  if (r.model)
    print_out("model        {} layers, width {}, vocabulary {}, context {}, cache {} a position (f16)\n",
              r.model->n_layers, r.model->d_model, r.model->vocabulary, r.model->context,
              format_size(r.model->kv_bytes_per_position));
  print_experts(r);
  print_out("runs here    {}\n", r.model_problem.empty() ? "yes" : "no: " + r.model_problem);
  print_out("tokenizer    {}\n", r.tokenizer_problem.empty() ? "yes" : "no: " + r.tokenizer_problem);
  if (r.types.empty())
    print_out("tensors      none: a file of metadata only\n");
  else
    print_out("types\n");
  for (const auto& [type, count] : r.types)
    print_out("  {:<8} {:>5} tensors  {:>8}  {}\n", type, count.tensors, format_size(count.bytes),
              kernels::is_supported(find_tensor_type(type)->type) ? "" : "no kernel in this build");
  print_out("metadata\n");
  for (const gguf::KeyValue& entry : file.metadata().entries())
    print_out("  {:<44} {:<16} {}\n", entry.key, entry.value.type_text(), entry.value.text());
  if (!file.tensors().empty()) print_out("tensors\n");
  for (const gguf::TensorInfo& t : file.tensors())
    print_out("  {:<40} {:<8} {:<22} {:>8}  offset {:#x}\n", t.name, info(t.type).name, t.shape_text(),
              format_size(t.bytes), t.file_offset);
  if (r.manifest) {
    print_out("manifest     {}\n", security::to_hex(r.manifest->hash));
    for (std::uint32_t layer = 0; layer < r.manifest->n_layers(); ++layer)
      for (std::uint32_t expert = 0; expert < r.manifest->n_experts; ++expert)
        print_out("  slab {:>3} {:>4}  {}\n", layer, expert, security::to_hex(r.manifest->slab_id(layer, expert)));
  }
}

}  // namespace

std::vector<std::string> inspect_option_names() {
  InspectOptions o;
  return make_table(&o).option_names();
}

Status run_inspect(const CommandContext& context) {
  InspectOptions o;
  OptionTable table = make_table(&o);
  TERRACE_ASSIGN_OR_RETURN(const bool done, parse_options(table, context));
  if (done) return {};
  TERRACE_ASSIGN_OR_RETURN(const gguf::File file, gguf::File::open(o.file));
  TERRACE_ASSIGN_OR_RETURN(const Report report, examine(file, o, context.environment));
  if (o.json)
    print_json(file, report);
  else
    print_text(file, report);
  return {};
}

}  // namespace terrace::app
