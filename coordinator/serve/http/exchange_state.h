// What lies between the threads that answer a request and the server's thread that has its connection: a mailbox for
// the answer, and the news that the client has gone.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "coordinator/serve/http/server.h"

namespace terrace::serve::http {

// Any thread, but for what says otherwise.
class ExchangeState {
 public:
  // wake: lets the server's thread call collect() soon; called by any thread, without a lock held.
  ExchangeState(Request request, std::size_t max_unsent, std::function<void()> wake)
      : request_(std::move(request)), max_unsent_(max_unsent), wake_(std::move(wake)) {}

  const Request& request() const { return request_; }

  // As Exchange's functions.
  void reply(Reply reply);
  bool begin_stream(StreamHead head);
  bool write(std::string_view piece);
  void finish();
  void note_failure(std::string_view reason);
  void on_gone(std::function<void()> callback);
  bool gone() const;
  // Nobody can answer any more.
  void abandon();

  // ---- the server's thread only ----
  struct News {
    std::optional<Reply> reply;
    std::optional<StreamHead> head;
    std::string pieces;
    std::string failure;     // as note_failure()
    bool finished = false;   // the answer ends behind `pieces`
    bool abandoned = false;  // there is and will be no end
    bool cut_off = false;    // too much is unsent; nothing else is set
  };
  // What came since the last call.
  News collect();
  // So many bytes of pieces were taken by the operating system.
  void sent(std::size_t bytes);
  // The client is gone: calls the callback if the answer's end was not handed over yet. True: that was so.
  bool client_gone();

 private:
  enum class Phase { kOpen, kStreaming, kEnded, kGone };
  // Unlocks, then wakes, once until the next collect().
  void wake_with(std::unique_lock<std::mutex>& lock);

  const Request request_;
  const std::size_t max_unsent_;
  const std::function<void()> wake_;

  mutable std::mutex mutex_;  // guards what follows
  Phase phase_ = Phase::kOpen;
  News news_;
  std::size_t unsent_ = 0;  // bytes of pieces that were written and not sent()
  bool woken_ = false;      // collect() will come
  std::function<void()> gone_callback_;
};

// The Exchange that handlers hold: when its last reference goes, abandon() is called.
std::shared_ptr<Exchange> make_exchange(std::shared_ptr<ExchangeState> state);

}  // namespace terrace::serve::http
