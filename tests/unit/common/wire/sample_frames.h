// One lawful frame of each type, for tests that bend them.
#pragma once

#include <vector>

#include "common/wire/pack.h"
#include "tests/unit/common/wire/frames.h"

namespace terrace::wire::test {

template <class Add>
FrameBytes frame_of(FrameType type, Add add) {
  FrameBuilder builder;
  builder.begin({.type = type, .lane = Lane::kWeights, .layer = 1, .session = 2, .sequence = 3, .epoch = 4});
  add(builder);
  return finish(builder);
}
// Of a handshake, whose header says no more than it must.
template <class Add>
FrameBytes handshake_frame_of(const FrameHeader& header, Add add) {
  FrameBuilder builder;
  builder.begin(header);
  add(builder);
  return finish(builder);
}

inline FrameBytes sample_reply(ReplyForm form) {
  const ReplyInfo info{.range_index = 1, .n_rows = 2, .n_pairs = 3, .compute_us = 5};
  std::vector<std::byte> data(form == ReplyForm::kSum ? 2 * widest_packed_bytes(kLimits.d_model)
                                                      : 3 * kLimits.d_model * sizeof(float));
  if (form == ReplyForm::kSum) {
    const std::vector<std::int64_t> y(kLimits.d_model, 300);
    const std::size_t first = pack_row(y, data.data());
    data.resize(first + pack_row(y, data.data() + first));
  }
  const std::vector<std::uint16_t> failed{1, 3};
  return frame_of(FrameType::kReply, [&](FrameBuilder& b) { add_reply(b, info, form, data, failed); });
}

inline std::vector<FrameBytes> sample_frames() {
  std::vector<FrameBytes> frames;
  const std::vector<std::byte> data(21, std::byte{0x5a});
  frames.push_back(SampleBatch().bytes());
  frames.push_back(sample_reply(ReplyForm::kSum));
  frames.push_back(sample_reply(ReplyForm::kSlots));
  frames.push_back(handshake_frame_of({.type = FrameType::kChallenge}, [](auto& b) { add_challenge(b, {}); }));
  frames.push_back(handshake_frame_of({.type = FrameType::kProof, .lane = Lane::kBulk, .session = 2},
                                      [](auto& b) { add_proof(b, {.socket_index = 1}); }));
  frames.push_back(handshake_frame_of({.type = FrameType::kAccept, .lane = Lane::kBulk, .session = 2},
                                      [](auto& b) { add_accept(b, {}); }));
  frames.push_back(frame_of(FrameType::kHello, [](auto& b) { add_hello(b, {.largest_frame = 4096}); }));
  frames.push_back(frame_of(FrameType::kWelcome, [](auto& b) { add_welcome(b, {4096, 4096, 1, 0}); }));
  frames.push_back(frame_of(FrameType::kBusy, [](auto& b) { add_busy(b, {.expected_us = 1}); }));
  frames.push_back(frame_of(FrameType::kError, [](auto& b) { add_error(b, ErrorCode::kBusy, "no"); }));
  frames.push_back(frame_of(FrameType::kSlab, [&](auto& b) { add_slab_piece(b, {0, 1, 2, 100}, data); }));
  for (const auto type :
       {FrameType::kPing, FrameType::kPong, FrameType::kCredit, FrameType::kCancel, FrameType::kClose})
    frames.push_back(frame_of(type, [](auto&) {}));
  frames.push_back(handshake_frame_of({.type = FrameType::kEndpoint}, [&](auto& b) {
    add_endpoint(b, {{.token = 1, .window = 4096}, data});
  }));
  return frames;
}

}  // namespace terrace::wire::test
