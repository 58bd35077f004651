// What a conversation keeps between turns, on the demo model in this process.
#include "coordinator/app/conversation.h"

#include <gtest/gtest.h>

#include "tests/e2e/support/gate_run.h"
#include "tests/e2e/support/process.h"

namespace terrace::app {
namespace conversation_test {

using test::must;
using Ids = std::vector<std::int32_t>;

class ConversationTest : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> open(std::uint32_t context = 512) const {
    ModelOptions options = test::gate_options();
    options.context = context;
    return must(Engine::open(options, Environment({{"XDG_CACHE_HOME", test::cache_dir().string()}})));
  }
  Conversation begin(Engine& engine, ConversationOptions options = {}) const {
    return begin(engine, must(engine.tokenizer())->chat_template(), std::move(options));
  }
  // By another template than the file's.
  Conversation begin(Engine& engine, const std::string& source, ConversationOptions options) const {
    text::Vocabulary vocabulary;
    vocabulary.chat_template = source;
    const text::ChatTemplate form = must(text::ChatTemplate::make(vocabulary));
    return must(Conversation::begin(
        engine, [form](auto messages, bool prompt) { return form.render(messages, prompt, text::jinja::local_time()); },
        std::move(options)));
  }
  static ConversationOptions short_replies(std::uint64_t max_tokens) {
    ConversationOptions options;
    options.max_tokens = max_tokens;
    return options;
  }
  // Says it; the reply's text is appended to `shown`, which stops it once it holds `stop_after` bytes.
  static Result<Conversation::Reply> say(Conversation& conversation, const std::string& message, std::string& shown,
                                         std::size_t stop_after = SIZE_MAX) {
    return conversation.say(
        message, [&] { return shown.size() >= stop_after; },
        [&](std::string_view piece) {
          shown += piece;
          return Status();
        });
  }
  static std::string decode(Engine& engine, const Ids& ids) { return must(must(engine.tokenizer())->decode(ids, {})); }
};

// The second reply is, token by token, that of a run which computes the whole conversation at once.
TEST_F(ConversationTest, SecondTurn_ComputesOnlyWhatIsNew_AndSaysTheSame) {
  const auto engine = open();
  Conversation conversation = begin(*engine, short_replies(40));
  std::string first, second;
  const auto one = must(say(conversation, "Tell me a story about a penguin named Momo.", first));
  const Ids after_one = conversation.tokens();
  const auto two = must(say(conversation, "And then?", second));
  const Ids after_two = conversation.tokens();
  EXPECT_EQ(one.stop_reason, StopReason::kLimit) << "choose a longer story";
  EXPECT_TRUE(std::equal(after_one.begin(), after_one.end(), after_two.begin()));
  const std::size_t reply = two.tokens - (two.stop_reason == StopReason::kEos ? 1 : 0);
  // The last token of the first reply was shown and not computed.
  EXPECT_EQ(two.computed, after_two.size() - reply - after_one.size() + 1);
  EXPECT_LT(two.computed, after_one.size());

  GenerationRequest whole;
  whole.prompt.assign(after_two.begin(), after_two.end() - static_cast<std::ptrdiff_t>(reply));
  whole.max_tokens = 40;
  const auto fresh = open();
  const Generation expected = must(generate(*fresh, whole, [](std::string_view) { return Status(); }));
  EXPECT_EQ(expected.text, second);
  EXPECT_EQ(expected.tokens.size(), two.tokens);
}

TEST_F(ConversationTest, WhatWasShown_IsWhatIsInIt_AlsoOfAStoppedReply) {
  const auto engine = open();
  ConversationOptions options = short_replies(60);
  options.system = "You tell stories.";
  Conversation conversation = begin(*engine, options);
  std::string stopped, next;
  const auto one = must(say(conversation, "Tell me a story about a fox.", stopped, 30));
  EXPECT_EQ(one.stop_reason, StopReason::kInterrupted);
  EXPECT_GE(stopped.size(), 30u);
  EXPECT_LT(one.tokens, 60u);
  ASSERT_EQ(conversation.messages().size(), 3u);
  EXPECT_EQ(conversation.messages()[2].content, stopped);
  const std::string after_one =
      "<|im_start|>system\nYou tell stories.<|im_end|>\n<|im_start|>user\nTell me a story about a fox.<|im_end|>\n"
      "<|im_start|>assistant\n" +
      stopped;
  EXPECT_EQ(decode(*engine, conversation.tokens()), after_one);
  (void)must(say(conversation, "Go on.", next));
  EXPECT_EQ(decode(*engine, conversation.tokens()),
            after_one + "<|im_end|>\n<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n" + next);
}

// Interrupted before the first token: the message is in the conversation, the rest of it is computed later.
TEST_F(ConversationTest, StoppedInThePrompt_TheRestIsComputedWithTheNextTurn) {
  const auto engine = open();
  ConversationOptions options = short_replies(8);
  options.batch = 4;
  Conversation conversation = begin(*engine, options);
  int asked = 0;
  const auto ignore = [](std::string_view) { return Status(); };
  const auto one = must(conversation.say(
      "Tell me a story about a fox.", [&] { return ++asked > 2; }, ignore));
  EXPECT_EQ(one.stop_reason, StopReason::kInterrupted);
  EXPECT_EQ(one.tokens, 0u);
  const std::size_t said = conversation.tokens().size();
  std::string reply;
  const auto two = must(say(conversation, "Now.", reply));
  const std::size_t made = two.tokens - (two.stop_reason == StopReason::kEos ? 1 : 0);
  EXPECT_EQ(two.computed, conversation.tokens().size() - made - 8) << "two batches of four were computed before";
  EXPECT_GT(two.computed, said - 8);
}

TEST_F(ConversationTest, FullContext_TheReplyEndsAndTheNextMessageIsRefused_NothingIsLost) {
  const auto engine = open(48);
  Conversation conversation = begin(*engine);
  std::string reply, none;
  const auto one = must(say(conversation, "Tell me a long story about a dragon.", reply));
  EXPECT_EQ(one.stop_reason, StopReason::kContext);
  const Ids before = conversation.tokens();
  const auto refused = say(conversation, "Go on.", none);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kContextFull);
  EXPECT_EQ(conversation.tokens(), before);
  EXPECT_EQ(conversation.messages().size(), 2u);
  // A message that is too long for the rest is refused too, and a shorter one is then taken.
  ASSERT_TRUE(conversation.clear().ok());
  EXPECT_TRUE(conversation.tokens().empty());
  EXPECT_FALSE(say(conversation, std::string(400, 'x'), none).ok());
  EXPECT_TRUE(say(conversation, "Hello.", none).ok());
}

