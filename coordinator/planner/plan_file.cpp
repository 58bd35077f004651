#include "coordinator/planner/plan_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/base/text_file.h"
#include "common/gguf/bytes.h"
#include "common/gguf/output_file.h"
#include "common/gguf/text.h"
#include "common/json/read_json.h"
#include "common/manifest/manifest.h"
#include "common/security/sha256.h"
#include "coordinator/planner/share.h"

namespace terrace::planner {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr const char* kVersionKey = "terrace_plan";
// A model of thousands of experts and hundreds of layers on dozens of nodes has a tenth of it.
constexpr std::size_t kMostBytes = std::size_t{64} << 20;

Error bad(const std::filesystem::path& path, const std::string& what) {
  return Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", path.string(), what));
}

Result<std::string> text_of(const json& object, const char* key, const std::filesystem::path& path) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_string())
    return bad(path, fmt::format("no plan file: \"{}\" is missing or no text", key));
  return object[key].get<std::string>();
}

Result<std::vector<std::string>> nodes_of(const json& plan, const std::filesystem::path& path) {
  if (!plan.contains("nodes") || !plan["nodes"].is_array()) return bad(path, "no plan file: \"nodes\" is no array");
  std::vector<std::string> nodes;
  for (const json& node : plan["nodes"]) {
    if (!node.is_string()) return bad(path, "a node is no text like \"HOST:PORT\"");
    nodes.push_back(node.get<std::string>());
    if (!gguf::is_printable(nodes.back()))  // it will stand in every message about the node
      return bad(path, fmt::format("node {} has characters that no name of a node has", gguf::escaped(nodes.back())));
    if (std::count(nodes.begin(), nodes.end(), nodes.back()) > 1 || nodes.back() == kHostLeg)
      return bad(path,
                 fmt::format("node {} is given twice, or is the name of this machine", gguf::escaped(nodes.back())));
  }
  return nodes;
}

Result<json> read_plan(const std::filesystem::path& path) {
  const auto text = read_text_file(path, kMostBytes);
  if (!text.ok()) return text.error().in("plan file");
  auto plan = terrace::read_json<json>(*text);
  if (!plan.ok()) return bad(path, "no plan file: " + plan.error().text());
  if (!plan->is_object() || !plan->contains(kVersionKey) || !(*plan)[kVersionKey].is_number_integer())
    return bad(path, fmt::format("no plan file: it is no JSON object with \"{}\"; `terrace plan --out FILE` writes one",
                                 kVersionKey));
  return plan;
}

}  // namespace

Result<PlanFile> read_plan_file(const std::filesystem::path& path) {
  TERRACE_ASSIGN_OR_RETURN(json plan, read_plan(path));
  if (plan[kVersionKey] != kVersion)
    return Error(ErrorCode::kUnsupported, fmt::format("{}: version {} of the format; {} can be read", path.string(),
                                                      plan[kVersionKey].dump(), kVersion));
  PlanFile file;
  file.path = path;
  const json model = plan.contains("model") ? plan["model"] : json();
  TERRACE_ASSIGN_OR_RETURN(const std::string name, text_of(model, "file", path));
  file.model = gguf::escaped(name);
  TERRACE_ASSIGN_OR_RETURN(file.header_sha256, text_of(model, "header_sha256", path));
  TERRACE_ASSIGN_OR_RETURN(file.nodes, nodes_of(plan, path));
  if (!plan.contains("layers")) return bad(path, "no plan file: \"layers\" is missing");
  TERRACE_ASSIGN_OR_RETURN(file.prediction, read_prediction(plan, path));
  file.layers = std::make_shared<const json>(std::move(plan["layers"]));
  return file;
}

Result<legs::OwnerTable> owners_of(const PlanFile& plan, const gguf::File& file, std::uint32_t n_layers,
                                   std::uint32_t n_experts) {
  const std::string hash = security::to_hex(manifest::header_hash(file));
  if (hash != plan.header_sha256)
    return Error(
        ErrorCode::kRefused,
        fmt::format("{}: made for another model file ({}; the headers differ) than {}; make a plan for this one: "
                    "terrace plan --out FILE",
                    plan.path.string(), plan.model, file.path().string()));
  ShareInput input;
  input.nodes = plan.nodes;
  input.n_layers = n_layers;
  input.n_experts = n_experts;
  auto owners = share_from_json(*plan.layers, input);
  return owners.ok() ? std::move(owners) : owners.error().in(plan.path.string());
}

ordered_json legs_json(const MemoryPlan& memory) {
  auto list = ordered_json::array();
  for (const LegPlan& leg : memory.legs)
    list.push_back({{"name", leg.name},
                    {"kind", legs::name(leg.kind)},
                    {"experts", leg.experts},
                    {"slabs", leg.slabs},
                    {"slab_bytes", leg.slab_bytes},
                    {"vram_bytes", leg.vram_bytes},
                    {"dense_bytes", leg.dense_bytes},
                    {"kv_bytes", leg.cache_bytes},
                    {"staging_bytes", leg.staging_bytes},
                    {"scratch_bytes", leg.scratch_bytes},
                    {"needs_bytes", leg.needs},
                    {"offers_bytes", leg.offers},
                    {"fits", leg.fits()},
                    {"refusal", leg.refusal}});
  return list;
}

Status write_plan_file(const std::filesystem::path& path, const gguf::File& file, const legs::OwnerTable& owners,
                       const MemoryPlan& memory, const ordered_json& prediction) {
  ordered_json plan;
  plan[kVersionKey] = kVersion;
  plan["model"] = {{"file", file.path().filename().string()},
                   {"header_sha256", security::to_hex(manifest::header_hash(file))}};
  plan["nodes"] = std::vector<std::string>(owners.leg_names().begin() + 1, owners.leg_names().end());
  plan["layers"] = share_to_json(owners);
  plan["legs"] = legs_json(memory);
  if (!prediction.is_null()) plan["prediction"] = prediction;
  TERRACE_ASSIGN_OR_RETURN(gguf::OutputFile out, gguf::OutputFile::create(path));
  TERRACE_RETURN_IF_ERROR(
      out.write(gguf::as_bytes(plan.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n")));
  return out.commit();
}

}  // namespace terrace::planner
