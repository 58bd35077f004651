#include "coordinator/serve/http/router.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace terrace::serve::http {
namespace {

std::vector<std::string> parts_of(std::string_view path) {
  std::vector<std::string> parts;
  for (std::size_t begin = 1; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    parts.emplace_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool is_open(std::string_view part) { return part.starts_with('{') && part.ends_with('}'); }

// The open parts, if `path` is one that `pattern` means.
std::optional<Headers> fit(const std::vector<std::string>& pattern, const std::vector<std::string>& path) {
  if (pattern.size() != path.size()) return std::nullopt;
  Headers open;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const std::string_view part = pattern[i];
    if (is_open(part) && !path[i].empty())
      open.emplace_back(part.substr(1, part.size() - 2), path[i]);
    else if (part != path[i])
      return std::nullopt;
  }
  return open;
}

}  // namespace

void Router::add(std::string method, std::string path, Route route) {
  TERRACE_CHECK(path.starts_with('/') && route.handler, "a route has a path and a handler");
  std::vector<std::string> parts = parts_of(path);
  for (const Entry& entry : entries_)
    TERRACE_CHECK(entry.method != method || entry.parts != parts, "a route is added once");
  entries_.push_back({std::move(method), std::move(path), std::move(parts), std::move(route)});
}

Router::Match Router::find(std::string_view method, std::string_view path) const {
  Match match;
  if (!path.starts_with('/')) return match;
  const std::vector<std::string> parts = parts_of(path);
  for (const Entry& entry : entries_) {
    auto open = fit(entry.parts, parts);
    if (!open) continue;
    match.methods.push_back(entry.method);
    if (match.route != nullptr || entry.method != method) continue;
    match.route = &entry.route;
    match.pattern = entry.path;
    match.parameters = std::move(*open);
  }
  return match;
}

std::vector<std::string> Router::routes() const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.push_back(entry.method + " " + entry.path);
  return names;
}

}  // namespace terrace::serve::http
