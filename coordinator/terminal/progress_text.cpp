#include "coordinator/terminal/progress_text.h"

#include <fmt/core.h>

#include "common/base/units.h"
#include "common/base/utf8.h"

namespace terrace::terminal {
namespace {

constexpr std::chrono::seconds kGuess{1};

// Whole seconds, minutes and hours: a time that is guessed has no decimals.
std::string time_left(double seconds) {
  const auto whole = static_cast<std::uint64_t>(seconds + 0.5);
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
}

}  // namespace

std::string progress_text(std::string_view what, const ProgressState& state) {
  if (state.total == 0) return fmt::format("{}: waiting", what);
  const auto percent =
      static_cast<std::uint64_t>(static_cast<double>(state.done) * 100 / static_cast<double>(state.total));
  std::string text = fmt::format("{}: {} of {}, {}%", what, format_size(state.done), format_size(state.total), percent);
  if (state.elapsed < kGuess || state.done == 0) return text;
  const double rate = static_cast<double>(state.done) / std::chrono::duration<double>(state.elapsed).count();
  text += fmt::format(", {}/s", format_size(static_cast<std::uint64_t>(rate)));
  if (state.done < state.total)
    text += fmt::format(", {} left", time_left(static_cast<double>(state.total - state.done) / rate));
  return text;
}

std::string_view fit(std::string_view text, std::size_t columns) {
  std::size_t used = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_step(text.substr(at)).length;
    used += length == 1 ? 1 : 2;
    if (used > columns) return text.substr(0, at);
    at += length;
  }
  return text;
}

}  // namespace terrace::terminal
