// `terrace chat` as a person uses it, on a terminal, and as a script does.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <thread>

#include "tests/e2e/support/cli.h"
#include "tests/e2e/support/node_process.h"
#include "tests/e2e/support/random_model.h"
#include "tests/e2e/support/terminal_process.h"

namespace terrace::test {
namespace cli_chat_test {

// What the line editor and the program show when a line is asked for.
const char* kPrompt = "> ";
const char* kStopped = "terrace: stopped; what was shown stays in the conversation";

class Chat : public ::testing::Test {
 protected:
  Arguments arguments(const Arguments& flags) const {
    Arguments all = {"chat", "-m", demo_model().string()};
    all.insert(all.end(), flags.begin(), flags.end());
    return terrace(all);
  }
  TerminalProcess on_terminal(const Arguments& flags) const {
    return TerminalProcess(arguments(flags), {"XDG_STATE_HOME=" + state_.path().string(), "HOME=/nonexistent"});
  }
  // A model without end tokens: a reply goes on until it is stopped.
  std::string endless_model() const {
    const auto file = state_ / "endless.gguf";
    make_random_model({.layers = 2, .d_model = 256, .experts = 8, .ff = 256, .type = "q8_0", .seed = 3}, file);
    return file.string();
  }
  std::string history() const { return read_file(state_.path() / "terrace" / "chat_history"); }

