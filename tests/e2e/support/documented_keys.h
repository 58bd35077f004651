// The tables of keys in docs/formats.md, and whether a program's JSON has those keys and no others.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/test_data.h"

namespace terrace::test {

using Keys = std::set<std::string>;

// What stands between backticks.
inline std::vector<std::string> words_in_backticks(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; std::getline(std::getline(in, word, '`'), word, '`');) words.push_back(word);
  return words;
}

// "| key | what |" or "| key | when | what |": a key with a condition in `when` is there only then.
struct KeyTable {
  Keys always, sometimes;
  std::map<std::string, std::string> what;  // of each key
};

// The first table behind "### <title>", or behind "<title>:".
inline KeyTable key_table(const std::string& title) {
  std::ifstream in(source_dir() / "docs" / "formats.md");
  const std::string page((std::istreambuf_iterator<char>(in)), {});
  const std::size_t begin = std::min(page.find("\n### " + title + "\n"), page.find("\n" + title + ":\n"));
  EXPECT_NE(begin, std::string::npos) << "docs/formats.md has no " << title;
  KeyTable table;
  if (begin == std::string::npos) return table;
  std::istringstream lines(page.substr(page.find("\n| key |", begin) + 1));
  bool conditions = false;
  for (std::string line; std::getline(lines, line) && line.starts_with('|');) {
    conditions = conditions || line.starts_with("| key | when |");
    const std::size_t first = line.find('|', 1), second = conditions ? line.find('|', first + 1) : first;
    const bool always = line.find_first_not_of(" |", first) >= second;
    for (const std::string& key : words_in_backticks(line.substr(0, first))) {
      (always ? table.always : table.sometimes).insert(key);
      table.what[key] = line.substr(second);
    }
  }
  return table;
}

// The object's keys are those of these tables but for `absent`, which are all keys that need not be there.
template <class Json>
void expect_documented(const Json& object, const std::vector<std::string>& titles, const Keys& absent = {}) {
  ASSERT_TRUE(object.is_object()) << object;
  Keys found, wanted, sometimes;
  for (const auto& [key, value] : object.items()) found.insert(key);
  for (const std::string& title : titles) {
    const KeyTable table = key_table(title);
    wanted.insert(table.always.begin(), table.always.end());
    sometimes.insert(table.sometimes.begin(), table.sometimes.end());
  }
  EXPECT_TRUE(std::ranges::includes(sometimes, absent)) << "docs/formats.md: keys without a condition are absent";
  wanted.insert(sometimes.begin(), sometimes.end());
  for (const std::string& key : absent) wanted.erase(key);
  EXPECT_EQ(found, wanted) << "docs/formats.md, " << titles.back();
}

// All keys in `value`, at any depth, but for numbers of rows.
template <class Json>
Keys keys_within(const Json& value) {
  Keys keys;
  for (const auto& [key, inner] : value.items()) {
    if (value.is_object() && key.find_first_not_of("0123456789") != std::string::npos) keys.insert(key);
    if (inner.is_structured()) keys.merge(keys_within(inner));
  }
  return keys;
}

// What is said of object[key] names the keys within it, and no others.
template <class Json>
void expect_documented_within(const Json& object, const std::string& title, const std::string& key) {
  const std::vector<std::string> said = words_in_backticks(key_table(title).what[key]);
  EXPECT_EQ(keys_within(object[key]), Keys(said.begin(), said.end())) << "docs/formats.md, " << title << ", " << key;
}

}  // namespace terrace::test
