#include "coordinator/app/bench_serving.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "coordinator/app/bench_run.h"
#include "coordinator/app/commit.h"
#include "coordinator/app/generation.h"
#include "coordinator/app/http_client.h"
#include "coordinator/app/median.h"
#include "coordinator/app/served_model.h"
#include "coordinator/app/timed_trunk.h"
#include "coordinator/serve/api/context.h"
#include "coordinator/serve/http/server.h"
#include "coordinator/serve/routes/replies.h"
#include "coordinator/serve/routes/routes.h"

namespace terrace::app {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kServedSeed = 7;

// Of steps of one row that follow each other: from the beginning of one to that of the next, and of it what lies
// between the two; microseconds, medians.
struct DecodeTimes {
  double token = 0;
  double outside = 0;
};
DecodeTimes decode_times(const std::vector<TimedStep>& steps) {
  const auto is_decode = [](const TimedStep& step) { return step.decode_rows == 1 && step.prompt_rows == 0; };
  std::vector<double> tokens, outside;
  for (std::size_t i = 1; i < steps.size(); ++i) {
    if (!is_decode(steps[i - 1]) || !is_decode(steps[i])) continue;
    tokens.push_back(std::chrono::duration<double, std::micro>(steps[i].begin - steps[i - 1].begin).count());
    outside.push_back(std::chrono::duration<double, std::micro>(steps[i].begin - steps[i - 1].end).count());
  }
  return {median(std::move(tokens)), median(std::move(outside))};
}

double ms(Clock::duration duration) { return std::chrono::duration<double, std::milli>(duration).count(); }

// Waits for what a request does.
class Waiter final : public serve::Listener {
 public:
  void on_piece(const serve::Piece& piece, const serve::Timings&) override {
    const auto now = Clock::now();
    const std::lock_guard lock(mutex_);
    if (piece.tokens.empty() || n_tokens_++ != 0) return;
    first_ = now;
    changed_.notify_all();
  }
  void on_end(const serve::End&) override { end({}); }
  void on_error(const Error& error, const serve::Timings&) override { end(error); }

  // The moment of the first token.
  Result<Clock::time_point> first_token() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return n_tokens_ > 0 || ended_; });
    if (n_tokens_ > 0) return first_;
    return status_.ok() ? Error(ErrorCode::kInternal, "a request ended without a token") : status_.error();
  }
  Status ended() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_; });
    return status_;
  }

 private:
  void end(Status status) {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    status_ = std::move(status);
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t n_tokens_ = 0;
  Clock::time_point first_;
  bool ended_ = false;
  Status status_;
};

class Serving {
 public:
  explicit Serving(const ServingTest& test) : test_(test) {}

  Status open(const ModelOptions& model, const Environment& environment);
  Result<ServingResult> measure();

 private:
  struct Submitted {
    serve::RequestId id = 0;
    Clock::time_point at;
    std::shared_ptr<Waiter> waiter;
  };

  Status before_scheduler(Engine& engine);
  Status fit_into(std::uint32_t context);
  Status generate_alone(Engine& engine);
  Status new_tokens_alone(Engine& engine);

  std::uint32_t vocabulary() const { return trunk_->info().vocabulary; }
  std::vector<std::int32_t> tokens(std::size_t n) { return random_tokens(random_, n, vocabulary()); }
  Result<Submitted> submit(std::vector<std::int32_t> prompt, std::uint64_t max_tokens);
  Result<double> first_token_ms(std::vector<std::int32_t> prompt);
  Result<std::vector<Submitted>> start_streams(std::uint32_t n);
  Status end_streams(const std::vector<Submitted>& streams);

  Status measure_first_token();
  Status measure_one_arrival(std::vector<double>& waits);
  Status measure_mixed_steps();
  Status measure_token_cost();
  Status measure_prefix();

  ServingTest test_;
  ServingResult result_;
  std::mt19937_64 random_{3};
  std::vector<std::int32_t> prefix_, token_prompt_;
  std::uint32_t chunk_ = 0;

