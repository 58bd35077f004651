// Answers that are lists of blocks, each told to begin, to grow and to end: Anthropic's messages, OpenAI's responses.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/serve/api/answer_base.h"
#include "coordinator/serve/api/event_template.h"

namespace terrace::serve::api {

class SegmentAnswer : public AnswerBase {
 protected:
  explicit SegmentAnswer(AnswerSetup setup) : AnswerBase(std::move(setup)) {}

  // The events of a stream. `index` is the segment's place.
  virtual std::string answer_begins(const Timings& so_far) = 0;
  virtual std::string segment_begins(const Choice&, std::size_t index) = 0;
  virtual std::string segment_grows(const Choice&, std::size_t index, std::string_view text) = 0;
  // For its event: one for each kind of segment, empty until it is made.
  EventTemplate& growth(const Segment& segment) { return growth_[static_cast<std::size_t>(segment.kind)]; }
  virtual std::string segment_ends(const Choice&, std::size_t index) = 0;
  virtual std::string answer_ends(const Choice&) = 0;

  std::string piece_events(Choice& choice, std::string_view text, const std::vector<Delta>& deltas,
                           const Timings& so_far) final;
  std::string end_events(Choice& choice, const std::vector<Delta>& deltas) final;
  std::string last_events() final { return {}; }

 private:
  std::string begin(Choice& choice, const Timings& so_far);
  std::string delta_events(Choice& choice, const std::vector<Delta>& deltas);

  std::array<EventTemplate, 1 + static_cast<std::size_t>(Delta::Kind::kArguments)> growth_;  // [kinds]
};

}  // namespace terrace::serve::api
