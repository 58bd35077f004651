#include "coordinator/text/stream_decoder.h"

#include <string_view>

#include "common/base/utf8.h"

namespace terrace::text {

std::string StreamDecoder::push(std::int32_t id) {
  held_ += tokenizer_->bytes(id, options_);
  std::string_view rest = held_;
  std::string out;
  while (!rest.empty()) {
    const Utf8Step step = utf8_step(rest);
    if (step.kind == Utf8Kind::kCut) break;
    out += step.kind == Utf8Kind::kCharacter ? rest.substr(0, step.length) : kReplacementCharacter;
    rest.remove_prefix(step.length);
  }
  held_.erase(0, held_.size() - rest.size());
  return out;
}

std::string StreamDecoder::flush() {
  std::string out = replace_bad_utf8(held_);
  held_.clear();
  return out;
}

}  // namespace terrace::text
