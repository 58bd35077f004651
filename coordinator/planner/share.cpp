#include "coordinator/planner/share.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "common/base/split_list.h"
#include "common/base/text_file.h"
#include "common/gguf/text.h"
#include "common/json/read_json.h"

namespace terrace::planner {
namespace {

constexpr std::uint16_t kNobody = 0xffff;
constexpr std::size_t kMostBytes = std::size_t{64} << 20;  // of a share file

Error bad(std::string text) { return Error(ErrorCode::kInvalidArgument, "share: " + std::move(text)); }

std::vector<std::string> leg_names(const ShareInput& input) {
  std::vector<std::string> names{std::string(kHostLeg)};
  names.insert(names.end(), input.nodes.begin(), input.nodes.end());
  return names;
}

Result<std::uint16_t> find_leg(std::string_view name, const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return static_cast<std::uint16_t>(i);
  std::string known;
  for (const std::string& n : names) known += (known.empty() ? "" : ", ") + gguf::escaped(n);
  return bad(fmt::format("\"{}\" is no leg of this run; the legs are {} (nodes are named as --node gives them)",
                         gguf::escaped(name), known));
}

std::optional<std::uint32_t> parse_id(std::string_view text) {
  std::uint32_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return id;
}

// Of nothing: no items.
std::vector<std::string_view> items_of(std::string_view list) {
  return list.empty() ? std::vector<std::string_view>() : split_list(list);
}

// One layer's owners while they are being filled in.
class LayerShares {
 public:
  LayerShares(std::uint32_t n_experts, const std::vector<std::string>& names)
      : owners_(n_experts, kNobody), names_(names) {}

