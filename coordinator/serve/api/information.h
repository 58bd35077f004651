// The routes that generate nothing: text to tokens and back, the template shown, what the server is and does.
//
// Threads  Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "coordinator/serve/api/context.h"
#include "coordinator/serve/api/reply.h"
#include "coordinator/serve/scheduler/state.h"

namespace terrace::serve::api {

Reply tokenize(std::string_view body, const Context& context);        // POST /tokenize
Reply detokenize(std::string_view body, const Context& context);      // POST /detokenize
Reply apply_template(std::string_view body, const Context& context);  // POST /apply-template
// POST /v1/messages/count_tokens: {"input_tokens":N}; the same fields as /v1/messages.
Reply count_tokens(std::string_view body, const Context& context);

Reply models(const Context& context);  // GET /v1/models, /models
Reply props(const Context& context);   // GET /props
// GET /slots. fail_on_no_slot: 503 where no slot is idle.
Reply slots(const Context& context, const SchedulerStatus& status, bool fail_on_no_slot);

// POST /slots/ID?action=save|restore|erase with the body {"filename":"NAME"} (none for erase).
enum class SlotAction { kSave, kRestore, kErase };
struct SlotCommand {
  SlotAction action = SlotAction::kErase;
  std::uint32_t slot = 0;
  std::string file_name;  // a plain name, no path: below the folder that the user gave
};
struct ReadSlotCommand {
  std::optional<SlotCommand> command;  // exactly one of the two is set
  std::optional<Reply> refusal;
};
// `id` and `action` as they stand in the address.
ReadSlotCommand read_slot_command(std::string_view id, std::string_view action, std::string_view body,
                                  const Context& context);
struct SlotResult {
  std::uint64_t n_tokens = 0;  // saved, restored or erased
  std::uint64_t n_bytes = 0;   // of the file; 0 for erase
  double milliseconds = 0;
};
Reply slot_done(const SlotCommand& command, const SlotResult& result);

}  // namespace terrace::serve::api
