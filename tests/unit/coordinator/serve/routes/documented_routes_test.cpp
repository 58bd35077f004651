// docs/http.md names every route that the server has, and no other; those that it calls missing are answered 501.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "coordinator/serve/routes/routes.h"
#include "tests/test_data.h"
#include "tests/unit/coordinator/serve/routes/fakes.h"

namespace terrace::serve {
namespace documented_routes_test {

using Names = std::set<std::string>;

std::string section(const std::string& page, const std::string& heading) {
  const std::size_t begin = page.find("\n## " + heading + "\n");
  if (begin == std::string::npos) return "";
  return page.substr(begin, page.find("\n## ", begin + 1) - begin);
}

// "GET /a" and "GET /b" of a row whose first cell is `GET /a`, `/b`.
Names routes_of_row(const std::string& row) {
  Names names;
  std::string method;
  std::istringstream cell(row.substr(0, row.find('|', 1)));
  for (std::string text; std::getline(std::getline(cell, text, '`'), text, '`');) {
    const std::size_t space = text.find(' ');
    if (space != std::string::npos) method = text.substr(0, space);
    names.insert(method + " " + text.substr(space == std::string::npos ? 0 : space + 1));
  }
  return names;
}

// The routes of each table of the section.
std::vector<Names> documented() {
  std::ifstream in(terrace::test::source_dir() / "docs" / "http.md");
  std::stringstream page;
  page << in.rdbuf();
  std::istringstream lines(section(page.str(), "Routes"));
  std::vector<Names> tables;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("| route |")) tables.emplace_back();
    if (line.starts_with("| `") && !tables.empty()) tables.back().merge(routes_of_row(line));
  }
  return tables;
}

TEST(DocumentedRoutes, AreThoseOfTheServer_AndWhatIsCalledMissingIs501) {
  FakeScheduler scheduler;
  api::Context context;
  Backend backend;
  backend.context = &context;
  backend.scheduler = &scheduler;
  const http::Router router = make_router(backend);
  const std::vector<std::string> routes = router.routes();
  const std::vector<Names> tables = documented();
  ASSERT_EQ(tables.size(), 2u) << "what there is, and what is missing";
  Names every = tables[0];
  every.insert(tables[1].begin(), tables[1].end());
  EXPECT_EQ(every, Names(routes.begin(), routes.end()));
  EXPECT_EQ(every.size(), tables[0].size() + tables[1].size()) << "no route is in both";
  for (const std::string& name : tables[1]) {
    const std::size_t space = name.find(' ');
    http::Request request;
    request.method = name.substr(0, space);
    request.path = name.substr(space + 1);
    const auto match = router.find(request.method, request.path);
    ASSERT_NE(match.route, nullptr) << name;
    const auto exchange = std::make_shared<FakeExchange>(std::move(request));
    match.route->handler(exchange);
    EXPECT_EQ(exchange->replied.value_or(http::Reply{.status = 0}).status, 501) << name;
  }
}

}  // namespace documented_routes_test
}  // namespace terrace::serve