  // `item` is "7" or "4-9".
  Status give(std::string_view item, std::uint16_t leg) {
    const std::size_t dash = item.find('-');
    const auto first = parse_id(item.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_id(item.substr(dash + 1));
    if (!first || !last)
      return bad(fmt::format("\"{}\" is neither an expert id nor a range like 4-9", gguf::escaped(item)));
    if (*first > *last) return bad(fmt::format("the range {} runs backwards", gguf::escaped(item)));
    if (*last >= owners_.size())
      return bad(fmt::format("expert {} is out of range; this model has experts 0-{}", *last, owners_.size() - 1));
    for (std::uint32_t expert = *first; expert <= *last; ++expert) {
      if (owners_[expert] == leg)
        return bad(fmt::format("expert {} is given to {} twice", expert, gguf::escaped(names_[leg])));
      if (owners_[expert] != kNobody)
        return bad(fmt::format("expert {} is given twice, to {} and to {}", expert,
                               gguf::escaped(names_[owners_[expert]]), gguf::escaped(names_[leg])));
      owners_[expert] = leg;
    }
    return {};
  }

  // "0-3,8"
  Status give_list(std::string_view list, std::uint16_t leg) {
    for (const std::string_view item : items_of(list)) TERRACE_RETURN_IF_ERROR(give(item, leg));
    return {};
  }

  Result<std::vector<std::uint16_t>> finish() && {
    for (std::size_t expert = 0; expert < owners_.size(); ++expert)
      if (owners_[expert] == kNobody) return bad(fmt::format("expert {} is given to no leg", expert));
    return std::move(owners_);
  }

 private:
  std::vector<std::uint16_t> owners_;
  const std::vector<std::string>& names_;
};

legs::OwnerTable make_table(const ShareInput& input, std::vector<std::string> names,
                            const std::vector<std::vector<std::uint16_t>>& layers) {
  std::vector<std::uint16_t> owners;
  owners.reserve(std::size_t{input.n_layers} * input.n_experts);
  for (std::uint32_t layer = 0; layer < input.n_layers; ++layer) {
    const auto& row = layers[layers.size() == 1 ? 0 : layer];
    owners.insert(owners.end(), row.begin(), row.end());
  }
  return legs::OwnerTable(input.epoch, std::move(names), input.n_layers, input.n_experts, std::move(owners));
}

// One object of the file: leg name -> list of ids.
Result<std::vector<std::uint16_t>> read_layer(const nlohmann::json& entry, const ShareInput& input,
                                              const std::vector<std::string>& names) {
  if (!entry.is_object()) return bad("an entry of \"layers\" is no object of leg names");
  LayerShares shares(input.n_experts, names);
  for (const auto& [name, list] : entry.items()) {
    TERRACE_ASSIGN_OR_RETURN(const std::uint16_t leg, find_leg(name, names));
    if (!list.is_string()) return bad(fmt::format("the ids of {} are no string like \"0-15\"", gguf::escaped(name)));
    TERRACE_RETURN_IF_ERROR(shares.give_list(list.get_ref<const std::string&>(), leg));
  }
  return std::move(shares).finish();
}

}  // namespace

Result<legs::OwnerTable> parse_share(std::string_view spec, const ShareInput& input) {
  std::vector<std::string> names = leg_names(input);
  LayerShares shares(input.n_experts, names);
  std::optional<std::uint16_t> leg;
  for (std::string_view item : items_of(spec)) {
    if (const std::size_t equals = item.rfind('='); equals != std::string_view::npos) {
      TERRACE_ASSIGN_OR_RETURN(leg, find_leg(item.substr(0, equals), names));
      item = item.substr(equals + 1);
    }
    if (!leg)
      return bad(
          fmt::format("\"{}\" stands before any leg; write LEG=IDS, for example host=0-15", gguf::escaped(item)));
    TERRACE_RETURN_IF_ERROR(shares.give(item, *leg));
  }
  TERRACE_ASSIGN_OR_RETURN(std::vector<std::uint16_t> owners, std::move(shares).finish());
  return make_table(input, std::move(names), {std::move(owners)});
}

Result<legs::OwnerTable> read_share_file(const std::filesystem::path& file, const ShareInput& input) {
  const auto text = read_text_file(file, kMostBytes);
  if (!text.ok()) return text.error().in("share file");
  const auto read = read_json<nlohmann::json>(*text);
  if (!read.ok()) return bad(read.error().text()).in(file.string());
  const nlohmann::json& json = *read;
  if (!json.is_object() || !json.contains("layers") || !json["layers"].is_array())
    return bad("the file is no JSON object with an array \"layers\"").in(file.string());
  for (const auto& [key, value] : json.items())
    if (key != "layers")
      return bad(fmt::format("unknown key \"{}\"; the file has \"layers\" alone", gguf::escaped(key)))
          .in(file.string());
  auto owners = share_from_json(json["layers"], input);
  return owners.ok() ? std::move(owners) : owners.error().in(file.string());
}

Result<legs::OwnerTable> share_from_json(const nlohmann::json& entries, const ShareInput& input) {
  if (!entries.is_array()) return bad("\"layers\" is no array");
  if (entries.size() != 1 && entries.size() != input.n_layers)
    return bad(fmt::format("\"layers\" has {} entries; it needs 1, or {}, one for each layer", entries.size(),
                           input.n_layers));
  std::vector<std::string> names = leg_names(input);
  std::vector<std::vector<std::uint16_t>> layers;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    auto layer = read_layer(entries[i], input, names);
    if (!layer.ok()) return layer.error().in(fmt::format("layers[{}]", i));
    layers.push_back(std::move(*layer));
  }
  return make_table(input, std::move(names), layers);
}

nlohmann::ordered_json share_to_json(const legs::OwnerTable& owners) {
  auto layers = nlohmann::ordered_json::array();
  bool alike = true;
  for (std::uint32_t layer = 0; layer < owners.n_layers(); ++layer) {
    auto entry = nlohmann::ordered_json::object();
    for (std::size_t leg = 0; leg < owners.n_legs(); ++leg)
      if (const auto ids = owners.experts(leg, layer); !ids.empty()) entry[owners.leg_name(leg)] = ids_text(ids);
    alike = alike && (layers.empty() || layers.front() == entry);
    layers.push_back(std::move(entry));
  }
  return alike ? nlohmann::ordered_json::array({layers.front()}) : layers;
}

Result<legs::OwnerTable> share_from_flag(const std::string& text, const ShareInput& input) {
  // A spec names at least one leg, and so holds an '='.
  if (text.find('=') == std::string::npos || text.ends_with(".json")) return read_share_file(text, input);
  return parse_share(text, input);
}

legs::OwnerTable even_share(const ShareInput& input) {
  std::vector<std::string> names = leg_names(input);
  const std::size_t n_legs = names.size();
  std::vector<std::uint16_t> layer;
  for (std::size_t leg = 0; leg < n_legs; ++leg) {
    const std::size_t count = input.n_experts / n_legs + (leg < input.n_experts % n_legs ? 1 : 0);
    layer.insert(layer.end(), count, static_cast<std::uint16_t>(leg));
  }
  return make_table(input, std::move(names), {std::move(layer)});
}

std::string ids_text(std::span<const std::uint16_t> ids) {
  std::string text;
  for (std::size_t first = 0, last = 0; first < ids.size(); first = last + 1) {
    for (last = first; last + 1 < ids.size() && ids[last + 1] == ids[last] + 1;) ++last;
    if (!text.empty()) text += ',';
    text += last == first ? fmt::format("{}", ids[first]) : fmt::format("{}-{}", ids[first], ids[last]);
  }
  return text;
}

}  // namespace terrace::planner
