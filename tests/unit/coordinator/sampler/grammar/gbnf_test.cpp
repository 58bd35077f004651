#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/sampler/grammar/matching.h"

namespace terrace::sampler::grammar {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const Grammar> compile(std::string_view text) {
  auto grammar = Grammar::from_gbnf(text);
  EXPECT_TRUE(grammar.ok()) << (grammar.ok() ? "" : grammar.error().text());
  return grammar.ok() ? *grammar : Grammar::from_gbnf("root ::= \"\"").value();
}

struct Case {
  std::string grammar;
  std::vector<std::string> whole;
  std::vector<std::string> not_whole;
};

TEST(Gbnf, Notation_TakesWhatItSays) {
  const Case cases[] = {
      {R"(root ::= "ab" [0-9] "c")", {"ab7c"}, {"", "ab", "ab7", "abxc", "ab7cc"}},
      {R"(root ::= "a" | "bc" | "")", {"", "a", "bc"}, {"b", "abc"}},
      {R"(root ::= "a"*)", {"", "a", "aaaa"}, {"b", "ab"}},
      {R"(root ::= "a"+)", {"a", "aaaa"}, {"", "ab"}},
      {R"(root ::= "a"? "b")", {"b", "ab"}, {"a", "aab"}},
      {R"(root ::= "a"{3})", {"aaa"}, {"", "aa", "aaaa"}},
      {R"(root ::= "a"{2,})", {"aa", "aaaaa"}, {"", "a"}},
      {R"(root ::= "a"{ 1 , 3 } "b")", {"ab", "aaab"}, {"b", "aaaab"}},
      {R"(root ::= "a"{0} "b")", {"b"}, {"ab"}},
      {R"(root ::= ("a" "b"{2}){2,3})", {"abbabb", "abbabbabb"}, {"abb", "abbab", "abbabbabbabb", "abbbb"}},
      {R"(root ::= ("a"? "b"?){2})",
       {"", "a", "ab", "ba", "abab"},
       {"aba"
        "bb",
        "aaa", "abc"}},
      {R"(root ::= ("a" | "b" | "c"){2} "." )", {"ab.", "cc."}, {"a.", "abc."}},
      {R"(root ::= [^a-c\n])", {"d", "\xc3\xa9", "\xf0\x9f\x98\x80", "\t"}, {"a", "b", "\n", "", "dd"}},
      {R"(root ::= [a\-z])", {"a", "-", "z"}, {"b"}},
      {R"(root ::= [a-])", {"a", "-"}, {"b"}},
      {R"(root ::= [\]\[])", {"]", "["}, {"\\"}},
      {R"(root ::= [\u00e0-\u00ff])", {"\xc3\xa0", "\xc3\xbf"}, {"\xc2\xa0", "a", "\xc3", "\xff"}},
      {"root ::= [\xd0\xb0-\xd1\x8f]+", {"\xd0\xbc\xd0\xb8\xd1\x80"}, {"mir", "\xd0"}},
      {R"(root ::= "\x41\u00e9\U0001F600\t\"\\")", {"A\xc3\xa9\xf0\x9f\x98\x80\t\"\\"}, {"A\xe9"}},
      {R"(root ::= .)",
       {"a", "\n", "\xe2\x82\xac"},
       {"", "ab", "\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\x80"}},
      {"# about\nroot ::= a b # the end\n\n a::=\"x\"\nb ::=\n  \"y\"\n", {"xy"}, {"x"}},
      {"root ::= (\n  \"a\" # one\n  | \"b\"\n)+\n", {"ab"}, {""}},
      {"root ::= \"a\"\n  | \"b\"\n  | c\nc ::= \"c\"", {"a", "b", "c"}, {"ab"}},
      {R"(root ::= "a" "b" | "c" "d")", {"ab", "cd"}, {"ad", "abcd", "abd"}},
      {"root ::= \"(\" root \")\" | \"x\"", {"x", "((x))"}, {"(x", "x)", "()"}},
      {"root ::= item (\",\" item)*\nitem ::= [0-9]+", {"1", "1,22,3"}, {"1,", ",1", ""}},
      {"root ::= \"a\" root | \"\"", {"", "aaa"}, {"b"}},
      {"root ::= x{2} y\nx ::= \"a\" | \"b\" x\ny ::= \"c\"", {"aac", "babac", "abac"}, {"ac", "aaac"}},
      {"root ::= (\"ab\"* \"a\")* \"c\"", {"c", "abac", "aac", "ababac"}, {"abc", "b"}},
      {"root ::= _a-1\n_a-1 ::= \"q\"", {"q"}, {""}},
  };
  for (const Case& c : cases) {
    const auto grammar = compile(c.grammar);
    for (const std::string& text : c.whole)
      EXPECT_TRUE(takes(*grammar, text)) << c.grammar << "\ndoes not take " << text;
    for (const std::string& text : c.not_whole) EXPECT_FALSE(takes(*grammar, text)) << c.grammar << "\ntakes " << text;
  }
}

