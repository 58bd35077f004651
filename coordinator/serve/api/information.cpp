#include "coordinator/serve/api/information.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "coordinator/serve/api/answer_parts.h"
#include "coordinator/serve/api/prompt.h"

namespace terrace::serve::api {
namespace {

Reply ok(const Json& value) { return {.status = 200, .body = dump(value), .retry_after_s = {}}; }

bool is_utf8(std::string_view bytes) {
  try {
    (void)Json(bytes).dump();
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

// A token's bytes: text where they are whole characters, else numbers.
Json piece_json(std::string_view bytes) {
  if (is_utf8(bytes)) return bytes;
  Json list = Json::array();
  for (const char byte : bytes) list.push_back(static_cast<unsigned char>(byte));
  return list;
}

Result<std::vector<std::int32_t>> encode(const Ask& ask, const text::Tokenizer& tokenizer) {
  if (ask.content == nullptr) return std::vector<std::int32_t>();
  TERRACE_ASSIGN_OR_RETURN(std::vector<std::int32_t> ids, tokenizer.encode(ask.content->get_ref<const std::string&>(),
                                                                           {.parse_special = ask.parse_special}));
  if (ask.add_special && tokenizer.leading_bos()) ids.insert(ids.begin(), *tokenizer.leading_bos());
  if (ask.add_special && tokenizer.trailing_eos()) ids.push_back(*tokenizer.trailing_eos());
  return ids;
}

Result<std::vector<std::int32_t>> token_ids(const Json& list, const text::Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids;
  for (const Json& item : list) {
    TERRACE_ASSIGN_OR_RETURN(const std::int64_t id,
                             read_whole(item, 0, static_cast<std::int64_t>(tokenizer.size()) - 1));
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

}  // namespace

Reply tokenize(std::string_view body, const Context& context) {
  Ask ask;
  if (auto error = read_fields(kOnTokenize, body, context, ask)) return to_reply(*error, Dialect::kOpenAi);
  const auto ids = encode(ask, *context.tokenizer);
  if (!ids.ok()) return to_reply(bad_field("content", ids.error()), Dialect::kOpenAi);
  if (!ask.with_pieces) return ok({{"tokens", *ids}});
  Json tokens = Json::array();
  for (const std::int32_t id : *ids)
    tokens.push_back({{"id", id}, {"piece", piece_json(context.tokenizer->bytes(id, {}))}});
  return ok({{"tokens", std::move(tokens)}});
}

Reply detokenize(std::string_view body, const Context& context) {
  Ask ask;
  if (auto error = read_fields(kOnDetokenize, body, context, ask)) return to_reply(*error, Dialect::kOpenAi);
  if (ask.tokens == nullptr) return ok({{"content", ""}});
  const auto ids = token_ids(*ask.tokens, *context.tokenizer);
  if (!ids.ok()) return to_reply(bad_field("tokens", ids.error()), Dialect::kOpenAi);
  const auto text = context.tokenizer->decode(*ids, {});
  return text.ok() ? ok({{"content", *text}}) : to_reply(bad_field("tokens", text.error()), Dialect::kOpenAi);
}

Reply apply_template(std::string_view body, const Context& context) {
  Ask ask;
  if (auto error = read_fields(kOnApplyTemplate, body, context, ask)) return to_reply(*error, Dialect::kOpenAi);
  ChatPrompt made;
  if (auto error = make_chat_prompt(ask, context, made)) return to_reply(*error, Dialect::kOpenAi);
  return ok({{"prompt", made.prompt.text}});
}

Reply count_tokens(std::string_view body, const Context& context) {
  Ask ask;
  if (auto error = read_fields(kOnCountTokens, body, context, ask)) return to_reply(*error, Dialect::kAnthropic);
  ChatPrompt made;
  if (auto error = make_chat_prompt(ask, context, made)) return to_reply(*error, Dialect::kAnthropic);
  return ok({{"input_tokens", made.prompt.ids.size()}});
}

Reply models(const Context& context) {
  const ModelFacts& model = context.model;
  const Json entry{{"name", model.name},
                   {"model", model.name},
                   {"modified_at", ""},
                   {"size", ""},
                   {"digest", ""},
                   {"type", "model"},
                   {"description", ""},
                   {"tags", Json::array({""})},
                   {"capabilities", Json::array({"completion"})},
                   {"parameters", ""},
                   {"details",
                    {{"parent_model", ""},
                     {"format", "gguf"},
                     {"family", ""},
                     {"families", Json::array({""})},
                     {"parameter_size", ""},
                     {"quantization_level", ""}}}};
  const Json data{{"id", model.name},
                  {"aliases", Json::array({model.name})},
                  {"tags", Json::array()},
                  {"object", "model"},
                  {"created", context.started},
                  {"owned_by", "llamacpp"},
                  {"meta",
                   {{"vocab_type", 2},  // byte-level BPE, as llama-server numbers it
                    {"n_vocab", context.tokenizer->size()},
                    {"n_ctx", context.context_tokens},
                    {"n_ctx_train", model.n_context_trained},
                    {"n_embd", model.n_embedding},
                    {"n_params", model.n_parameters},
                    {"size", model.size_bytes},
                    {"ftype", model.file_type}}}};
  return ok({{"models", Json::array({entry})}, {"object", "list"}, {"data", Json::array({data})}});
}

Reply props(const Context& context) {
  const text::jinja::Template* chat = context.chat_template;
  const bool tools =
      chat != nullptr && chat->reads("tools") && tool_calls::find_family(context.chat_template_source) != nullptr;
  const auto token = [&](std::optional<std::int32_t> id) {
    return id ? std::string(context.tokenizer->bytes(*id, {})) : std::string();
  };
  Ask defaults;
  defaults.sampling = context.sampling;
  return ok(
      {{"default_generation_settings",
        {{"params", generation_settings(defaults, 0xFFFF'FFFF, true)}, {"n_ctx", context.context_tokens}}},
       {"total_slots", context.n_slots},
       {"model_alias", context.model.name},
       {"model_ftype", context.model.file_type},
       {"model_path", context.model.path},
       {"modalities", {{"vision", false}, {"video", false}, {"audio", false}}},
       {"media_marker", ""},
       {"endpoint_slots", context.slots_route},
       {"endpoint_props", false},  // POST /props
       {"endpoint_metrics", context.metrics_route},
       {"ui", true},
       {"ui_settings", Json::object()},
       {"chat_template", context.chat_template_source},
       {"chat_template_caps",
        {{"supports_object_arguments", tools},
         {"supports_parallel_tool_calls", tools},
         {"supports_preserve_reasoning", context.chat_template_source.find("reasoning_content") != std::string::npos},
         {"supports_reasoning_effort", chat != nullptr && chat->reads("reasoning_effort")},
         {"supports_string_content", true},
         {"supports_system_role", true},
         {"supports_tool_calls", tools},
         {"supports_tools", tools},
         {"supports_typed_content", false}}},
       {"bos_token", token(context.tokenizer->bos())},
       {"eos_token", token(context.tokenizer->eos())},
       {"build_info", context.build},
       {"is_sleeping", false},
       {"cors_proxy_enabled", false}});
}

Reply slots(const Context& context, const SchedulerStatus& status, bool fail_on_no_slot) {
  if (!context.slots_route)
    return server_error(501, "This server does not support slots endpoint. Start it with `--slots`");
  const bool any_idle =
      std::ranges::any_of(status.slots, [](const SlotStatus& s) { return s.state == SlotState::kIdle; });
  if (fail_on_no_slot && !any_idle)
    return to_reply({503, "unavailable_error", "no slot available", {}, {}, {}, false}, Dialect::kOpenAi);
  Json list = Json::array();
  for (const SlotStatus& slot : status.slots) {
    const bool busy = slot.state != SlotState::kIdle;
    Json entry{{"id", slot.id}, {"n_ctx", status.context}, {"speculative", false}, {"is_processing", busy}};
    if (busy)
      entry.update(
          {{"state", name(slot.state)},
           {"id_task", slot.request},
           {"n_prompt_tokens", slot.prompt_tokens + slot.decoded},
           {"n_prompt_tokens_processed", slot.prompt_processed},
           {"n_prompt_tokens_cache", slot.prompt_cached},
           {"params", slot.note == nullptr ? Json::object() : Json::parse(*slot.note)},
           {"next_token",
            Json::array({{{"has_next_token", true},
                          {"has_new_line", slot.has_new_line},
                          {"n_remain", slot.remaining == kUnlimited ? -1 : static_cast<std::int64_t>(slot.remaining)},
                          {"n_decoded", slot.decoded}}})}});
    list.push_back(std::move(entry));
  }
  return ok(list);
}

namespace {

ReadSlotCommand refuse(int status, std::string message) {
  return {.command = {}, .refusal = server_error(status, message)};
}

}  // namespace

ReadSlotCommand read_slot_command(std::string_view id, std::string_view action, std::string_view body,
                                  const Context& context) {
  if (!context.slots_route || !context.slot_files)
    return refuse(501, "This server does not support slots action. Start it with `--slot-save-path`");
  SlotCommand command;
  const auto parsed = std::from_chars(id.data(), id.data() + id.size(), command.slot);
  if (parsed.ec != std::errc() || parsed.ptr != id.data() + id.size() || command.slot >= context.n_slots)
    return refuse(400, fmt::format("slot {} does not exist; there are 0 to {}", shown(Json(id)), context.n_slots - 1));
  if (action == "save") {
    command.action = SlotAction::kSave;
  } else if (action == "restore") {
    command.action = SlotAction::kRestore;
  } else if (action == "erase") {
    command.action = SlotAction::kErase;
  } else {
    return refuse(400, fmt::format("action {} is not known; known are save, restore and erase", shown(Json(action))));
  }
  Ask ask;
  const bool has_body = !body.empty() || command.action != SlotAction::kErase;
  if (has_body)
    if (auto error = read_fields(kOnSlots, body, context, ask))
      return {.command = {}, .refusal = to_reply(*error, Dialect::kOpenAi)};
  if (command.action != SlotAction::kErase && ask.file_name.empty())
    return {.command = {}, .refusal = to_reply(bad_field("filename", "is required"), Dialect::kOpenAi)};
  command.file_name = std::move(ask.file_name);
  return {.command = std::move(command), .refusal = {}};
}

Reply slot_done(const SlotCommand& command, const SlotResult& result) {
  const auto file = [&](const char* tokens, const char* bytes, const char* ms) {
    return ok({{"id_slot", command.slot},
               {"filename", command.file_name},
               {tokens, result.n_tokens},
               {bytes, result.n_bytes},
               {"timings", {{ms, result.milliseconds}}}});
  };
  switch (command.action) {
    case SlotAction::kSave:
      return file("n_saved", "n_written", "save_ms");
    case SlotAction::kRestore:
      return file("n_restored", "n_read", "restore_ms");
    case SlotAction::kErase:
      break;
  }
  return ok({{"id_slot", command.slot}, {"n_erased", result.n_tokens}});
}

}  // namespace terrace::serve::api