  std::optional<TimedTrunk> trunk_;
  serve::Backend backend_;
  std::unique_ptr<ServedModel> model_;
  std::unique_ptr<serve::http::Server> server_;
};

Status Serving::open(const ModelOptions& model, const Environment& environment) {
  ServeOptions options;
  options.model = model;
  TERRACE_ASSIGN_OR_RETURN(options.model.model, model_file(model));
  options.sampling = serve::api::default_sampling();
  options.slots = test_.streams;
  options.port = 0;
  options.no_api_key = true;
  chunk_ = options.prompt_chunk;
  const auto trunk_of = [this](Engine& engine) -> Result<arch::Trunk*> {
    trunk_.emplace(engine.trunk());
    TERRACE_RETURN_IF_ERROR(before_scheduler(engine));
    return &*trunk_;
  };
  TERRACE_ASSIGN_OR_RETURN(serve::http::ServerOptions http, server_options(options));
  http.error_reply = serve::error_reply;
  TERRACE_ASSIGN_OR_RETURN(server_, start_server(std::move(http), make_router(backend_), options.model));
  backend_.answer_batch = server_->answer_batch();
  TERRACE_ASSIGN_OR_RETURN(model_, ServedModel::load(options, environment, Logger::silent(), backend_, trunk_of));
  return {};
}

// ---- before there is a scheduler: the same trunk, used as `generate` does -------------------------------------------

Status Serving::before_scheduler(Engine& engine) {
  TERRACE_RETURN_IF_ERROR(fit_into(engine.trunk().context()));
  result_.model = engine.model_name();
  result_.isa = kernels::name(engine.ops().isa);
  result_.threads = engine.cpus().n_threads;
  prefix_ = tokens(test_.prefix);
  TERRACE_ASSIGN_OR_RETURN(const ThreadAffinity pinned, engine.pin_step_thread());
  TERRACE_RETURN_IF_ERROR(new_tokens_alone(engine));
  return generate_alone(engine);
}

// A model with a short context has shorter prompts; their lengths are told.
Status Serving::fit_into(std::uint32_t context) {
  const std::uint32_t others = test_.new_tokens + test_.n_gen + 2 * test_.short_prompt + 4 * chunk_;
  if (context <= 2 * others)
    return Error(ErrorCode::kContextFull,
                 fmt::format("serving is measured with {} tokens at least and the context holds {}; raise --ctx-size",
                             2 * others, context));
  test_.prefix = std::min(test_.prefix, context - others);
  test_.long_prompt = std::min(test_.long_prompt, context - others);
  result_.test = test_;
  return {};
}

// The tokens that measure_token_cost() has served.
Status Serving::generate_alone(Engine& engine) {
  token_prompt_ = tokens(test_.short_prompt);
  GenerationRequest request;
  request.prompt = token_prompt_;
  request.max_tokens = test_.n_gen + 1;
  request.sampling = serve::api::default_sampling();
  request.sampling.seed = kServedSeed;
  for (std::uint32_t i = 0; i <= test_.repeats; ++i) {
    if (i == 1) (void)trunk_->take();
    TERRACE_ASSIGN_OR_RETURN(OpenStream stream, OpenStream::open(*trunk_));
    const auto made = generate(engine, stream, request, [](std::string_view) { return Status(); });
    if (!made.ok()) return made.error();
  }
  const auto [token, outside] = decode_times(trunk_->take());
  result_.token_cost.generate = token;
  result_.token_cost.generate_outside = outside;
  return {};
}

