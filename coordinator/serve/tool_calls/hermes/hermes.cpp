#include "coordinator/serve/tool_calls/hermes/hermes.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "coordinator/serve/tool_calls/hermes/call.h"

namespace terrace::serve::tool_calls {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kThink = "<think>";
constexpr std::string_view kThinkEnd = "</think>";
constexpr std::string_view kCallBegin = "<tool_call>";
constexpr std::string_view kCallEnd = "</tool_call>";

// Bytes at the end of `text` that may still become `mark`.
std::size_t partial_at_end(std::string_view text, std::string_view mark) {
  for (std::size_t n = std::min(text.size(), mark.size() - 1); n > 0; --n)
    if (text.ends_with(mark.substr(0, n))) return n;
  return 0;
}

std::string_view without_space_at_end(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kSpace) + 1);  // npos + 1 is 0
}

class HermesParser final : public ReplyParser {
 public:
  explicit HermesParser(const ParserOptions& options)
      : options_(options),
        state_(!options.reasoning     ? State::kContent
               : options.in_reasoning ? State::kReasoningBegin
                                      : State::kStart) {}

  void push(std::string_view piece, std::vector<Delta>& deltas) override {
    held_ += piece;
    while (step(deltas)) {
    }
  }

  bool in_reasoning() const override { return state_ == State::kReasoningBegin || state_ == State::kReasoning; }

  void finish(std::vector<Delta>& deltas) override {
    if (state_ == State::kCall) {
      const std::string left = call_.abandon();
      add(Delta::Kind::kContent, left.empty() ? "" : std::string(kCallBegin) + left, deltas);
    } else if (state_ == State::kCallTail) {
      end_tail(held_, deltas);
    } else if (state_ == State::kReasoning) {
      add(Delta::Kind::kReasoning, held_, deltas);
    } else if (state_ == State::kContent || state_ == State::kStart) {
      add(Delta::Kind::kContent, held_, deltas);
    }
    held_.clear();
  }

 private:
  enum class State {
    kStart,           // the reply may begin with the mark of thought
    kReasoningBegin,  // white space after it
    kReasoning,
    kContentBegin,  // white space after reasoning or a call
    kContent,
    kCall,      // the JSON of a call
    kCallTail,  // after it, up to its end mark
  };

  // Settles what can be settled at the front of `held_`; false: more text is needed.
  bool step(std::vector<Delta>& deltas) {
    switch (state_) {
      case State::kStart:
        return start();
      case State::kReasoningBegin:
        return skip_space(State::kReasoning);
      case State::kReasoning:
        return until(kThinkEnd, Delta::Kind::kReasoning, State::kContentBegin, deltas);
      case State::kContentBegin:
        return skip_space(State::kContent);
      case State::kContent:
        return content(deltas);
      case State::kCall:
        return call(deltas);
      case State::kCallTail:
        return tail(deltas);
    }
    return false;
  }

  bool start() {
    const std::size_t begin = held_.find_first_not_of(kSpace);
    if (begin == std::string::npos) return false;
    const std::string_view text = std::string_view(held_).substr(begin);
    if (text.size() < kThink.size() && kThink.starts_with(text)) return false;
    if (text.starts_with(kThink)) {
      held_.erase(0, begin + kThink.size());
      state_ = State::kReasoningBegin;
    } else {
      state_ = State::kContent;
    }
    return true;
  }

  bool skip_space(State next) {
    held_.erase(0, held_.find_first_not_of(kSpace));  // npos: all of it
    if (held_.empty()) return false;
    state_ = next;
    return true;
  }

  bool content(std::vector<Delta>& deltas) {
    if (options_.tools) return until(kCallBegin, Delta::Kind::kContent, State::kCall, deltas);
    add(Delta::Kind::kContent, std::exchange(held_, {}), deltas);
    return false;
  }

  // Text of `kind` up to `mark`, without the white space before it.
  bool until(std::string_view mark, Delta::Kind kind, State next, std::vector<Delta>& deltas) {
    const std::size_t found = held_.find(mark);
    const std::string_view text(held_);
    const bool ends = found != std::string::npos;
    const std::string_view settled =
        without_space_at_end(text.substr(0, ends ? found : text.size() - partial_at_end(text, mark)));
    add(kind, std::string(settled), deltas);
    held_.erase(0, ends ? found + mark.size() : settled.size());
    if (!ends) return false;
    state_ = next;
    if (next == State::kCall) call_ = HermesCall(n_calls_);
    return true;
  }

  bool call(std::vector<Delta>& deltas) {
    const std::string text = std::exchange(held_, {});
    const std::size_t taken = call_.push(text, deltas);
    if (call_.state() == HermesCall::State::kOpen) return false;
    held_ = text.substr(taken);
    if (call_.state() == HermesCall::State::kNone) {
      add(Delta::Kind::kContent, std::string(kCallBegin) + call_.abandon(), deltas);
      state_ = State::kContent;
    } else {
      ++n_calls_;
      state_ = State::kCallTail;
    }
    return true;
  }

  // What stands between a call's JSON and its end mark is left out; without an end mark it is content.
  bool tail(std::vector<Delta>& deltas) {
    const std::size_t end = held_.find(kCallEnd);
    const std::size_t next = held_.find(kCallBegin);
    if (end == std::string::npos && next == std::string::npos) return false;
    if (end < next) {
      held_.erase(0, end + kCallEnd.size());
    } else {
      end_tail(std::string_view(held_).substr(0, next), deltas);
      held_.erase(0, next);
    }
    state_ = State::kContentBegin;
    return true;
  }

  void end_tail(std::string_view text, std::vector<Delta>& deltas) {
    if (call_.state() == HermesCall::State::kBroken) return;
    text.remove_prefix(std::min(text.size(), text.find_first_not_of(kSpace)));
    add(Delta::Kind::kContent, std::string(without_space_at_end(text)), deltas);
  }

  static void add(Delta::Kind kind, std::string text, std::vector<Delta>& deltas) {
    if (!text.empty()) deltas.push_back({kind, std::move(text), 0});
  }

  ParserOptions options_;
  State state_;
  std::string held_;  // not settled yet
  HermesCall call_{0};
  std::size_t n_calls_ = 0;
};

}  // namespace

std::unique_ptr<ReplyParser> make_hermes_parser(const ParserOptions& options) {
  return std::make_unique<HermesParser>(options);
}

}  // namespace terrace::serve::tool_calls
