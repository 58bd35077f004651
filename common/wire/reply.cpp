#include "common/wire/bytes.h"
#include "common/wire/messages.h"
#include "common/wire/pack.h"

namespace terrace::wire {
namespace {

Status check_info(const ReplyInfo& info, const BatchLimits& limits) {
  if (info.range_index >= limits.max_ranges)
    return corrupt("reply: range {}, this session allows {} in a batch", info.range_index, limits.max_ranges);
  if (info.n_rows > limits.max_rows)
    return corrupt("reply: {} rows, this session allows {}", info.n_rows, limits.max_rows);
  if (info.n_pairs > limits.max_pairs)
    return corrupt("reply: {} pairs, this session allows {}", info.n_pairs, limits.max_pairs);
  // Every row that is answered has a pair, and every pair a row.
  if (info.n_rows > info.n_pairs || (info.n_rows == 0) != (info.n_pairs == 0))
    return corrupt("reply: {} rows do not go with {} pairs", info.n_rows, info.n_pairs);
  return {};
}

Status read_sums(const Section& section, std::uint32_t d_model, ReplyView& reply) {
  std::size_t at = 0;
  for (std::uint32_t row = 0; row < reply.info.n_rows; ++row) {
    auto bytes = packed_row_bytes(section.data.subspan(at), d_model);
    if (!bytes.ok())
      return bytes.error().in(fmt::format("reply: row {} of {} (byte {} of sums)", row, reply.info.n_rows, at));
    at += *bytes;
  }
  if (at != section.data.size())
    return corrupt("reply: sums have {} bytes, their {} rows end at {}", section.data.size(), reply.info.n_rows, at);
  reply.form = ReplyForm::kSum;
  reply.sums = section.data;
  return {};
}

Status read_slots(const Frame& frame, std::uint32_t d_model, ReplyView& reply) {
  reply.form = ReplyForm::kSlots;
  TERRACE_ASSIGN_OR_RETURN(reply.slots,
                           read_array<float>(frame, SectionTag::kSlots, std::uint64_t{reply.info.n_pairs} * d_model));
  return {};
}

Status read_values(const Frame& frame, std::uint32_t d_model, ReplyView& reply) {
  const Section* sums = frame.find(SectionTag::kSums);
  const Section* slots = frame.find(SectionTag::kSlots);
  if ((sums == nullptr) == (slots == nullptr))
    return corrupt("reply: {} of sums and slots, exactly one is expected", sums == nullptr ? "neither" : "both");
  return sums != nullptr ? read_sums(*sums, d_model, reply) : read_slots(frame, d_model, reply);
}

Status read_failed_rows(const Frame& frame, const BatchLimits& limits, ReplyView& reply) {
  const Section* section = frame.find(SectionTag::kFailedRows);
  if (section == nullptr) return {};
  const std::size_t count = section->data.size() / sizeof(std::uint16_t);
  if (count == 0 || section->data.size() % sizeof(std::uint16_t) != 0 || count > reply.info.n_rows)
    return corrupt("reply: failed_rows has {} bytes, 2 for each of 1 to {} rows are expected", section->data.size(),
                   reply.info.n_rows);
  TERRACE_ASSIGN_OR_RETURN(reply.failed_rows, read_array<std::uint16_t>(frame, SectionTag::kFailedRows, count));
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t row = reply.failed_rows[i];
    if (row >= limits.max_rows || (i > 0 && row <= reply.failed_rows[i - 1]))
      return corrupt("reply: failed row {} (entry {}) is not below {} or does not rise", row, i, limits.max_rows);
  }
  return {};
}

}  // namespace

void add_reply(FrameBuilder& builder, const ReplyInfo& info, ReplyForm form, std::span<const std::byte> data,
               std::span<const std::uint16_t> failed_rows) {
  builder.add_copy(SectionTag::kReply, 0, bytes_of(info));
  builder.add(form == ReplyForm::kSum ? SectionTag::kSums : SectionTag::kSlots, 0, data);
  if (!failed_rows.empty()) builder.add(SectionTag::kFailedRows, 0, std::as_bytes(failed_rows));
}

Result<ReplyView> read_reply(const Frame& frame, const BatchLimits& limits) {
  TERRACE_RETURN_IF_ERROR(expect_type(frame, FrameType::kReply));
  ReplyView reply;
  reply.sequence = frame.header.sequence;
  reply.epoch = frame.header.epoch;
  reply.layer = frame.header.layer;
  if (reply.layer >= limits.n_layers) return corrupt("reply: layer {}, the model has {}", reply.layer, limits.n_layers);
  TERRACE_ASSIGN_OR_RETURN(reply.info, read_struct<ReplyInfo>(frame, SectionTag::kReply));
  TERRACE_RETURN_IF_ERROR(check_info(reply.info, limits));
  TERRACE_RETURN_IF_ERROR(read_values(frame, limits.d_model, reply));
  TERRACE_RETURN_IF_ERROR(read_failed_rows(frame, limits, reply));
  return reply;
}

std::uint64_t widest_reply_frame_bytes(ReplyForm form, std::uint32_t rows, std::uint32_t pairs, std::uint32_t d_model) {
  const std::uint64_t values = form == ReplyForm::kSum ? rows * std::uint64_t{widest_packed_bytes(d_model)}
                                                       : std::uint64_t{pairs} * d_model * sizeof(float);
  return kHeaderBytes + section_bytes(sizeof(ReplyInfo)) + section_bytes(values) +
         section_bytes(std::uint64_t{rows} * sizeof(std::uint16_t));
}

}  // namespace terrace::wire
