// Grammars by their text, so that requests with equal ones share what was compiled and what streams have found of it.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "coordinator/sampler/grammar/grammar.h"

namespace terrace::sampler {

// Any thread; two that ask for the same new text at once may both compile it.
class GrammarCache {
 public:
  // The least recently used leaves; so does nothing that is longer than kMaxText: it is never kept.
  static constexpr std::size_t kMaxGrammars = 16;
  static constexpr std::size_t kMaxText = std::size_t{64} << 10;

  // Errors as Grammar's functions; they are not kept.
  Result<std::shared_ptr<const Grammar>> from_gbnf(std::string_view text);
  Result<std::shared_ptr<const Grammar>> from_json_schema(std::string_view schema);

 private:
  using Make = Result<std::shared_ptr<const Grammar>> (*)(std::string_view text);
  struct Entry {
    Make make = nullptr;
    std::string text;
    std::shared_ptr<const Grammar> grammar;
  };
  Result<std::shared_ptr<const Grammar>> get(Make make, std::string_view text);
  std::shared_ptr<const Grammar> find(Make make, std::string_view text);

  std::mutex mutex_;
  std::list<Entry> entries_;  // the last used first
};

}  // namespace terrace::sampler
