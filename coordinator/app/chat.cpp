// terrace chat
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "common/base/console.h"
#include "coordinator/app/command.h"
#include "coordinator/app/conversation.h"
#include "coordinator/app/engine.h"
#include "coordinator/app/model_options.h"
#include "coordinator/app/sampling_options.h"
#include "coordinator/terminal/input_history.h"
#include "coordinator/terminal/interrupts.h"
#include "coordinator/terminal/line_reader.h"
#include "coordinator/text/vocabulary.h"

namespace terrace::app {
namespace {

using terminal::Line;

constexpr const char* kPrompt = "> ";
constexpr const char* kHistoryName = "chat_history";

struct ChatOptions {
  ModelOptions model;
  std::string system;
  std::optional<std::uint64_t> max_tokens;
  sampler::SamplingOptions sampling;
};

OptionTable make_table(ChatOptions* o) {
  OptionTable table("terrace chat",
                    "A conversation with the model: a line is a message, the reply comes as it is made.");
  table.add("system", &o->system, "what the model is told before the conversation").value_name("TEXT");
  table.add("max-tokens", &o->max_tokens, "end a reply after so many tokens")
      .short_name('n')
      .range(1, 1ULL << 40)
      .default_text("when the model ends it");
  add_sampling_options(table, &o->sampling);
  add_seed_option(table, &o->sampling);
  add_model_options(table, &o->model);
  add_activations_option(table, &o->model);
  return table;
}

// One run: a conversation, where its lines come from, and how it is shown.
class Chat {
 public:
  Chat(Conversation& conversation, terminal::LineReader& lines, const arch::Trunk& trunk,
       terminal::Interrupts* interrupts, bool quiet)
      : conversation_(conversation), lines_(lines), trunk_(trunk), interrupts_(interrupts), quiet_(quiet) {}

  Status run() {
    if (interactive()) note("/help shows what can be typed; Ctrl-C stops a reply, Ctrl-D ends the conversation");
    for (;;) {
      TERRACE_ASSIGN_OR_RETURN(const Line line, lines_.read());
      if (line.kind == Line::Kind::kEnd) break;
      if (line.kind == Line::Kind::kInterrupted || line.text.find_first_not_of(" \t") == std::string::npos) continue;
      if (interactive() && line.text.starts_with('/')) {
        const std::string name = line.text.substr(0, line.text.find_last_not_of(" \t") + 1);
        if (name == "/quit") return {};
        TERRACE_RETURN_IF_ERROR(command(name));
      } else {
        TERRACE_RETURN_IF_ERROR(say(line.text));
      }
    }
    if (interactive()) print_err("\n");  // behind the prompt
    return {};
  }

 private:
  bool interactive() const { return interrupts_ != nullptr; }
  void note(const std::string& text) const {
    if (!quiet_) print_err("terrace: {}\n", text);
  }

  Status command(const std::string& text) {
    if (text == "/clear") {
      TERRACE_RETURN_IF_ERROR(conversation_.clear());
      note("the conversation begins anew");
    } else if (text == "/help") {
      print_err(
          "/clear   forget what was said; the system message stays\n"
          "/help    this text\n"
          "/quit    end, as Ctrl-D does on an empty line\n"
          "Ctrl-C   stop the reply; what was shown of it stays in the conversation. On a line: clear it\n"
          "A message that begins with / is written with a space before it.\n");
    } else {
      print_err("terrace: there is no command {}; there are /clear, /help and /quit\n", text);
    }
    return {};
  }

  Status say(const std::string& message) {
    if (interactive()) interrupts_->clear();
    bool line_is_open = false;
    const auto on_text = [&](std::string_view piece) -> Status {
      write_to(stdout, piece);
      line_is_open = !piece.ends_with('\n');
      return stdout_is_written() ? Status() : Error(ErrorCode::kIo, kStdoutFailed);
    };
    const auto reply = conversation_.say(
        message, [this] { return interactive() && interrupts_->came(); }, on_text);
    if (interactive()) interrupts_->clear();  // the one that stopped the reply is not meant for the next line
    if (!reply.ok() && line_is_open) print_out("\n");
    if (!reply.ok() && reply.error().code() == ErrorCode::kContextFull && interactive()) {
      print_err("terrace: {} (/clear begins anew)\n", reply.error().text());
      return {};
    }
    if (!reply.ok()) return reply.error();
    if (line_is_open || reply->tokens == 0) print_out("\n");
    if (!stdout_is_written()) return Error(ErrorCode::kIo, kStdoutFailed);
    tell_end(*reply);
    return {};
  }