// A step of the new tokens behind the prefix; the prefix is computed once.
Status Serving::new_tokens_alone(Engine& engine) {
  TERRACE_ASSIGN_OR_RETURN(OpenStream stream, OpenStream::open(engine.trunk()));
  const std::size_t most = engine.trunk().max_rows();
  for (std::size_t first = 0; first < prefix_.size(); first += most)
    TERRACE_RETURN_IF_ERROR(
        stream.step(std::span(prefix_).subspan(first, std::min(most, prefix_.size() - first)), WantLogits::kNone));
  std::vector<double> times;
  for (std::uint32_t i = 0; i <= test_.repeats; ++i) {
    TERRACE_ASSIGN_OR_RETURN(OpenStream fork, stream.fork(stream.length()));
    const std::vector<std::int32_t> further = tokens(test_.new_tokens);
    const auto begin = Clock::now();
    TERRACE_RETURN_IF_ERROR(fork.step(further, WantLogits::kLast));
    if (i != 0) times.push_back(ms(Clock::now() - begin));
  }
  result_.shared_prefix.new_tokens = median(times);
  return {};
}

// ---- with it --------------------------------------------------------------------------------------------------------

Result<Serving::Submitted> Serving::submit(std::vector<std::int32_t> prompt, std::uint64_t max_tokens) {
  serve::Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling = serve::api::default_sampling();
  request.ignore_eos = true;
  Submitted submitted{.id = 0, .at = Clock::now(), .waiter = std::make_shared<Waiter>()};
  TERRACE_ASSIGN_OR_RETURN(submitted.id, model_->scheduler().submit(std::move(request), submitted.waiter));
  return submitted;
}

// From submit() to the first token; the request then ends.
Result<double> Serving::first_token_ms(std::vector<std::int32_t> prompt) {
  TERRACE_ASSIGN_OR_RETURN(const Submitted submitted, submit(std::move(prompt), 1));
  TERRACE_ASSIGN_OR_RETURN(const Clock::time_point first, submitted.waiter->first_token());
  TERRACE_RETURN_IF_ERROR(submitted.waiter->ended());
  return ms(first - submitted.at);
}

// So many that decode, all of them.
Result<std::vector<Serving::Submitted>> Serving::start_streams(std::uint32_t n) {
  std::vector<Submitted> streams;
  for (std::uint32_t i = 0; i < n; ++i) {
    TERRACE_ASSIGN_OR_RETURN(Submitted stream, submit(tokens(test_.short_prompt), serve::kUnlimited));
    streams.push_back(std::move(stream));
  }
  for (const Submitted& stream : streams) TERRACE_RETURN_IF_ERROR(stream.waiter->first_token());
  return streams;
}

Status Serving::end_streams(const std::vector<Submitted>& streams) {
  for (const Submitted& stream : streams) (void)model_->scheduler().cancel(stream.id);
  for (const Submitted& stream : streams) TERRACE_RETURN_IF_ERROR(stream.waiter->ended());
  return {};
}

Status Serving::measure_first_token() {
  FirstToken& out = result_.first_token;
  std::vector<double> alone, waits;
  for (std::uint32_t i = 0; i <= test_.repeats; ++i) {
    TERRACE_ASSIGN_OR_RETURN(const double wait, first_token_ms(tokens(test_.short_prompt)));
    if (i != 0) alone.push_back(wait);
  }
  out.alone = median(alone);
  (void)trunk_->take();
  TERRACE_ASSIGN_OR_RETURN(const std::vector<Submitted> streams, start_streams(test_.streams - 2));
  for (std::uint32_t i = 0; i < test_.repeats; ++i) TERRACE_RETURN_IF_ERROR(measure_one_arrival(waits));
  TERRACE_RETURN_IF_ERROR(end_streams(streams));
  out.worst = std::ranges::max(waits);
  out.mean = spread_of(waits).mean;
  for (const TimedStep& step : trunk_->take())
    if (step.is_mixed()) out.longest_mixed = std::max(out.longest_mixed, 1e3 * step.seconds());
  return {};
}