  const TempDir state_;
};

TEST_F(Chat, Piped_EachLineIsAMessage_AndOnlyRepliesAreOnStdout) {
  const Outcome run = run_program(arguments({"--quiet", "--max-tokens", "12"}),
                                  "Tell me a story about a fox.\n\n  \nGo on.\r\n/help is no command here");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_GE(std::count(run.out.begin(), run.out.end(), '\n'), 3) << run.out;
  EXPECT_EQ(run.out.find("<|"), std::string::npos);
  EXPECT_EQ(run.out.find(kPrompt), std::string::npos);
  const Outcome first = run_program(arguments({"--quiet", "--max-tokens", "12"}), "Tell me a story about a fox.\n");
  EXPECT_TRUE(run.out.starts_with(first.out)) << run.out;
  EXPECT_EQ(run_program(arguments({"--quiet"}), "").out, "");
}

// The reply is the one that generate gives to the same text; a node changes nothing.
TEST_F(Chat, Reply_IsWhatTheModelMakesOfTheTemplate_WithAndWithoutANode) {
  const Outcome plain = run_program(arguments({"--quiet", "--system", "You tell stories."}), "Tell me of a fox.\n");
  const std::string prompt =
      "<|im_start|>system\nYou tell stories.<|im_end|>\n<|im_start|>user\nTell me of a fox.<|im_end|>\n"
      "<|im_start|>assistant\n";
  const Outcome generated =
      run_terrace({"generate", "--quiet", "-m", demo_model().string(), "-p", prompt, "-n", "4000"});
  EXPECT_EQ(plain.out, generated.out);
  NodeProcess node;
  const std::string lines = "Tell me of a fox.\nAnd then?\n";
  const Outcome alone = run_program(arguments({"--quiet", "-n", "30", "--temperature", "0.8", "--seed", "5"}), lines);
  const Outcome spread = run_program(
      arguments({"--quiet", "-n", "30", "--temperature", "0.8", "--seed", "5", "--node", node.address()}), lines);
  EXPECT_EQ(spread.exit_code, 0) << spread.err;
  EXPECT_EQ(spread.out, alone.out);
  node.stop();
}

TEST_F(Chat, Piped_AMessageThatDoesNotFit_IsAFailureWithTheNumbers) {
  const Outcome run = run_program(arguments({"--quiet", "--ctx-size", "32", "-n", "4"}),
                                  "Hi.\n" + std::string(200, 'x') + "\nNever said.\n");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.err.find("and the context holds 32"), std::string::npos) << run.err;
}

TEST_F(Chat, FlagsOfOtherCommands_AreRefused) {
  for (const char* flag : {"--json", "--stream", "--no-special"}) {
    const Outcome run = run_program(arguments({flag}));
    EXPECT_EQ(run.exit_code, 2) << flag;
    EXPECT_NE(run.err.find(std::string("unknown flag ") + flag), std::string::npos) << run.err;
  }
}

// A model file with other bytes in its template, as many.
std::string with_template_bytes(const std::string& from, const std::string& to) {
  std::string bytes = read_file(demo_model());
  const std::size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  EXPECT_EQ(from.size(), to.size());
  return bytes.replace(at, to.size(), to);
}

TEST_F(Chat, ModelWithoutATemplateThatWorks_IsRefused_BeforeANodeIsAsked) {
  const std::pair<std::string, const char*> cases[] = {
      {with_template_bytes("tokenizer.chat_template", "tokenizer.chat_templat_"), "has no chat template"},
      {with_template_bytes("{% for message", "{% fox message"), "there is no statement 'fox'"},
      {with_template_bytes("message['content']", "nessage['content']"), "'nessage' is undefined"},
  };
  for (const auto& [bytes, says] : cases) {
    write_file(state_ / "other.gguf", bytes);
    const Outcome run = run_program(
        terrace({"chat", "--quiet", "-m", (state_ / "other.gguf").string(), "--node", "127.0.0.1:1"}), "Hello\n");
    EXPECT_EQ(run.exit_code, 1);
    EXPECT_EQ(run.out, "");
    EXPECT_NE(run.err.find("other.gguf: "), std::string::npos) << run.err;
    EXPECT_NE(run.err.find(says), std::string::npos) << run.err;
  }
}

// The template's words reach the model: the same reply as generate gives to what `terrace template` prints.
TEST_F(Chat, TheFilesOwnTemplateIsUsed) {
  write_file(state_ / "other.gguf", with_template_bytes("<|im_start|>assistant", "<|im_start|>storyline"));
  const std::string model = (state_ / "other.gguf").string();
  write_file(state_ / "in.json",
             R"({"messages": [{"role": "user", "content": "Tell me of a fox."}], "add_generation_prompt": true})");
  const Outcome prompt = run_terrace({"template", "-m", model, "--input", (state_ / "in.json").string()});
  EXPECT_NE(prompt.out.find("storyline"), std::string::npos) << prompt.out << prompt.err;
  const Outcome generated = run_terrace({"generate", "--quiet", "-m", model, "-p", prompt.out, "-n", "20"});
  const Outcome said = run_program(terrace({"chat", "--quiet", "-m", model, "-n", "20"}), "Tell me of a fox.\n");
  EXPECT_EQ(said.exit_code, 0) << said.err;
  EXPECT_EQ(said.out, generated.out);
}

TEST_F(Chat, Terminal_ALineIsEditedAndAnswered_CtrlDEnds) {
  TerminalProcess chat = on_terminal({"-n", "8"});
  chat.wait_for(kPrompt);
  chat.type(
      "Tell mx\x7f"
      "e of a fox.\r");  // the wrong letter is taken back
  chat.wait_for("terrace: --max-tokens ended the reply");
  chat.wait_for(kPrompt);
  chat.type("\x04");
  EXPECT_EQ(chat.wait(), 0);
  EXPECT_EQ(history(), "Tell me of a fox.\n");
  struct stat status {};
  ASSERT_EQ(::stat((state_.path() / "terrace" / "chat_history").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  // What was shown behind the line is what a script gets.
  const std::string text = without_escapes(chat.shown());
  const Outcome piped = run_program(arguments({"--quiet", "-n", "8"}), "Tell me of a fox.\n");
  EXPECT_NE(text.find(piped.out), std::string::npos) << text;
}

TEST_F(Chat, Terminal_CtrlC_StopsTheReply_AndTheNextLineIsAnswered) {
  NodeProcess node;
  TerminalProcess chat(terrace({"chat", "-m", endless_model(), "--ctx-size", "20000", "--node", node.address(),
                                "--temperature", "5", "--seed", "2"}),
                       {"XDG_STATE_HOME=" + state_.path().string()});
  for (const char* message : {"one\r", "two\r"}) {
    chat.wait_for(kPrompt);
    chat.type(message);
    // A good part of a reply: more than the echo of the line.
    ASSERT_TRUE(eventually([&, before = chat.shown().size()] { return chat.shown().size() > before + 200; }));
    chat.type("\x03");
    chat.wait_for(kStopped);
    EXPECT_TRUE(chat.running());
  }
  chat.wait_for(kPrompt);
  chat.type("/quit\r");
  EXPECT_EQ(chat.wait(), 0);
  node.stop();
}

TEST_F(Chat, Terminal_CtrlCAtThePrompt_DropsTheLine) {
  TerminalProcess chat = on_terminal({"-n", "2"});
  chat.wait_for(kPrompt);
  chat.type("never said");
  chat.wait_for("never said");
  chat.type("\x03");
  chat.wait_for(kPrompt);
  chat.type("\x03");
  chat.wait_for(kPrompt);
  // A terminal drops a Ctrl-D that comes between two lines, as it may behind a Ctrl-C: people type it again.
  for (int tries = 0; tries < 20 && chat.running(); ++tries) {
    chat.type("\x04");
    for (int i = 0; i < 100 && chat.running(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(chat.wait(), 0);
  EXPECT_FALSE(std::filesystem::exists(state_.path() / "terrace" / "chat_history"));
}

TEST_F(Chat, Terminal_LinesOfTheLastRunComeBack) {
  {
    TerminalProcess chat = on_terminal({"-n", "1"});
    for (const char* line : {"first line\r", "Größe 猫\r"}) {
      chat.wait_for(kPrompt);
      chat.type(line);
    }
    chat.wait_for(kPrompt);
    chat.type("\x04");
    EXPECT_EQ(chat.wait(), 0);
  }
  EXPECT_EQ(history(), "first line\nGröße 猫\n");
  TerminalProcess chat = on_terminal({"-n", "1"});
  chat.wait_for(kPrompt);
  chat.type("\x1b[A");  // up
  EXPECT_NE(without_escapes(chat.wait_for("猫")).find("Größe 猫"), std::string::npos);
  chat.type("\x1b[A");
  chat.wait_for("first");
  chat.type(" again\r");
  chat.wait_for(kPrompt);
  chat.type("\x04");
  EXPECT_EQ(chat.wait(), 0);
  EXPECT_EQ(history(), "first line\nGröße 猫\nfirst line again\n");
}

TEST_F(Chat, Terminal_FullContext_IsTold_TheConversationIsKept_AndClearBeginsAnew) {
  TerminalProcess chat = on_terminal({"--ctx-size", "40"});
  chat.wait_for(kPrompt);
  chat.type("Tell me a long story about a dragon and a king.\r");
  chat.wait_for("terrace: the context of ");
  chat.wait_for(kPrompt);
  chat.type("Go on.\r");
  chat.wait_for("and the context holds 40");
  chat.wait_for(kPrompt);
  chat.type("/clear\r");
  chat.wait_for("terrace: the conversation begins anew");
  chat.wait_for(kPrompt);
  chat.type("Tell me more.\r");
  chat.wait_for("terrace: the context of ");
  chat.wait_for(kPrompt);
  chat.type("/nothing\r");
  chat.wait_for("terrace: there is no command /nothing; there are /clear, /help and /quit");
  chat.type("\x04");
  EXPECT_EQ(chat.wait(), 0);
}

// While the model loads Ctrl-C ends the program, as it does anywhere else. The node does not answer, so it loads for
// ever.
TEST_F(Chat, Terminal_CtrlCWhileItLoads_EndsTheProgram) {
  NodeProcess node;
  node.kill(SIGSTOP);
  TerminalProcess chat = on_terminal({"--node", node.address()});
  const std::filesystem::path threads = "/proc/" + std::to_string(chat.pid()) + "/task";
  ASSERT_TRUE(eventually([&] {  // the thread that takes Ctrl-C is there
    return std::distance(std::filesystem::directory_iterator(threads), {}) > 1;
  }));
  chat.type("\x03");
  EXPECT_EQ(chat.wait(), -1);
  EXPECT_FALSE(chat.running());
  node.kill(SIGCONT);
}

TEST_F(Chat, Terminal_TheTerminalIsAsBefore_AfterTheEnd) {
  TerminalProcess shell(
      {"/bin/sh", "-c",
       "stty -a >" + (state_ / "before").string() + "; \"$0\" chat -m \"$1\"; stty -a >" + (state_ / "after").string(),
       program("terrace"), demo_model().string()},
      {"XDG_STATE_HOME=" + state_.path().string()});
  shell.wait_for(kPrompt);
  shell.type("\x04");
  EXPECT_EQ(shell.wait(), 0);
  EXPECT_EQ(read_file(state_ / "after"), read_file(state_ / "before"));
}

}  // namespace cli_chat_test
}  // namespace terrace::test
