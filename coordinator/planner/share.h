// Shares: which leg gets which experts, as the user writes it (flag --share) or evenly by id order.
//
//   host=0-15,box1:9000=16-23,box2:9000=24-31      the same for every layer
//   host=0-3,8,12-15,box1:9000=4-7,9-11            an item without '=' belongs to the leg before it
//   FILE.json  {"layers":[{"host":"0-15","box1:9000":"16-31"}]}      one entry for all layers, or one each
//
// A leg is named by the string given to --node; the coordinator's own is "host". Without `host` it owns none.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "coordinator/legs/owner_table.h"

namespace terrace::planner {

inline constexpr std::string_view kHostLeg = "host";

struct ShareInput {
  std::span<const std::string> nodes;  // the strings given to --node, in order, each once
  std::uint32_t n_layers = 0;
  std::uint32_t n_experts = 0;
  std::uint64_t epoch = 1;
};

// Leg 0 is the host, leg i + 1 is nodes[i].
// kInvalidArgument: a leg that is not a node given, an expert left out or given twice, an id out of range, an entry
// count other than 1 or n_layers, text that cannot be read: the sentence names layer, leg and expert.
Result<legs::OwnerTable> parse_share(std::string_view spec, const ShareInput& input);
// The same from a file of the JSON form above. kNotFound, kIo name the file.
Result<legs::OwnerTable> read_share_file(const std::filesystem::path& file, const ShareInput& input);
// The array "layers" of such a file. kInvalidArgument.
Result<legs::OwnerTable> share_from_json(const nlohmann::json& layers, const ShareInput& input);
// The array that share_from_json() reads back: one entry where all layers are alike.
nlohmann::ordered_json share_to_json(const legs::OwnerTable& owners);
// `text` is a share spec, or names a file: it has no '=', or ends in .json.
Result<legs::OwnerTable> share_from_flag(const std::string& text, const ShareInput& input);

// Experts in id order, cut into as many equal runs as there are legs, the host's first; without nodes the host owns
// all. Where the count does not divide, the first legs own one more.
legs::OwnerTable even_share(const ShareInput& input);

// Rising ids as --share writes them: "0-3,8".
std::string ids_text(std::span<const std::uint16_t> ids);

}  // namespace terrace::planner