// While a long prompt is computed: the short one comes at any moment of a step.
Status Serving::measure_one_arrival(std::vector<double>& waits) {
  TERRACE_ASSIGN_OR_RETURN(const Submitted prompt, submit(tokens(test_.long_prompt), 1));
  const double steps_before = 2 + static_cast<double>(random_() % 1000) / 1000;
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(steps_before * result_.first_token.alone));
  TERRACE_ASSIGN_OR_RETURN(const double wait, first_token_ms(tokens(test_.short_prompt)));
  waits.push_back(wait);
  return prompt.waiter->ended();
}

Status Serving::measure_mixed_steps() {
  MixedStep& out = result_.mixed_step;
  const std::uint32_t n_streams = test_.streams - 1;
  (void)trunk_->take();
  TERRACE_ASSIGN_OR_RETURN(const std::vector<Submitted> streams, start_streams(n_streams));
  for (std::uint32_t i = 0; i < test_.repeats; ++i) {
    TERRACE_ASSIGN_OR_RETURN(const Submitted prompt, submit(tokens(4 * chunk_), 1));
    TERRACE_RETURN_IF_ERROR(prompt.waiter->ended());
    // Steps without a prompt, between two of them.
    const std::uint64_t before = model_->scheduler().status().counters.steps;
    while (model_->scheduler().status().counters.steps < before + 8)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  TERRACE_RETURN_IF_ERROR(end_streams(streams));
  std::vector<double> mixed, decode, chunk;
  for (const TimedStep& step : trunk_->take()) {
    if (step.decode_rows != n_streams) continue;
    if (step.prompt_rows == chunk_) mixed.push_back(1e3 * step.seconds());
    if (step.prompt_rows == 0) decode.push_back(1e3 * step.seconds());
  }
  for (std::uint32_t i = 0; i <= test_.repeats; ++i) TERRACE_RETURN_IF_ERROR(first_token_ms(tokens(chunk_)));
  for (const TimedStep& step : trunk_->take())
    if (step.decode_rows == 0 && step.prompt_rows == chunk_) chunk.push_back(1e3 * step.seconds());
  out = {.mixed = median(mixed), .decode = median(decode), .chunk = median(chunk)};
  return {};
}

// One stream, to a client that reads its events.
Status Serving::measure_token_cost() {
  nlohmann::json body;
  body["prompt"] = token_prompt_;
  body["seed"] = kServedSeed;
  body["n_predict"] = test_.n_gen + 1;
  body["stream"] = true;
  body["cache_prompt"] = false;
  for (std::uint32_t i = 0; i <= test_.repeats; ++i) {
    if (i == 1) (void)trunk_->take();
    TERRACE_RETURN_IF_ERROR(post_to_loopback(server_->port(), "/completion", body.dump()));
  }
  const auto [token, outside] = decode_times(trunk_->take());
  result_.token_cost.serve = token;
  result_.token_cost.serve_outside = outside;
  return {};
}

Status Serving::measure_prefix() {
  TERRACE_RETURN_IF_ERROR(first_token_ms(prefix_));
  std::vector<double> waits;
  for (std::uint32_t i = 0; i <= test_.repeats; ++i) {
    std::vector<std::int32_t> prompt = prefix_;
    const std::vector<std::int32_t> further = tokens(test_.new_tokens);
    prompt.insert(prompt.end(), further.begin(), further.end());
    TERRACE_ASSIGN_OR_RETURN(const double wait, first_token_ms(std::move(prompt)));
    if (i != 0) waits.push_back(wait);
  }
  result_.shared_prefix.first_token = median(waits);
  return {};
}

Result<ServingResult> Serving::measure() {
  TERRACE_RETURN_IF_ERROR(measure_first_token());
  TERRACE_RETURN_IF_ERROR(measure_mixed_steps());
  TERRACE_RETURN_IF_ERROR(measure_token_cost());
  TERRACE_RETURN_IF_ERROR(measure_prefix());
  return result_;
}

}  // namespace

Result<ServingResult> run_serving(const ModelOptions& model, const Environment& environment, const ServingTest& test) {
  Serving serving(test);
  TERRACE_RETURN_IF_ERROR(serving.open(model, environment));
  return serving.measure();
}

