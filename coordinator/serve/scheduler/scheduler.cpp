#include "coordinator/serve/scheduler/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <utility>

#include "common/threads/start.h"
#include "coordinator/sampler/grammar/vocabulary_trie.h"
#include "coordinator/serve/scheduler/batcher.h"
#include "coordinator/serve/scheduler/fair_queue.h"
#include "coordinator/serve/scheduler/slot_file.h"

namespace terrace::serve {
namespace {

Error invalid(std::string text) { return Error(ErrorCode::kInvalidArgument, std::move(text)); }

Status check(const SchedulerParts& parts, const SchedulerOptions& options) {
  const kv::Cache& cache = parts.trunk.cache();
  if (options.slots == 0 || options.chunk_rows == 0) return invalid("a scheduler needs a slot and a chunk of a row");
  if (options.slots + kSpareStreams > cache.max_streams())
    return invalid(fmt::format("{} slots need {} streams and the trunk has {}", options.slots,
                               options.slots + kSpareStreams, cache.max_streams()));
  if (options.slots >= parts.trunk.max_rows())
    return invalid(
        fmt::format("{} slots and a row of a prompt do not fit into a step of {} rows; raise --batch or "
                    "lower --slots",
                    options.slots, parts.trunk.max_rows()));
  if (const std::size_t least = kv::Cache::blocks_for(cache.context()) + 1;  // one more: a shared block's copy
      cache.max_blocks() != 0 && cache.max_blocks() < least)
    return Error(
        ErrorCode::kOutOfMemory,
        fmt::format("the cache may have {} blocks and one context of {} positions takes {}; give it more memory "
                    "or lower --ctx-size",
                    cache.max_blocks(), cache.context(), least));
  if (parts.tokenizer.size() != parts.trunk.info().vocabulary)
    return invalid(fmt::format("the tokenizer has {} tokens and the model {} logits; the file contradicts itself",
                               parts.tokenizer.size(), parts.trunk.info().vocabulary));
  return {};
}

Result<std::shared_ptr<const sampler::VocabularyTrie>> make_trie(const text::Tokenizer& tokenizer) {
  std::vector<std::string_view> bytes(tokenizer.size());
  for (std::size_t id = 0; id < bytes.size(); ++id)
    bytes[id] = tokenizer.bytes(static_cast<std::int32_t>(id), {.special = false});
  TERRACE_ASSIGN_OR_RETURN(sampler::VocabularyTrie trie, sampler::VocabularyTrie::make(bytes, tokenizer.stop_ids()));
  return std::make_shared<const sampler::VocabularyTrie>(std::move(trie));
}

class ThreadedScheduler final : public Scheduler {
 public:
  ThreadedScheduler(SchedulerParts parts, SchedulerOptions options,
                    std::shared_ptr<const sampler::VocabularyTrie> trie);
  ~ThreadedScheduler() override;
  Status start();

  Result<RequestId> submit(Request request, std::shared_ptr<Listener> listener) override;
  bool cancel(RequestId request) override;
  SchedulerStatus status() const override;
  std::uint32_t context() const override { return context_; }
  Result<SlotFileResult> save_slot(std::uint32_t slot, const std::filesystem::path& file) override;
  Result<SlotFileResult> restore_slot(std::uint32_t slot, const std::filesystem::path& file) override;
  Result<std::uint32_t> erase_slot(std::uint32_t slot) override;
  void stop(std::chrono::milliseconds deadline) override;

 private:
  // What other threads asked for since the last step.
  struct Orders {
    std::vector<std::unique_ptr<Job>> dropped;  // by cancel(), from the queue: to be told
    std::vector<std::unique_ptr<Job>> stopped;  // by stop(), likewise
    std::vector<RequestId> cancelled;
    std::vector<std::function<void()>> calls;
    bool any() const { return !dropped.empty() || !stopped.empty() || !cancelled.empty() || !calls.empty(); }
  };

  std::vector<LegStatus> legs_now() const;
  Status check(const Request& request) const;
  Status check_slot(std::uint32_t slot) const;
  Status check_cache() const;
  Result<std::unique_ptr<Job>> make_job(Request request, std::shared_ptr<Listener> listener) const;
  // Runs fn between two steps and gives what it gave.
  template <class Fn>
  auto between_steps(const Fn& fn);
  SlotFileIdentity identity() const { return {options_.model_hash, parts_.trunk.cache().shape()}; }

  void thread_main();
  bool wait_for_work();
  void carry_out_orders();
  void start_jobs();
  void end_late_runs();
  void note_ended();
  void publish();

