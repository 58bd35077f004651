#include "coordinator/text/stream_decoder.h"

#include "common/base/utf8.h"

namespace terrace::text {
namespace {

constexpr std::size_t kCutBytes = 3;  // of the longest character, all but its last

}  // namespace

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options)
    : tokenizer_(&tokenizer), options_(options) {
  const std::size_t longest = kCutBytes + tokenizer.longest_token();
  held_.reserve(longest);
  shown_.reserve(longest * kReplacementCharacter.size());  // every byte of it may be a bad one
}

std::string_view StreamDecoder::push(std::int32_t id) {
  shown_.clear();
  held_ += tokenizer_->bytes(id, options_);
  std::string_view rest = held_;
  while (!rest.empty()) {
    const Utf8Step step = utf8_step(rest);
    if (step.kind == Utf8Kind::kCut) break;
    shown_ += step.kind == Utf8Kind::kCharacter ? rest.substr(0, step.length) : kReplacementCharacter;
    rest.remove_prefix(step.length);
  }
  held_.erase(0, held_.size() - rest.size());
  return shown_;
}

std::string_view StreamDecoder::flush() {
  shown_.clear();
  if (!held_.empty()) shown_ = kReplacementCharacter;  // a character that was cut is one ill-formed subpart
  held_.clear();
  return shown_;
}

}  // namespace terrace::text
