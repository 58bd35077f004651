#include "coordinator/serve/http/exchange_state.h"

#include <utility>

namespace terrace::serve::http {
namespace {

class HeldExchange final : public Exchange {
 public:
  explicit HeldExchange(std::shared_ptr<ExchangeState> state) : state_(std::move(state)) {}
  ~HeldExchange() override { state_->abandon(); }
  HeldExchange(const HeldExchange&) = delete;
  HeldExchange& operator=(const HeldExchange&) = delete;

  const Request& request() const override { return state_->request(); }
  void reply(Reply reply) override { state_->reply(std::move(reply)); }
  bool begin_stream(StreamHead head) override { return state_->begin_stream(std::move(head)); }
  bool write(std::string_view piece) override { return state_->write(piece); }
  void finish() override { state_->finish(); }
  void note_failure(std::string_view reason) override { state_->note_failure(reason); }
  void on_gone(std::function<void()> callback) override { state_->on_gone(std::move(callback)); }
  bool gone() const override { return state_->gone(); }

 private:
  std::shared_ptr<ExchangeState> state_;
};

}  // namespace

void ExchangeState::reply(Reply reply) {
  std::function<void()> dropped;  // is destroyed without the lock: it may own anything
  std::unique_lock lock(mutex_);
  if (phase_ != Phase::kOpen) return;
  phase_ = Phase::kEnded;
  dropped = std::exchange(gone_callback_, nullptr);
  news_.reply = std::move(reply);
  news_.finished = true;
  wake_with(lock);
}

bool ExchangeState::begin_stream(StreamHead head) {
  std::unique_lock lock(mutex_);
  if (phase_ != Phase::kOpen) return false;
  phase_ = Phase::kStreaming;
  news_.head = std::move(head);
  wake_with(lock);
  return true;
}

bool ExchangeState::write(std::string_view piece) {
  std::unique_lock lock(mutex_);
  if (phase_ != Phase::kStreaming) return false;
  const bool fits = piece.size() <= max_unsent_ && unsent_ <= max_unsent_ - piece.size();
  if (fits) {
    news_.pieces += piece;
    unsent_ += piece.size();
  } else {
    phase_ = Phase::kGone;
    news_ = {};
    news_.cut_off = true;
  }
  wake_with(lock);
  return fits;
}

void ExchangeState::finish() {
  std::function<void()> dropped;
  std::unique_lock lock(mutex_);
  if (phase_ != Phase::kStreaming) return;
  phase_ = Phase::kEnded;
  dropped = std::exchange(gone_callback_, nullptr);
  news_.finished = true;
  wake_with(lock);
}

// Nobody needs to wake for it: the answer's end comes next.
void ExchangeState::note_failure(std::string_view reason) {
  const std::scoped_lock lock(mutex_);
  if ((phase_ == Phase::kOpen || phase_ == Phase::kStreaming) && news_.failure.empty()) news_.failure = reason;
}

void ExchangeState::abandon() {
  std::function<void()> dropped;
  std::unique_lock lock(mutex_);
  if (phase_ != Phase::kOpen && phase_ != Phase::kStreaming) return;
  phase_ = Phase::kEnded;
  dropped = std::exchange(gone_callback_, nullptr);
  news_.abandoned = true;
  wake_with(lock);
}

void ExchangeState::on_gone(std::function<void()> callback) {
  {
    const std::scoped_lock lock(mutex_);
    // A client that was cut off is told of by the server's thread, unless that has been there already.
    if (phase_ == Phase::kEnded) return;
    if (phase_ != Phase::kGone || news_.cut_off) {
      gone_callback_.swap(callback);
      return;
    }
  }
  if (callback) callback();
}

bool ExchangeState::gone() const {
  const std::scoped_lock lock(mutex_);
  return phase_ == Phase::kGone;
}

ExchangeState::News ExchangeState::collect() {
  const std::scoped_lock lock(mutex_);
  woken_ = false;
  News news = std::exchange(news_, {});
  news_.cut_off = news.cut_off;  // until client_gone()
  return news;
}

void ExchangeState::sent(std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  unsent_ -= bytes;
}

bool ExchangeState::client_gone() {
  std::function<void()> callback;
  {
    const std::scoped_lock lock(mutex_);
    if (phase_ == Phase::kEnded) return false;
    phase_ = Phase::kGone;
    news_ = {};
    callback = std::exchange(gone_callback_, nullptr);
  }
  if (callback) callback();
  return true;
}

void ExchangeState::wake_with(std::unique_lock<std::mutex>& lock) {
  const bool wake = !std::exchange(woken_, true);
  lock.unlock();
  if (wake) wake_();
}

std::shared_ptr<Exchange> make_exchange(std::shared_ptr<ExchangeState> state) {
  return std::make_shared<HeldExchange>(std::move(state));
}

}  // namespace terrace::serve::http
