#include "tier_node/service/weights_thread.h"

#include <utility>

#include "common/threads/start.h"

namespace terrace::node {
namespace {

// A piece takes some tens of microseconds to be read and opened; nobody but further pieces waits behind it here.
constexpr std::size_t kPiecesInTurn = 16;

}  // namespace

Result<std::unique_ptr<WeightsThread>> WeightsThread::start(SlabLoader& loader, const Logger& log,
                                                            const DataServerOptions& options,
                                                            const Background& background) {
  TERRACE_ASSIGN_OR_RETURN(const int event_fd, make_event_fd());
  std::unique_ptr<WeightsThread> made(new WeightsThread(loader, log, options, event_fd));
  TERRACE_ASSIGN_OR_RETURN(made->thread_, start_thread("terrace-slabs", [m = made.get(), background] {
                             const ThreadAffinity on_cpus = enter_background(background);
                             m->ready_.count_down();
                             m->loop();
                           }));
  made->ready_.wait();
  return made;
}

WeightsThread::WeightsThread(SlabLoader& loader, const Logger& log, const DataServerOptions& options, int event_fd)
    : PeerLoop(loader, log, options, event_fd, kPiecesInTurn) {}

WeightsThread::~WeightsThread() {
  request_stop();
  if (thread_.joinable()) thread_.join();
}

void WeightsThread::adopt(std::unique_ptr<Peer> peer) {
  {
    const std::lock_guard lock(adopted_mutex_);
    adopted_.push_back(std::move(peer));
  }
  wake();
}

void WeightsThread::take_adopted() {
  const std::lock_guard lock(adopted_mutex_);
  for (std::unique_ptr<Peer>& peer : adopted_) {
    peer->use(frames_);
    peer->set_ready(true);  // it may have been woken for before it came
    peers().push_back(std::move(peer));
  }
  adopted_.clear();
}

Status WeightsThread::on_hello(Peer&, const wire::Frame&) {
  return Error(ErrorCode::kInternal, "a connection without a session lies with the weights lanes");
}

Status WeightsThread::on_batch(Peer&, const wire::Frame&, std::span<const std::byte>) {
  return Error(ErrorCode::kRefused, "a batch came on the weights lane");
}

}  // namespace terrace::node
