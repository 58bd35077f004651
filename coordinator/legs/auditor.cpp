#include "coordinator/legs/auditor.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "common/base/split_mix.h"

namespace terrace::legs {
namespace {

// Of the answer to one batch: what every node has room for.
constexpr std::size_t kMostBytes = std::size_t{1} << 20;
// Scratch for so many is little beside what is planned for; audits of more than a few pairs are rare.
constexpr std::size_t kPairsPerSlice = 32;
// Audits in a row that a node may leave unanswered while it answers batches.
constexpr std::uint32_t kMostUnanswered = 3;

std::uint64_t mixed(std::uint64_t x) { return split_mix(x + kSplitMixStep); }

// fraction * 2^64.
std::uint64_t threshold_of(double fraction) {
  return fraction >= 1 ? ~std::uint64_t{0} : static_cast<std::uint64_t>(std::ldexp(fraction, 64));
}

// Pairs of one batch of slots whose outputs are so wide.
std::size_t pairs_of_a_piece(std::size_t d_model) {
  return std::clamp<std::size_t>(kMostBytes / (d_model * sizeof(float)), 1, Auditor::kMostPairs);
}

template <class T>
std::span<T> first_of(std::vector<T>& buffer, std::size_t n) {
  if (buffer.size() < n) buffer.resize(n);
  return std::span(buffer).first(n);
}

}  // namespace

Auditor::Auditor(AuditOptions options, AuditModel model, Parallel& parallel, const kernels::Ops& ops)
    : options_(std::move(options)),
      model_(std::move(model)),
      ops_(ops),
      executor_(parallel, ops, kPairsPerSlice),
      clock_(options_.clock != nullptr ? *options_.clock : steady_clock()),
      threshold_(threshold_of(options_.fraction)) {
  TERRACE_CHECK(options_.fraction > 0 && !model_.kernels.empty(), "audits of no pairs");
}

std::uint64_t Auditor::scratch_bytes(std::span<const kernels::ExpertKernels> layers, std::size_t n_workers,
                                     std::size_t n_rows, std::size_t top_k, std::size_t n_nodes) {
  std::uint64_t executor = 0, answer = 0;
  for (const kernels::ExpertKernels& layer : layers) {
    executor = std::max(executor, kernels::Executor::scratch_bytes(layer, n_workers));
    const std::uint64_t row = std::uint64_t{layer.shape.d_model} * sizeof(float);
    answer = std::max(answer, pairs_of_a_piece(layer.shape.d_model) * row);
  }
  const std::uint64_t pairs = n_rows * top_k * sizeof(kernels::Pair);  // of a node, and those left beside
  return executor + 2 * (answer + n_rows) + (n_nodes + 1) * pairs;
}

// ---- which pairs ----------------------------------------------------------------------------------------------------

void Auditor::begin_step(std::uint64_t step) {
  step_ = step;
  step_hash_ = mixed(options_.seed ^ mixed(step));
  const auto now = clock_.now();
  for (std::size_t i = 0; i < books_.size(); ++i)
    if (now - books_[i].clean_at >= options_.at_least_every) make_due(i);
}

void Auditor::make_due(std::size_t book) {
  books_[book].due = true;
  books_[book].due_layer = static_cast<std::uint32_t>(mixed(step_hash_ + book) % model_.kernels.size());
}

std::size_t Auditor::book_of(const std::string& name) {
  const auto found = std::ranges::find(books_, name, &Book::name);
  if (found != books_.end()) return static_cast<std::size_t>(found - books_.begin());
  books_.push_back({.name = name, .clean_step = step_, .clean_at = clock_.now()});
  make_due(books_.size() - 1);
  return books_.size() - 1;
}

std::uint64_t Auditor::checked_until(const std::string& leg) const {
  const auto found = std::ranges::find(books_, leg, &Book::name);
  return found == books_.end() ? 0 : found->clean_step;
}

bool Auditor::is_chosen(std::uint32_t layer, const kernels::Pair& pair) const {
  if (options_.fraction >= 1) return true;
  const std::uint64_t place = std::uint64_t{layer} << 32 | std::uint64_t{pair.row} << 16 | pair.expert;
  return mixed(step_hash_ ^ mixed(place)) < threshold_;
}

void Auditor::take(std::size_t place, Leg& leg, const LegBatch& batch, std::vector<kernels::Pair>& pairs) {
  if (pairs.empty()) return;
  Layer& layer = layers_[place];
  if (layer.n_works == layer.works.size()) layer.works.push_back(std::make_unique<Work>());
  Work& work = *layer.works[layer.n_works];
  work.book = book_of(leg.name());
  work.pairs.clear();
  rest_.clear();
  for (const kernels::Pair& pair : pairs) (is_chosen(batch.layer, pair) ? work.pairs : rest_).push_back(pair);
  Book& book = books_[work.book];
  if (work.pairs.empty() && book.due && batch.layer >= book.due_layer) {
    const auto one = rest_.begin() + static_cast<std::ptrdiff_t>(mixed(step_hash_ ^ batch.layer) % rest_.size());
    work.pairs.push_back(*one);
    rest_.erase(one);
  }
  if (work.pairs.empty()) return;
  book.due = false;
  pairs.swap(rest_);
  work.leg = &leg;
  work.batch = batch;
  work.batch.form = ReplyForm::kSlots;
  work.range = {0, batch.n_rows};
  work.batch.ranges = {&work.range, 1};
  work.n_sent = 0;
  for (Piece& piece : work.pieces) piece = {};
  ++layer.n_works;
}

// ---- there and here -------------------------------------------------------------------------------------------------

std::size_t Auditor::most_pairs(const LegBatch& batch) const {
  return pairs_of_a_piece(model_.kernels[batch.layer].shape.d_model);
}

void Auditor::submit(std::size_t place) {
  Layer& layer = layers_[place];
  for (std::size_t i = 0; i < layer.n_works; ++i) submit_next(*layer.works[i], layer.works[i]->pieces[0]);
}

// The next pairs become `piece`, sent or not.
void Auditor::submit_next(Work& work, Piece& piece) {
  const auto rest = std::span<const kernels::Pair>(work.pairs).subspan(work.n_sent);
  piece = {};
  piece.pairs = rest.first(std::min(rest.size(), most_pairs(work.batch)));
  if (piece.pairs.empty()) return;
  work.n_sent += piece.pairs.size();
  piece.batch = work.batch;
  piece.batch.pairs = piece.pairs;
  if (work.leg->state() != LegState::kOk) return;
  const Result<Ticket> ticket = work.leg->submit(piece.batch);
  if (ticket.ok()) {
    piece.ticket = *ticket;
  } else {
    unanswered(work, ticket.error());
  }
}

Status Auditor::collect(std::size_t place, kernels::SumsView sums, std::span<std::uint8_t> failed) {
  Layer& layer = layers_[place];
  for (std::size_t i = 0; i < layer.n_works; ++i) {
    Work& work = *layer.works[i];
    // While one piece is compared the next is under way.
    for (std::size_t now = 0; !work.pieces[now].pairs.empty(); now = 1 - now) {
      submit_next(work, work.pieces[1 - now]);
      compute(work.pieces[now], sums, failed);
      if (work.pieces[now].ticket) compare(work, work.pieces[now]);
    }
  }
  layer.n_works = 0;
  const std::optional<Error> wrong = std::exchange(wrong_, std::nullopt);
  if (wrong && options_.fraction < 1) return *wrong;
  return {};
}

void Auditor::compute(const Piece& piece, kernels::SumsView sums, std::span<std::uint8_t> failed) {
  const LegBatch& batch = piece.batch;
  const std::size_t d_model = sums.d_model;
  const std::span<float> ours = first_of(ours_, piece.pairs.size() * d_model);
  our_failed_.assign(batch.n_rows, 0);
  const auto slab_of = [&](std::uint16_t expert) { return model_.lookup(batch.layer, expert); };
  const auto between = [this] {
    if (between_slices_) between_slices_();
    return true;
  };
  const auto done =
      executor_.run_slots(model_.kernels[batch.layer], slab_of,
                          {batch.gate_rows, batch.up_rows, batch.n_rows, piece.pairs}, ours, our_failed_, between);
  TERRACE_CHECK(done.ok(), "an audit here is stopped by nobody");
  for (std::size_t i = 0; i < piece.pairs.size(); ++i) {
    const kernels::Pair& pair = piece.pairs[i];
    const bool good = our_failed_[pair.row] == 0 &&
                      ops_.add_fixed(pair.weight, ours.data() + i * d_model, d_model, sums.shift, sums.row(pair.row));
    if (!good) failed[pair.row] = 1;
  }
}

// ---- the verdict ----------------------------------------------------------------------------------------------------

// For the node's answer, no longer than to its soft limit: nothing depends on it.
Status Auditor::await(Work& work, Ticket ticket) {
  Leg& leg = *work.leg;
  for (;;) {
    const StepClock::TimePoint now = clock_.now();  // what came in time is taken before it is judged
    leg.progress();
    TERRACE_RETURN_IF_ERROR(leg.ticket_status(ticket));
    if (leg.range_state(ticket, 0) == RangeState::kReady) return {};
    const StepClock::TimePoint limit = leg.soft_limit(ticket);
    if (now >= limit) {
      leg.set_suspect(ticket);
      return Error(ErrorCode::kDeadline, leg.name() + ": has not answered an audit in time");
    }
    waits_.clear();
    leg.add_waits(waits_);
    clock_.wait(waits_, std::min(limit, now + StepClock::kLongestWait));
  }
}

void Auditor::compare(Work& work, Piece& piece) {
  const std::size_t d_model = model_.kernels[work.batch.layer].shape.d_model;
  const std::span<float> theirs = first_of(theirs_, piece.pairs.size() * d_model);
  their_failed_.assign(work.batch.n_rows, 0);
  const Status answered = await(work, *piece.ticket);
  if (answered.ok()) work.leg->take_slots(*piece.ticket, theirs, their_failed_);
  work.leg->abandon(*piece.ticket);
  if (!answered.ok()) return unanswered(work, answered.error());
  for (std::size_t i = 0; i < piece.pairs.size(); ++i) {
    const kernels::Pair& pair = piece.pairs[i];
    const bool ours_fails = our_failed_[pair.row] != 0, theirs_fails = their_failed_[pair.row] != 0;
    if (ours_fails != theirs_fails)
      return found_wrong(work, pair.expert,
                         theirs_fails ? "says that it is not finite" : "does not say that it is not finite");
    if (!ours_fails &&
        std::memcmp(ours_.data() + i * d_model, theirs.data() + i * d_model, d_model * sizeof(float)) != 0)
      return found_wrong(work, pair.expert, "has other bits than this machine's");
  }
  Book& book = books_[work.book];
  book.clean_step = step_;
  book.clean_at = clock_.now();
  book.n_unanswered = 0;
}

// Dead is not wrong, and neither is late. But a node that answers batches and never an audit is not checked by
// anything.
void Auditor::unanswered(Work& work, const Error& why) {
  if (is_out(work.leg->state()) || why.code() != ErrorCode::kRefused) return;
  if (++books_[work.book].n_unanswered < kMostUnanswered) return;
  found_wrong(work, work.pairs.front().expert,
              fmt::format("was asked for and not given, in {} audits: {}", kMostUnanswered, why.text()));
}

void Auditor::found_wrong(Work& work, std::uint16_t expert, const std::string& how) {
  const std::uint32_t layer = work.batch.layer;
  const Error why(
      ErrorCode::kUncertain,
      fmt::format("{}: computes wrong: its output of expert {} of layer {} (slab {}) {}; the node is out until "
                  "this program is started anew: run `terrace selftest` on both machines first",
                  work.leg->name(), expert, layer, model_.slab_id(layer, expert), how));
  const std::uint64_t since = books_[work.book].clean_step;
  uncertain_since_ = verdict_step_ == step_ ? std::min(uncertain_since_, since) : since;
  verdict_step_ = step_;
  if (!wrong_) wrong_ = Error(ErrorCode::kUncertain, why.text());
  work.leg->put_out(LegState::kWrong, why);
}

}  // namespace terrace::legs