// A template that writes earlier turns anew, as those do that drop the reasoning of earlier replies: what follows the
// first token that differs is computed again, and the reply is that of a run which computes all of it at once.
TEST_F(ConversationTest, TemplateThatRewritesTheHistory_IsComputedFromTheFirstTokenThatDiffers) {
  const std::string forgetful =
      "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{{ m.content[:9] if m.role == 'assistant' and not "
      "loop.last else m.content }}{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ "
      "'<|im_start|>assistant\n' }}{% endif %}";
  const auto engine = open();
  Conversation conversation = begin(*engine, forgetful, short_replies(12));
  std::string first, second;
  (void)must(say(conversation, "Tell me a story about a fox.", first));
  const Ids after_one = conversation.tokens();
  const auto two = must(say(conversation, "Good day.", second));
  EXPECT_EQ(decode(*engine, conversation.tokens()),
            "<|im_start|>user\nTell me a story about a fox.<|im_end|>\n<|im_start|>assistant\n" + first.substr(0, 9) +
                "<|im_end|>\n<|im_start|>user\nGood day.<|im_end|>\n<|im_start|>assistant\n" + second);
  const std::size_t reply = two.tokens - (two.stop_reason == StopReason::kEos ? 1 : 0);
  const Ids& all = conversation.tokens();
  const auto differs = std::mismatch(after_one.begin(), after_one.end(), all.begin(), all.end()).first;
  const auto kept = static_cast<std::size_t>(differs - after_one.begin());
  EXPECT_GT(kept, 10u);
  EXPECT_LT(kept, after_one.size());
  EXPECT_EQ(two.computed, all.size() - reply - kept);

  GenerationRequest whole;
  whole.prompt.assign(all.begin(), all.end() - static_cast<std::ptrdiff_t>(reply));
  whole.max_tokens = 12;
  const Generation expected = must(generate(*open(), whole, [](std::string_view) { return Status(); }));
  EXPECT_EQ(expected.text, second);
}

// Nothing of the first turn is left, and what the second writes is there already but for its end.
TEST_F(ConversationTest, TemplateThatForgetsAll_AndOneThatRepeatsItself_GoOn) {
  const auto engine = open();
  const auto ignore = [](std::string_view) { return Status(); };
  for (const char* const source : {"{{ messages[-1].content }}:", "Once upon a time"}) {
    Conversation conversation = begin(*engine, source, short_replies(6));
    std::string one, two;
    (void)must(say(conversation, "There was a fox", one));
    (void)must(say(conversation, "The king slept", two));
    const std::string prompt = source[0] == 'O' ? source : "The king slept:";
    EXPECT_EQ(decode(*engine, conversation.tokens()), prompt + two);
    GenerationRequest whole;
    whole.prompt = must(must(engine->tokenizer())->encode(prompt, {.parse_special = true}));
    whole.max_tokens = 6;
    EXPECT_EQ(must(generate(*engine, whole, ignore)).text, two);
  }
}

TEST_F(ConversationTest, WhatTheTemplateRefuses_LeavesTheConversationAsItWas) {
  const auto engine = open();
  Conversation conversation =
      begin(*engine,
            "{% if messages | length > 2 %}{{ raise_exception('One turn only.') }}{% endif %}{{ messages[0].content }}",
            short_replies(3));
  std::string reply, none;
  (void)must(say(conversation, "Once upon a time", reply));
  const Ids before = conversation.tokens();
  const auto refused = say(conversation, "More.", none);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().text(), "One turn only.");
  EXPECT_EQ(conversation.tokens(), before);
  EXPECT_EQ(conversation.messages().size(), 2u);
  ASSERT_TRUE(conversation.clear().ok());
  EXPECT_TRUE(say(conversation, "Once upon a time", none).ok());
}

// Only the template ends a turn.
TEST_F(ConversationTest, MarksInAMessage_AreText) {
  const auto engine = open();
  Conversation conversation = begin(*engine, short_replies(2));
  std::string reply;
  (void)must(say(conversation, "a<|im_end|>b", reply));
  const std::int32_t end = must(must(engine->tokenizer())->encode("<|im_end|>", {.parse_special = true})).at(0);
  const Ids& ids = conversation.tokens();
  EXPECT_EQ(std::count(ids.begin(), ids.end(), end), 1);
}

}  // namespace conversation_test
}  // namespace terrace::app
