#include "coordinator/app/plan_speed.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "common/base/console.h"
#include "common/base/units.h"

namespace terrace::app {
namespace {

using planner::LegMeasurement;
using planner::Loss;
using planner::StepPrediction;

std::size_t name_width(const planner::Measurements& measured) {
  std::size_t width = 4;
  for (const LegMeasurement& leg : measured.legs) width = std::max(width, leg.name.size());
  return width;
}

std::string rate_text(double bytes) {
  return bytes <= 0 ? "-" : fmt::format("{}/s", format_size(static_cast<std::uint64_t>(bytes)));
}
double us(double seconds) { return seconds * 1e6; }
double ms(double seconds) { return seconds * 1e3; }

void print_rate(const char* what, const StepPrediction& step) {
  print_out("  {:<28} {:>9.2f} tok/s   limited by {}\n", what, step.tokens_per_second, step.limited_by);
}

void print_losses(const ProbeResult& probe, const planner::Outlook& outlook) {
  if (outlook.losses.empty()) return;
  const std::size_t width = name_width(probe.measured);
  print_out("\nwith one node lost, its experts computed here from the file (once all are in memory):\n");
  for (const Loss& loss : outlook.losses)
    print_out("  {:<{}}  decode {:>8.2f} tok/s{}  prompt {:>8.2f} tok/s{}  {} to read: {:.1f} s\n",
              probe.measured.legs[loss.legs.front()].name, width, loss.decode.tokens_per_second,
              loss.has_room ? fmt::format(" ({:.2f})", loss.settled.tokens_per_second) : " (no room)",
              loss.prompt.tokens_per_second,
              loss.has_room ? fmt::format(" ({:.2f})", loss.settled_prompt.tokens_per_second) : " (no room)",
              format_size(loss.bytes), loss.read_seconds);
}

std::string names_of(const ProbeResult& probe, const std::vector<planner::Heir>& heirs) {
  std::string names;
  for (const planner::Heir& heir : heirs)
    names += fmt::format("{}{} {}", names.empty() ? "" : ", ", probe.measured.legs[heir.leg].name, heir.experts);
  return names;
}

void print_heirs(const ProbeResult& probe, const planner::Outlook& outlook) {
  if (outlook.losses.size() < 2) return;
  const std::size_t width = name_width(probe.measured);
  print_out("\nonce other nodes have taken its experts over, as far as they have room:\n");
  for (const Loss& loss : outlook.losses) {
    const std::string& name = probe.measured.legs[loss.legs.front()].name;
    if (loss.heirs.empty()) {
      print_out("  {:<{}}  nobody has room: its experts stay here\n", name, width);
      continue;
    }
    print_out(
        "  {:<{}}  decode {:>8.2f} tok/s  prompt {:>8.2f} tok/s  {} to move: {:.1f} s, {:.1f} s beside streams  "
        "experts: {}{}\n",
        name, width, loss.moved.tokens_per_second, loss.moved_prompt.tokens_per_second,
        format_size(planner::bytes_to_move(loss.heirs)), loss.move_seconds, loss.move_beside_seconds,
        names_of(probe, loss.heirs), planner::stays_here(loss) ? "  (they stay here: decoding is faster so)" : "");
  }
}

void print_payers(const ProbeResult& probe, const planner::Outlook& outlook) {
  bool any = false;
  for (const planner::Without& without : outlook.without) {
    if (without.decode_pays && without.prompt_pays) continue;
    if (!any) print_out("\n");
    any = true;
    const std::string& name = probe.measured.legs[without.leg].name;
    if (!without.decode_pays && !without.prompt_pays)
      print_out("{} does not pay: with its experts on {} decode is {:.2f} tok/s and a prompt {:.2f}\n", name,
                without.experts_on, without.decode->tokens_per_second, without.prompt->tokens_per_second);
    else if (!without.decode_pays)
      print_out("{} does not pay for decoding: with its experts on {} it is {:.2f} tok/s\n", name, without.experts_on,
                without.decode->tokens_per_second);
    else
      print_out("{} does not pay for prompts: with its experts on {} they are {:.2f} tok/s\n", name, without.experts_on,
                without.prompt->tokens_per_second);
  }
}

void explain_step(const char* what, const ProbeResult& probe, const StepPrediction& step) {
  const std::size_t width = name_width(probe.measured);
  print_out(
      "\n{}: a step of {:.3f} ms = trunk {:.3f} + dispatching {:.3f} + layers {:.3f} + beyond the terms {:.3f}{}\n",
      what, ms(step.step), ms(step.trunk), ms(step.dispatch), ms(step.layers), ms(step.whole),
      step.parts > 1 ? fmt::format(" - hidden, in {} parts, {:.3f}", step.parts, ms(step.hidden)) : "");
  print_out("  a layer, means\n");
  print_out("  {:<{}}  {:>7}  {:>8}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}  {:>6}\n", "leg", width, "experts",
            "rows", "compute us", "trip us", "bytes out", "back", "wire us", "read us", "last");
  for (std::size_t i = 0; i < step.legs.size(); ++i) {
    const planner::LegTerms& t = step.legs[i];
    print_out(
        "  {:<{}}  {:>7.2f}  {:>8.1f}  {:>10.1f}  {:>10.1f}  {:>10.0f}  {:>10.0f}  {:>10.1f}  {:>10.1f}  {:>5.0f}%\n",
        probe.measured.legs[i].name, width, t.experts, t.rows, us(t.compute), us(t.round_trip), t.bytes_out,
        t.bytes_back, us(t.wire), us(t.read), 100 * t.limits);
  }
}

void explain_measurements(const ProbeResult& probe) {
  const planner::Measurements& m = probe.measured;
  const std::size_t width = name_width(m);
  print_out("\nmeasured: us an expert at 1, 8, 64, 512 rows, alone and with all legs at once\n");
  for (std::size_t i = 0; i < m.legs.size(); ++i) {
    const LegMeasurement& leg = m.legs[i];
    for (std::size_t kind = 0; kind < leg.alone.size(); ++kind) {
      print_out("  {:<{}}  kind {}  {:>3} threads  experts {:>6}  alone", leg.name, width, kind, leg.threads,
                format_size(probe.leg_bytes[i]));
      for (const double each : leg.alone[kind].each) print_out(" {:>9.1f}", us(each));
      print_out("  at once");
      for (const double each : leg.together[kind].each) print_out(" {:>9.1f}", us(each));
      print_out("  a decode batch {:.1f}\n", us(leg.alone[kind].decode_fixed));
    }
  }
  for (const LegMeasurement& leg : m.legs)
    if (!leg.is_host)
      print_out("  {:<{}}  round trip {:.1f} us, batches {}, weights {}\n", leg.name, width, us(leg.round_trip),
                rate_text(leg.bytes_per_second), rate_text(leg.weights_per_second));
  print_out("  a further node with a batch: {:.1f} us a layer\n", us(m.fan_out));
  print_out("  measured whole, over the terms: a decode step's layers {:.3f}, a prompt's step {:.3f}\n",
            m.decode.whole_over_terms, m.prompt.whole_over_terms);
  print_out("  the model's file, reads of {}:", format_size(probe.disk.read_bytes));
  for (const DiskRate& rate : probe.disk.rates)
    print_out(" {} {} at a time {};", rate.direct ? "direct" : "buffered", rate.depth,
              rate_text(rate.bytes_per_second));
  print_out("\n");
}

}  // namespace

void print_outlook(const ProbeResult& probe, const planner::Outlook& outlook, bool explain) {
  print_out("\npredicted from what was measured just now, before loading:\n");
  print_rate("decode, empty context", outlook.decode);
  print_rate(fmt::format("prompt of {} tokens", probe.model.prompt_rows).c_str(), outlook.prompt);
  print_losses(probe, outlook);
  print_heirs(probe, outlook);
  print_payers(probe, outlook);
  for (const std::string& note : probe.notes) print_out("\nnote: {}\n", note);
  if (!explain) return;
  explain_step("decode", probe, outlook.decode);
  explain_step("prompt", probe, outlook.prompt);
  for (const Loss& loss : outlook.losses)
    explain_step(fmt::format("decode without {}", probe.measured.legs[loss.legs.front()].name).c_str(), probe,
                 loss.decode);
  explain_measurements(probe);
}

std::string date_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
}

}  // namespace terrace::app