  const SchedulerParts parts_;
  const SchedulerOptions options_;
  const std::uint32_t context_;
  const std::shared_ptr<const sampler::VocabularyTrie> trie_;
  Batcher batcher_;  // the thread's, once it runs

  mutable std::mutex mutex_;           // guards what follows; held for moments, never while a listener is called
  std::condition_variable work_;       // for the thread
  std::condition_variable none_left_;  // for stop()
  FairQueue queue_;
  Orders orders_;
  std::unordered_set<RequestId> known_;  // that wait, run, or were dropped and not told yet
  RequestId last_id_ = 0;
  std::uint64_t n_submitted_ = 0, n_refused_ = 0;
  std::uint64_t n_dropped_cancelled_ = 0, n_dropped_stopping_ = 0;
  std::optional<Clock::time_point> stop_at_;
  bool quit_ = false;

  mutable std::mutex status_mutex_;
  SchedulerStatus status_;

  std::mutex file_mutex_;  // one slot is saved or restored at a time: it takes a spare stream
  std::thread thread_;     // last: it uses all the rest
};

ThreadedScheduler::ThreadedScheduler(SchedulerParts parts, SchedulerOptions options,
                                     std::shared_ptr<const sampler::VocabularyTrie> trie)
    : parts_(std::move(parts)),
      options_(std::move(options)),
      context_(parts_.trunk.context()),
      trie_(std::move(trie)),
      batcher_(parts_, options_) {
  publish();
}

Status ThreadedScheduler::start() {
  TERRACE_ASSIGN_OR_RETURN(thread_, start_thread("terrace-steps", [this] { thread_main(); }));
  return {};
}

ThreadedScheduler::~ThreadedScheduler() {
  stop(std::chrono::milliseconds(0));
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  work_.notify_one();
  if (thread_.joinable()) thread_.join();
}

// ---- any thread -----------------------------------------------------------------------------------------------------

Status ThreadedScheduler::check_slot(std::uint32_t slot) const {
  if (slot < options_.slots) return {};
  return invalid(fmt::format("there is no slot {}; slots are 0 to {}", slot, options_.slots - 1));
}

Status ThreadedScheduler::check_cache() const {
  if (parts_.trunk.cache().in_host_memory()) return {};
  return Error(ErrorCode::kUnsupported,
               "slots are saved from host memory, and keys and values lie on the card; leave out --gpu to save slots");
}

Status ThreadedScheduler::check(const Request& request) const {
  const std::uint32_t vocabulary = parts_.trunk.info().vocabulary;
  if (request.prompt.empty()) return invalid("the prompt has no tokens");
  for (const std::int32_t id : request.prompt)
    if (id < 0 || static_cast<std::uint32_t>(id) >= vocabulary)
      return invalid(fmt::format("the prompt holds token {}; this model has tokens 0 to {}", id, vocabulary - 1));
  if (!fits(request.prompt.size()))
    return Error(ErrorCode::kContextFull,
                 fmt::format("the prompt has {} tokens (n_prompt_tokens) and the context {} (n_ctx), of which one at "
                             "least is the answer's; shorten the prompt or raise --ctx-size",
                             request.prompt.size(), context_));
  TERRACE_RETURN_IF_ERROR(sampler::validate(request.sampling));
  TERRACE_RETURN_IF_ERROR(sampler::validate(request.logit_bias, vocabulary));
  return request.slot ? check_slot(*request.slot) : Status();
}

Result<std::unique_ptr<Job>> ThreadedScheduler::make_job(Request request, std::shared_ptr<Listener> listener) const {
  TERRACE_ASSIGN_OR_RETURN(
      text::TextOutput output,
      text::TextOutput::make(parts_.tokenizer, {.special = request.control_as_text}, request.stops));
  std::optional<sampler::GrammarState> grammar;
  if (request.grammar != nullptr) grammar.emplace(request.grammar, trie_);
  return std::make_unique<Job>(
      Job{0, std::move(request), std::move(listener), std::move(output), std::move(grammar), Clock::now()});
}

Result<RequestId> ThreadedScheduler::submit(Request request, std::shared_ptr<Listener> listener) {
  TERRACE_RETURN_IF_ERROR(check(request));
  TERRACE_ASSIGN_OR_RETURN(std::unique_ptr<Job> job, make_job(std::move(request), std::move(listener)));
  RequestId id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (stop_at_) return Error(ErrorCode::kRefused, "the server is stopping and takes no further request");
    if (known_.size() >= std::size_t{options_.slots} + options_.queue_limit) {
      ++n_refused_;
      return Error(ErrorCode::kBusy,
                   fmt::format("{} requests run or wait, as many as may; try again later", known_.size()));
    }
    id = job->id = ++last_id_;
    ++n_submitted_;
    known_.insert(id);
    queue_.push(std::move(job));
  }
  work_.notify_one();
  return id;
}

bool ThreadedScheduler::cancel(RequestId request) {
  {
    const std::lock_guard lock(mutex_);
    if (!known_.contains(request)) return false;
    if (std::unique_ptr<Job> job = queue_.remove(request)) {
      orders_.dropped.push_back(std::move(job));
    } else {
      orders_.cancelled.push_back(request);
    }
  }
  work_.notify_one();
  return true;
}

// As they are now, not at the last step: a node may be lost or back while nobody asks for anything.
std::vector<LegStatus> ThreadedScheduler::legs_now() const {
  std::vector<LegStatus> told;
  if (parts_.board == nullptr) return told;
  for (legs::LegReport& leg : parts_.board->report())
    told.push_back({std::move(leg.name), leg.kind, leg.state, leg.experts, leg.counters, std::move(leg.reason)});
  return told;
}

SchedulerStatus ThreadedScheduler::status() const {
  SchedulerStatus status;
  {
    const std::lock_guard lock(status_mutex_);
    status = status_;
  }
  status.legs = legs_now();
  for (std::size_t i = 0; i < std::min(status.legs.size(), status.leg_steps.size()); ++i)
    status.legs[i].steps = status.leg_steps[i];
  const std::lock_guard lock(mutex_);
  status.queued = static_cast<std::uint32_t>(queue_.size());
  status.queue_limit = options_.queue_limit;
  status.stopping = stop_at_.has_value();
  status.counters.requests = n_submitted_;
  status.counters.requests_refused = n_refused_;
  status.counters.requests_cancelled += n_dropped_cancelled_;
  status.counters.requests_failed += n_dropped_stopping_;
  return status;
}

void ThreadedScheduler::stop(std::chrono::milliseconds deadline) {
  std::unique_lock lock(mutex_);
  const auto at = Clock::now() + deadline;
  stop_at_ = stop_at_ ? std::min(*stop_at_, at) : at;
  for (std::unique_ptr<Job>& job : queue_.remove_all()) orders_.stopped.push_back(std::move(job));
  work_.notify_one();
  none_left_.wait(lock, [this] { return known_.empty(); });
}

template <class Fn>
auto ThreadedScheduler::between_steps(const Fn& fn) {
  // Shared: the thread still touches it when the caller has its result.
  const auto task = std::make_shared<std::packaged_task<decltype(fn())()>>([this, &fn] {
    auto result = fn();
    publish();  // whoever has the result finds it in the status
    return result;
  });
  {
    const std::lock_guard lock(mutex_);
    orders_.calls.emplace_back([task] { (*task)(); });
  }
  work_.notify_one();
  return task->get_future().get();
}

Result<Scheduler::SlotFileResult> ThreadedScheduler::save_slot(std::uint32_t slot, const std::filesystem::path& file) {
  const auto begin = Clock::now();
  TERRACE_RETURN_IF_ERROR(check_slot(slot));
  TERRACE_RETURN_IF_ERROR(check_cache());
  const std::lock_guard lock(file_mutex_);
  TERRACE_ASSIGN_OR_RETURN(const Sequence sequence, between_steps([&] { return batcher_.snapshot(slot); }));
  const kv::Cache& cache = parts_.trunk.cache();
  bool is_open = true;
  const auto close = [&]() -> Status {
    is_open = false;
    if (between_steps([&] { return batcher_.close_snapshot(sequence); })) return {};
    return Error(ErrorCode::kUncertain,
                 fmt::format("slot {}: a node that had a part in its tokens was found to compute wrong while they were "
                             "saved; save it again",
                             slot));
  };
  const auto written = write_slot_file(
      file, identity(), sequence.tokens, [&](std::size_t i) { return cache.stored(sequence.stream, i); }, close);
  if (is_open) (void)close();  // nothing was replaced, certain or not
  if (!written.ok()) return written.error();
  return SlotFileResult{static_cast<std::uint32_t>(sequence.tokens.size()), *written, ms_between(begin, Clock::now())};
}

Result<Scheduler::SlotFileResult> ThreadedScheduler::restore_slot(std::uint32_t slot,
                                                                  const std::filesystem::path& path) {
  const auto begin = Clock::now();
  TERRACE_RETURN_IF_ERROR(check_slot(slot));
  TERRACE_RETURN_IF_ERROR(check_cache());
  const std::lock_guard lock(file_mutex_);
  TERRACE_ASSIGN_OR_RETURN(SlotFile file, SlotFile::open(path, identity(), parts_.trunk.info().vocabulary, context_));
  const auto n_tokens = static_cast<std::uint32_t>(file.tokens().size());
  Sequence sequence{.stream = 0, .tokens = file.tokens(), .slot = slot};
  TERRACE_ASSIGN_OR_RETURN(sequence.stream, between_steps([&] { return batcher_.make_room_for(n_tokens); }));
  kv::Cache& cache = parts_.trunk.cache();
  const Status read = file.read_blocks([&](std::size_t i) { return cache.room(sequence.stream, i); });
  const Status adopted = between_steps([&]() -> Status {
    if (read.ok()) return batcher_.adopt(slot, std::move(sequence));
    batcher_.close(sequence.stream);
    return read;
  });
  if (!adopted.ok()) return adopted.error();
  return SlotFileResult{n_tokens, file.bytes(), ms_between(begin, Clock::now())};
}

Result<std::uint32_t> ThreadedScheduler::erase_slot(std::uint32_t slot) {
  TERRACE_RETURN_IF_ERROR(check_slot(slot));
  return between_steps([&] { return batcher_.erase(slot); });
}

// ---- the scheduler's thread -----------------------------------------------------------------------------------------

void ThreadedScheduler::thread_main() {
  const std::shared_ptr<void> held = options_.on_thread ? options_.on_thread() : nullptr;
  while (wait_for_work()) {
    carry_out_orders();
    start_jobs();
    end_late_runs();
    const bool has_rows = batcher_.plan_step();
    publish();
    if (!has_rows) continue;
    batcher_.take_step();
    note_ended();
  }
}

// False: it is over.
bool ThreadedScheduler::wait_for_work() {
  std::unique_lock lock(mutex_);
  work_.wait(lock, [this] { return batcher_.busy() || queue_.size() > 0 || orders_.any() || quit_; });
  return !quit_ || batcher_.busy() || orders_.any();
}

void ThreadedScheduler::carry_out_orders() {
  Orders orders;
  {
    const std::lock_guard lock(mutex_);
    if (!orders_.any()) return;
    orders = std::exchange(orders_, {});
  }
  for (const auto& call : orders.calls) call();
  for (const RequestId id : orders.cancelled) batcher_.end(id, EndReason::kCancelled);
  for (const auto& job : orders.dropped) end_unstarted(*job, EndReason::kCancelled);
  for (const auto& job : orders.stopped) end_unstarted(*job, EndReason::kStopping);
  {
    const std::lock_guard lock(mutex_);
    for (const auto& job : orders.dropped) known_.erase(job->id);
    for (const auto& job : orders.stopped) known_.erase(job->id);
    n_dropped_cancelled_ += orders.dropped.size();
    n_dropped_stopping_ += orders.stopped.size();
  }
  note_ended();
}

void ThreadedScheduler::start_jobs() {
  for (;;) {
    std::unique_ptr<Job> job;
    {
      const std::lock_guard lock(mutex_);
      job = queue_.pop([this](const Job& j) { return batcher_.can_start(j); });
    }
    if (job == nullptr) return;
    batcher_.start(std::move(job));
  }
}

void ThreadedScheduler::end_late_runs() {
  {
    const std::lock_guard lock(mutex_);
    if (!stop_at_ || Clock::now() < *stop_at_) return;
  }
  batcher_.end_all(EndReason::kStopping);
  note_ended();
}

void ThreadedScheduler::note_ended() {
  const auto ended = batcher_.take_ended();
  if (!ended.empty()) publish();  // who waits in stop() finds them in the status
  const std::lock_guard lock(mutex_);
  for (const RequestId id : ended) known_.erase(id);
  if (known_.empty()) none_left_.notify_all();
}

void ThreadedScheduler::publish() {
  const std::lock_guard lock(status_mutex_);
  batcher_.describe(status_);
}

}  // namespace

Result<std::unique_ptr<Scheduler>> Scheduler::make(SchedulerParts parts, SchedulerOptions options) {
  TERRACE_RETURN_IF_ERROR(serve::check(parts, options));
  TERRACE_ASSIGN_OR_RETURN(auto trie, make_trie(parts.tokenizer));
  auto scheduler = std::make_unique<ThreadedScheduler>(std::move(parts), std::move(options), std::move(trie));
  TERRACE_RETURN_IF_ERROR(scheduler->start());
  return std::unique_ptr<Scheduler>(std::move(scheduler));
}

}  // namespace terrace::serve
