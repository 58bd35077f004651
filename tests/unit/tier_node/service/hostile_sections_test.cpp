// Every section of every frame absent, empty, cut, stretched, huge and doubled: each time its own session (or
// connection) ends with an error that names the section, another session is served to the bit, and nothing stays
// behind.
#include "tests/unit/tier_node/service/hostile_client.h"

namespace terrace::node {
namespace hostile_sections_test {

using namespace test;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// Names the section, or at least the kind of frame that lacks it.
auto names(SectionTag tag, FrameType type) {
  return AnyOf(HasSubstr(wire::name(tag)), HasSubstr(fmt::format("{} frame", wire::name(type))),
               HasSubstr(fmt::format("{} frames", wire::name(type))));
}

struct SectionFault {
  const char* name;
  // Bends the section before the frame is made, or its bytes afterwards.
  std::function<void(TestFrame&, std::size_t nth)> bend;
  std::function<void(Bytes&, std::size_t section_offset)> patch;
};

std::vector<SectionFault> section_faults() {
  const auto announce = [](std::uint64_t length) {
    return [length](Bytes& bytes, std::size_t at) { put<std::uint64_t>(bytes, at + 8, length); };
  };
  return {
      {"absent",
       [](TestFrame& frame, std::size_t nth) {
         frame.sections.erase(frame.sections.begin() + static_cast<std::ptrdiff_t>(nth));
       },
       {}},
      {"empty", [](TestFrame& frame, std::size_t nth) { frame.sections[nth].data.clear(); }, {}},
      {"one byte short", [](TestFrame& frame, std::size_t nth) { frame.sections[nth].data.pop_back(); }, {}},
      {"doubled", [](TestFrame& frame, std::size_t nth) { frame.sections.push_back(frame.sections[nth]); }, {}},
      {"announces all that a length can", {}, announce(~std::uint64_t{0})},
      {"announces 2^63", {}, announce(std::uint64_t{1} << 63)},
      {"announces 4 GiB", {}, announce(std::uint64_t{1} << 32)},
      {"announces one padding more than is there",
       {},
       [](Bytes& bytes, std::size_t at) { put<std::uint64_t>(bytes, at + 8, bytes.size() - at); }},
      {"of an unknown tag", {}, [](Bytes& bytes, std::size_t at) { put<std::uint16_t>(bytes, at, 999); }},
      {"of an unknown detail", {}, [](Bytes& bytes, std::size_t at) { put<std::uint16_t>(bytes, at + 2, 2); }},
      {"with reserved bytes", {}, [](Bytes& bytes, std::size_t at) { put<std::uint32_t>(bytes, at + 4, 1); }},
  };
}

// Lawful after all: an error's text may have any length, and a slab's piece too.
bool is_lawful(FrameType type, SectionTag tag, const std::string& fault) {
  return fault == "one byte short" && type == FrameType::kSlab && tag == SectionTag::kSlabBytes;
}

TEST_F(HostileClient, EverySectionOfEveryFrame_AbsentEmptyShortDoubledHuge_NamedErrorAndOthersAreServed) {
  for (const FrameType type : kAllTypes) {
    const TestFrame whole = sample({.type = type});
    for (std::size_t nth = 0; nth < whole.sections.size(); ++nth) {
      const SectionTag tag = whole.sections[nth].tag;
      for (const SectionFault& fault : section_faults()) {
        if (is_lawful(type, tag, fault.name)) continue;
        SCOPED_TRACE(fmt::format("{} frame, section {} {}", wire::name(type), wire::name(tag), fault.name));
        const wire::ErrorMessage error = answer_to(type, lane_for(type), [&](const wire::FrameHeader& header) {
          TestFrame frame = sample(header);
          if (fault.bend) fault.bend(frame, nth);
          Bytes bytes = frame.bytes();
          if (fault.patch) fault.patch(bytes, frame.offset(nth));
          return sealed(bytes);
        });
        EXPECT_THAT(error.code, AnyOf(ErrorCode::kCorrupt, ErrorCode::kRefused)) << error.text;
        if (std::string(fault.name) != "of an unknown tag") {
          EXPECT_THAT(error.text, names(tag, type));
        }
        if (HasFailure()) FAIL() << error.text;
      }
    }
    expect_others_are_served();
  }
}

TEST_F(HostileClient, EverySectionInEveryFrameThatHasNone_NamedError) {
  for (const FrameType type : kAllTypes) {
    if (type == FrameType::kHello) continue;  // a greeting is too short for most of them
    for (std::uint16_t tag = 1; tag <= static_cast<std::uint16_t>(SectionTag::kSlabBytes); ++tag) {
      const TestFrame whole = sample({.type = type});
      const auto has = [&](const auto& section) { return section.tag == static_cast<SectionTag>(tag); };
      if (std::any_of(whole.sections.begin(), whole.sections.end(), has)) continue;
      if (type == FrameType::kReply && tag == static_cast<std::uint16_t>(SectionTag::kSlots)) continue;
      const wire::ErrorMessage error = answer_to(type, lane_for(type), [&](const wire::FrameHeader& header) {
        TestFrame frame = sample(header);
        frame.sections.push_back({static_cast<SectionTag>(tag), 0, Bytes(16)});
        return frame.bytes();
      });
      EXPECT_EQ(error.code, ErrorCode::kCorrupt);
      EXPECT_THAT(error.text, HasSubstr(fmt::format("section {} at offset", wire::name(static_cast<SectionTag>(tag)))));
      EXPECT_THAT(error.text, HasSubstr(fmt::format("does not belong in a {} frame", wire::name(type))));
    }
  }
  expect_others_are_served();
}

TEST_F(HostileClient, SecondRowsSectionWhereClassesAreEqual_NamedError) {
  const wire::ErrorMessage error = answer_to(FrameType::kBatch, wire::Lane::kLatency, [&](const auto& header) {
    TestFrame frame = batch_frame(header);
    frame.sections.push_back({SectionTag::kRows, 1, frame.sections[1].data});
    return frame.bytes();
  });
  EXPECT_THAT(error.text, HasSubstr("yet up's rows are sent too"));
}

}  // namespace hostile_sections_test
}  // namespace terrace::node
