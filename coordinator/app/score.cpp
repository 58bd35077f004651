// terrace score
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/base/console.h"
#include "common/base/text_file.h"
#include "coordinator/app/command.h"
#include "coordinator/app/engine.h"
#include "coordinator/app/model_options.h"
#include "coordinator/app/open_stream.h"
#include "coordinator/app/text_input.h"

namespace terrace::app {
namespace {

struct ScoreOptions {
  ModelOptions model;
  std::filesystem::path text;
  std::filesystem::path ids;
  std::uint32_t chunk = 512;
};

OptionTable make_table(ScoreOptions* o) {
  OptionTable table("terrace score",
                    "Measures how well the model predicts a text: the mean negative log-likelihood, in nats a token.");
  table.add("text", &o->text, "a text file; special tokens in it are found");
  table.add("ids", &o->ids, "a file with a JSON array of token ids");
  table.add("chunk", &o->chunk, "tokens of a fresh sequence each; a shorter rest is left out").range(2, 1 << 20);
  table.add("json", &o->model.json, "print the JSON object on one line");
  add_model_options(table, &o->model);
  add_activations_option(table, &o->model);
  return table;
}

// Of logits wanted at once: a chunk of a large vocabulary would otherwise need gigabytes.
constexpr std::size_t kMostLogitBytes = std::size_t{64} << 20;

Result<std::string> read_content(const ScoreOptions& o) {
  if (o.text.empty() == o.ids.empty())
    return Error(ErrorCode::kInvalidArgument, "give either --text FILE or --ids FILE");
  return read_text_file(o.text.empty() ? o.ids : o.text);
}

Result<std::vector<std::int32_t>> ids_of(const ScoreOptions& o, const std::string& content, Engine& engine) {
  if (!o.text.empty()) {
    TERRACE_ASSIGN_OR_RETURN(const text::Tokenizer* tokenizer, engine.tokenizer());
    return tokenizer->encode(content, {.parse_special = true});
  }
  const std::uint32_t vocabulary = engine.trunk().info().vocabulary;
  return read_ids(content, o.ids.string(), static_cast<std::int32_t>(vocabulary - 1));
}

// -ln p(token) under softmax of the logits, in double.
double negative_log_likelihood(std::span<const float> logits, std::int32_t token) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum) - static_cast<double>(logits[static_cast<std::size_t>(token)]);
}

struct ScoredChunk {
  double nll = 0;
  std::uint64_t last_step = 0;  // of the trunk, that it took
};

// The sum over the chunk's predictions: every token but the first. Nothing is predicted behind the last, so it is not
// computed.
Result<ScoredChunk> score_chunk(arch::Trunk& trunk, std::span<const std::int32_t> ids, std::size_t batch) {
  TERRACE_ASSIGN_OR_RETURN(OpenStream stream, OpenStream::open(trunk));
  const std::size_t vocabulary = trunk.info().vocabulary;
  double nll = 0;
  for (std::size_t first = 0; first + 1 < ids.size(); first += batch) {
    const auto part = ids.subspan(first, std::min(batch, ids.size() - 1 - first));
    TERRACE_ASSIGN_OR_RETURN(const std::span<const float> logits, stream.step(part, WantLogits::kAll));
    for (std::size_t i = 0; i < part.size(); ++i)
      nll += negative_log_likelihood(logits.subspan(i * vocabulary, vocabulary), ids[first + i + 1]);
  }
  return ScoredChunk{nll, stream.last_step()};
}

}  // namespace

std::vector<std::string> score_option_names() {
  ScoreOptions o;
  return make_table(&o).option_names();
}

Status run_score(const CommandContext& context) {
  ScoreOptions o;
  OptionTable table = make_table(&o);
  TERRACE_ASSIGN_OR_RETURN(const bool done, parse_options(table, context, &o.model.quiet));
  if (done) return {};
  TERRACE_RETURN_IF_ERROR(check(o.model));
  TERRACE_ASSIGN_OR_RETURN(const std::string content, read_content(o));
  const auto before_load = [&o](Engine& opening, const arch::ModelInfo&, std::uint32_t) -> Status {
    if (o.text.empty()) return {};
    TERRACE_RETURN_IF_ERROR(opening.tokenizer());
    return {};
  };
  TERRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                           Engine::open(o.model, context.environment, before_load));
  TERRACE_ASSIGN_OR_RETURN(const ThreadAffinity pinned, engine->pin_step_thread());
  arch::Trunk& trunk = engine->trunk();
  TERRACE_ASSIGN_OR_RETURN(const std::vector<std::int32_t> ids, ids_of(o, content, *engine));
  if (o.chunk > trunk.context())
    return Error(
        ErrorCode::kContextFull,
        fmt::format("a chunk of {} tokens does not fit the context of {}; lower --chunk", o.chunk, trunk.context()));
  if (ids.size() < o.chunk)
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("the text has {} tokens, fewer than one chunk of {}; lower --chunk", ids.size(), o.chunk));
  const std::size_t most_rows = std::max<std::size_t>(1, kMostLogitBytes / (std::size_t{trunk.info().vocabulary} * 4));
  const std::size_t batch = std::min(most_rows, trunk.max_rows());

  std::vector<ScoredChunk> scored;
  while ((scored.size() + 1) * o.chunk <= ids.size()) {
    const auto chunk = score_chunk(trunk, std::span(ids).subspan(scored.size() * o.chunk, o.chunk), batch);
    if (!chunk.ok() && chunk.error().code() == ErrorCode::kUncertain) {
      tell_roll_back(chunk.error());
      std::erase_if(scored, [&](const ScoredChunk& s) { return s.last_step >= trunk.uncertain_since(); });
      continue;
    }
    if (!chunk.ok()) return chunk.error();
    scored.push_back(*chunk);
    if (!o.model.quiet)
      print_err("terrace: chunk {} of {}: nll {:.4f}\n", scored.size(), ids.size() / o.chunk,
                chunk->nll / (o.chunk - 1));
  }
  nlohmann::ordered_json chunks = nlohmann::ordered_json::array();
  double total = 0;
  for (const ScoredChunk& chunk : scored) {
    total += chunk.nll;
    chunks.push_back({{"tokens", o.chunk}, {"nll", chunk.nll / (o.chunk - 1)}});
  }
  const double mean = total / static_cast<double>(chunks.size() * (o.chunk - 1));
  nlohmann::ordered_json json;
  const std::size_t tokens = chunks.size() * o.chunk;
  json["chunks"] = std::move(chunks);
  json["tokens"] = tokens;
  json["nll"] = mean;
  json["ppl"] = std::exp(mean);
  if (o.model.json)
    print_json_line(json);
  else
    print_out("{}\n", json.dump(2));
  return {};
}

}  // namespace terrace::app