  void tell_end(const Conversation::Reply& reply) const {
    if (reply.stop_reason == StopReason::kContext) {
      print_err("terrace: the context of {} tokens is full and the reply ends here; {}{}\n", trunk_.context(),
                interactive() ? "/clear begins anew; " : "", how_to_lengthen(trunk_.context(), trunk_.info()));
    } else if (reply.stop_reason == StopReason::kLimit) {
      note("--max-tokens ended the reply");
    } else if (reply.stop_reason == StopReason::kInterrupted) {
      note("stopped; what was shown stays in the conversation");
    }
  }

  Conversation& conversation_;
  terminal::LineReader& lines_;
  const arch::Trunk& trunk_;
  terminal::Interrupts* interrupts_;  // null: standard input is no terminal, and Ctrl-C ends the program
  bool quiet_;
};

// A terminal's lines are remembered over runs; where that does not work the conversation goes on without.
terminal::InputHistory open_history(const Environment& environment, bool quiet) {
  const std::filesystem::path file = terminal::state_file(environment, kHistoryName);
  if (file.empty()) return {};
  auto history = terminal::InputHistory::open(file);
  if (history.ok()) return std::move(*history);
  if (!quiet) print_err("terrace: {}; what is typed is not remembered\n", history.error().text());
  return {};
}

// How the file marks turns: asked, and tried with a first message, before anything is loaded or sent.
Result<text::ChatTemplate> chat_template(const std::filesystem::path& model, const std::string& system) {
  TERRACE_ASSIGN_OR_RETURN(const gguf::File file, gguf::File::open(model));
  TERRACE_ASSIGN_OR_RETURN(const text::Vocabulary vocabulary, text::vocabulary_from_gguf(file));
  const std::string name = model.filename().string();
  auto form = text::ChatTemplate::make(vocabulary);
  if (!form.ok()) return form.error().in(name);
  std::vector<text::ChatMessage> messages;
  if (!system.empty()) messages.push_back({"system", system});
  messages.push_back({"user", "Hello."});
  const auto tried = form->render(messages, true, text::jinja::local_time());
  if (!tried.ok()) return tried.error().in(name + ": its chat template writes no conversation");
  return form;
}

}  // namespace

std::vector<std::string> chat_option_names() {
  ChatOptions o;
  return make_table(&o).option_names();
}

Status run_chat(const CommandContext& context) {
  ChatOptions o;
  OptionTable table = make_table(&o);
  TERRACE_ASSIGN_OR_RETURN(const bool done, parse_options(table, context, &o.model.quiet));
  if (done) return {};
  TERRACE_RETURN_IF_ERROR(check(o.model));
  TERRACE_RETURN_IF_ERROR(sampler::validate(o.sampling));

  TERRACE_ASSIGN_OR_RETURN(o.model.model, model_file(o.model));
  TERRACE_ASSIGN_OR_RETURN(const text::ChatTemplate form, chat_template(o.model.model, o.system));

  std::unique_ptr<terminal::Interrupts> interrupts;
  terminal::InputHistory history;
  std::unique_ptr<terminal::LineReader> lines = terminal::make_plain_reader();
  if (isatty(STDIN_FILENO) == 1) {
    TERRACE_ASSIGN_OR_RETURN(interrupts, terminal::Interrupts::create());
    history = open_history(context.environment, o.model.quiet);
    TERRACE_ASSIGN_OR_RETURN(lines, terminal::make_line_editor(kPrompt, *interrupts, history));
  }
  const auto before_load = [](Engine& opening, const arch::ModelInfo&, std::uint32_t) -> Status {
    TERRACE_RETURN_IF_ERROR(opening.tokenizer());
    return {};
  };
  TERRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                           Engine::open(o.model, context.environment, before_load));
  ConversationOptions options;
  options.system = o.system;
  options.max_tokens = o.max_tokens.value_or(UINT64_MAX);
  options.batch = static_cast<std::uint32_t>(engine->trunk().max_rows());
  options.sampling = o.sampling;
  const auto render = [&form](std::span<const text::ChatMessage> messages, bool add_generation_prompt) {
    return form.render(messages, add_generation_prompt, text::jinja::local_time());
  };
  TERRACE_ASSIGN_OR_RETURN(Conversation conversation, Conversation::begin(*engine, render, std::move(options)));
  if (interrupts) interrupts->remember();
  return Chat(conversation, *lines, engine->trunk(), interrupts.get(), o.model.quiet).run();
}

}  // namespace terrace::app
