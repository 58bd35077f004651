#include "coordinator/serve/api/answer_segments.h"

namespace terrace::serve::api {

std::string SegmentAnswer::begin(Choice& choice, const Timings& so_far) {
  return std::exchange(choice.begun, true) ? std::string() : answer_begins(so_far);
}

// The deltas are in the segments already; here they are only told.
std::string SegmentAnswer::delta_events(Choice& choice, const std::vector<Delta>& deltas) {
  std::string bytes;
  for (const Delta& delta : deltas) {
    std::size_t& opened = choice.n_opened;
    const bool is_call = delta.kind == Delta::Kind::kCall;
    const bool grows = delta.kind == Delta::Kind::kArguments ||
                       (!is_call && opened > 0 && choice.segments[opened - 1].kind == delta.kind);
    if (!grows) {
      if (opened > 0) bytes += segment_ends(choice, opened - 1);
      bytes += segment_begins(choice, opened++);
    }
    if (!is_call) bytes += segment_grows(choice, opened - 1, delta.text);
  }
  return bytes;
}

std::string SegmentAnswer::piece_events(Choice& choice, std::string_view, const std::vector<Delta>& deltas,
                                        const Timings& so_far) {
  std::string bytes = begin(choice, so_far);  // events are numbered: one statement each
  bytes += delta_events(choice, deltas);
  return bytes;
}

std::string SegmentAnswer::end_events(Choice& choice, const std::vector<Delta>& deltas) {
  std::string bytes = begin(choice, choice.timings);
  bytes += delta_events(choice, deltas);
  if (choice.n_opened > 0) bytes += segment_ends(choice, choice.n_opened - 1);
  bytes += answer_ends(choice);
  return bytes;
}

}  // namespace terrace::serve::api