TEST(Gbnf, WrongNotation_NamesLineAndColumn) {
  const struct {
    std::string grammar;
    std::string message;
  } cases[] = {
      {"", "no rule named root"},
      {"a ::= \"x\"", "no rule named root"},
      {"root ::= a\n", "line 1, column 10: rule \"a\" is not defined"},
      {"root ::= \"x\"\nroot ::= \"y\"", "line 2, column 1: rule \"root\" is defined a second time"},
      {"root = \"x\"", "line 1, column 6: ::= is missing after the name \"root\""},
      {"root ::= \"x", "line 1, column 10: this literal is not closed"},
      {"root ::= \"\xc3\xa9\xc3\xa9\" [a", "line 1, column 15: this character class is not closed"},
      {"root ::= [z-a]", "line 1, column 11: this range ends before it begins"},
      {"root ::= []", "line 1, column 10: no character is in this class"},
      {"root ::= (\"x\"", "line 1, column 10: this group is not closed"},
      {"root ::= \"x\")", "line 1, column 13: this begins no part of a rule"},
      {"root ::= (\"x\" ! )", "line 1, column 15: this begins no part of a group"},
      {"root ::= \"\\q\"", "line 1, column 11: this is no escape"},
      {"root ::= \"\\x4\"", "line 1, column 11: \\x takes 2 hexadecimal digits"},
      {"root ::= \"\\ud800\"", "line 1, column 11: U+D800 is no character"},
      {"root ::= \"\\U00110000\"", "line 1, column 11: U+110000 is no character"},
      {"root ::= \"a\xff\"", "line 1, column 12: this is not UTF-8"},
      {"root ::= \"a\"{", "line 1, column 14: a number of times is missing"},
      {"root ::= \"a\"{3,2}", "line 1, column 13: at least 3 times and at most 2"},
      {"root ::= \"a\"{3", "line 1, column 15: the repetition is not closed"},
      {"root ::= \"a\"{0,1000000}", "line 1, column 16: repeated 1000000 times; allowed are 100000"},
      {"root ::= \"a\"{99999999999999999999}", "allowed are 100000"},
      {"root ::= \"a\"?*+?", "line 1, column 16: more than 3 repetitions of one thing"},
      {"root ::= * \"a\"", "line 1, column 10: this begins no part of a rule"},
      {"root ::= <[1000]>", "line 1, column 10: token references"},
      {"root ::= \"a\"\n\n\n  \"b\"", "line 4, column 3: a rule begins with its name"},
      {"root ::= \"x\"\na ::= a", ""},  // not reached from root: of no concern
      {"root ::= root \"a\" | \"b\"", "line 1, column 1: rule \"root\": left recursion"},
      {"root ::= a\na ::= b \"x\"\nb ::= \"\" a | \"y\"", "left recursion"},
      {"root ::= a\na ::= e a \"x\" | \"y\"\ne ::= \" \"*", "line 2, column 1: rule \"a\": left recursion"},
      {"root ::= (root)*", "left recursion"},
      {"root ::= \"a\"{0,2} root | \"x\"", "left recursion"},
      {"root ::= \"(\" root \")\"", "line 1, column 1: rule \"root\": no text can end it"},
      {"root ::= \"a\" | x\nx ::= \"b\" x", "line 2, column 1: rule \"x\": no text can end it"},
      {"root ::= [^\\U00000000-\\U0010FFFF]", "no character is in this class"},
      {"root ::= x{65}\nx ::= \"a\"*", ""},  // may be empty, and x{65,} is x*
  };
  for (const auto& c : cases) {
    const auto grammar = Grammar::from_gbnf(c.grammar);
    if (c.message.empty()) continue;
    ASSERT_FALSE(grammar.ok()) << c.grammar;
    EXPECT_EQ(grammar.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(grammar.error().text(), HasSubstr(c.message)) << c.grammar;
  }
}

TEST(Gbnf, LeftRecursionBehindACountedBeginning_IsNone) {
  const auto grammar = compile("root ::= \"a\"{2} root | \"x\"");
  EXPECT_TRUE(takes(*grammar, "aaaax"));
  EXPECT_FALSE(takes(*grammar, "aaax"));
}

TEST(Gbnf, EveryTruncationOfAGrammar_IsAnErrorOrAGrammar) {
  const std::string text = "root ::= (\"a\\x41\" | [^a-c\\u1234]{2,3} # x\n | b)+ .?\nb ::= \"\\\"\"* \"end\"\n";
  int n_ok = 0;
  for (std::size_t n = 0; n <= text.size(); ++n) n_ok += Grammar::from_gbnf(text.substr(0, n)).ok() ? 1 : 0;
  EXPECT_GT(n_ok, 1);
}

}  // namespace
}  // namespace terrace::sampler::grammar
