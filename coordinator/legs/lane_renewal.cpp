#include "coordinator/legs/lane_renewal.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <utility>

#include "common/threads/start.h"

namespace terrace::legs {
namespace {

// Of the goodbye, of the connection and of the greeting, each: a node that is there needs one round trip. A node that
// is not is lost by then, and is found out sooner where a batch waits (Lane::look_for_life).
constexpr std::chrono::milliseconds kLongest{2'000};

bool is_goodbye(std::span<const std::byte> bytes) {
  const auto frame = wire::decode_frame(bytes);
  return !frame.ok() || frame->header.type == wire::FrameType::kClose;
}

}  // namespace

Result<std::unique_ptr<LaneRenewal>> LaneRenewal::start(std::unique_ptr<transport::Connection> old,
                                                        const wire::FrameHeader& goodbye,
                                                        transport::Transport& transport, const LaneOptions& options) {
  TERRACE_ASSIGN_OR_RETURN(auto done, transport::EventFd::create());
  std::unique_ptr<LaneRenewal> renewal(new LaneRenewal(std::move(old), goodbye, transport, options, std::move(done)));
  TERRACE_ASSIGN_OR_RETURN(renewal->thread_, start_thread("terrace-renewal", [r = renewal.get()] { r->run(); }));
  return renewal;
}

LaneRenewal::LaneRenewal(std::unique_ptr<transport::Connection> old, const wire::FrameHeader& goodbye,
                         transport::Transport& transport, const LaneOptions& options, transport::EventFd done)
    : old_(std::move(old)), goodbye_(goodbye), transport_(transport), options_(options), done_(std::move(done)) {}

LaneRenewal::~LaneRenewal() {
  stop_.request_stop();
  if (thread_.joinable()) thread_.join();
}

void LaneRenewal::run() {
  const std::stop_token stop = stop_.get_token();
  part_from_node(stop);
  options_.connect_timeout = std::min(options_.connect_timeout, kLongest);
  options_.stop = stop;
  options_.rate = nullptr;   // the lane's own pacer goes on
  options_.clock = nullptr;  // the step's thread has the lane's own
  result_.emplace(Lane::open(transport_, options_));
  done_.signal();
}

// Until the node has said goodbye, too: it takes no second connection of a lane beside the first. However this ends,
// the new connection's greeting tells.
void LaneRenewal::part_from_node(const std::stop_token& stop) {
  wire::FrameBuilder builder;
  builder.begin(goodbye_);
  if (!old_->send(builder.finish()).ok()) return;
  std::array<transport::Event, 4> events;
  bool parted = false;
  const auto deadline = Clock::now() + kLongest;
  while (!parted && !stop.stop_requested() && Clock::now() < deadline) {
    const std::size_t n = old_->poll(events);
    for (const transport::Event& event : std::span(events).first(n)) {
      if (event.kind == transport::Event::Kind::kSent) continue;
      parted = event.kind == transport::Event::Kind::kClosed || is_goodbye(event.frame);
      if (event.kind == transport::Event::Kind::kReceived) old_->release(event.frame);
    }
    if (n == 0) (void)transport::wait(*old_, std::chrono::milliseconds(50));
  }
  old_->close();
}

std::optional<Result<std::unique_ptr<Lane>>> LaneRenewal::take() {
  pollfd entry{done_.fd(), POLLIN, 0};
  if (::poll(&entry, 1, 0) <= 0) return std::nullopt;
  thread_.join();
  return std::exchange(result_, std::nullopt);
}

}  // namespace terrace::legs