std::vector<nlohmann::ordered_json> to_json(const ServingResult& r) {
  const FirstToken& f = r.first_token;
  const MixedStep& m = r.mixed_step;
  const TokenCost& t = r.token_cost;
  const SharedPrefix& p = r.shared_prefix;
  std::vector<nlohmann::ordered_json> rows = {{{"test", "first_token_beside_streams"},
                                               {"streams", r.test.streams - 2},
                                               {"long_prompt", r.test.long_prompt},
                                               {"n_prompt", r.test.short_prompt},
                                               {"first_token_ms", f.worst},
                                               {"first_token_ms_mean", f.mean},
                                               {"alone_ms", f.alone},
                                               {"longest_mixed_step_ms", f.longest_mixed},
                                               {"bound_ms", f.bound()},
                                               {"ratio", f.worst / f.bound()}},
                                              {{"test", "mixed_step"},
                                               {"streams", r.test.streams - 1},
                                               {"mixed_step_ms", m.mixed},
                                               {"decode_step_ms", m.decode},
                                               {"chunk_ms", m.chunk},
                                               {"bound_ms", m.bound()},
                                               {"ratio", m.mixed / m.bound()}},
                                              {{"test", "token_cost"},
                                               {"n_gen", r.test.n_gen},
                                               {"generate_us", t.generate},
                                               {"generate_outside_trunk_us", t.generate_outside},
                                               {"serve_us", t.serve},
                                               {"serve_outside_trunk_us", t.serve_outside},
                                               {"added_us", t.added()},
                                               {"bound_us", TokenCost::kMostAdded},
                                               {"ratio", t.added() / TokenCost::kMostAdded}},
                                              {{"test", "shared_prefix"},
                                               {"prefix", r.test.prefix},
                                               {"n_prompt", r.test.new_tokens},
                                               {"first_token_ms", p.first_token},
                                               {"new_tokens_ms", p.new_tokens},
                                               {"ratio", p.first_token / p.new_tokens}}};
  for (nlohmann::ordered_json& row : rows)
    row.update({{"model", r.model}, {"threads", r.threads}, {"isa", r.isa}, {"commit", commit()}});
  return rows;
}

std::string to_text(const ServingResult& r) {
  const FirstToken& f = r.first_token;
  const MixedStep& m = r.mixed_step;
  const TokenCost& t = r.token_cost;
  const SharedPrefix& p = r.shared_prefix;
  std::string text = fmt::format(
      "first token of {} tokens beside {} streams and a prompt of {}: at most {:.1f} ms, mean {:.1f}; "
      "alone {:.1f} + 1.5 x the longest mixed step {:.1f} = {:.1f} ms: {:.0f}%\n",
      r.test.short_prompt, r.test.streams - 2, r.test.long_prompt, f.worst, f.mean, f.alone, f.longest_mixed, f.bound(),
      100 * f.worst / f.bound());
  text += fmt::format(
      "mixed step of {} streams and a chunk: {:.2f} ms; 2 x {:.2f} (decode) + {:.2f} (chunk) = {:.2f} ms: {:.0f}%\n",
      r.test.streams - 1, m.mixed, m.decode, m.chunk, m.bound(), 100 * m.mixed / m.bound());
  text += fmt::format(
      "token of one stream: generate {:.0f} us, {:.1f} of it outside the trunk; serve {:.0f} us, {:.1f} outside: "
      "{:.1f} us added, of {:.0f}\n",
      t.generate, t.generate_outside, t.serve, t.serve_outside, t.added(), TokenCost::kMostAdded);
  text += fmt::format(
      "prompt of {} + {} tokens, the first {} kept: {:.1f} ms; its new tokens alone {:.1f} ms: {:.0f}%\n",
      r.test.prefix, r.test.new_tokens, r.test.prefix, p.first_token, p.new_tokens, 100 * p.first_token / p.new_tokens);
  return text;
}

}  // namespace terrace::app
