// Answers, routes, keys, pages of other origins, rates: what a well-behaved client meets.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <mutex>
#include <stdexcept>
#include <vector>

#include "tests/unit/coordinator/serve/http/client.h"

namespace terrace::serve::http {
namespace {

TEST(HttpServer, WholeAnswer_HasTheHeadersOfAllAnswers) {
  const auto server = start(test_options());
  Client client(server->port());
  client.send(post("/echo", "{\"a\":1}"));
  const Answer answer = client.read();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "{\"a\":1}");
  EXPECT_EQ(answer.header("Server"), "terrace");
  EXPECT_EQ(answer.header("Content-Type"), "application/json; charset=utf-8");
  EXPECT_EQ(answer.header("Keep-Alive"), "timeout=30");
  EXPECT_NE(answer.header("x-request-id"), "");
  EXPECT_EQ(answer.header("Access-Control-Allow-Origin"), "");
  EXPECT_EQ(server->url(), "http://127.0.0.1:" + std::to_string(server->port()));
}

TEST(HttpServer, RequestsOfOneConnection_AreAnsweredInOrder) {
  const auto server = start(test_options());
  Client client(server->port());
  std::string all;
  for (int i = 0; i < 50; ++i)
    all += i % 2 == 0 ? post("/echo", std::to_string(i)) : get("/slots/" + std::to_string(i));
  ASSERT_TRUE(client.send(all));
  for (int i = 0; i < 50; ++i) EXPECT_EQ(client.read().body, std::to_string(i));
  EXPECT_EQ(server->counts().accepted, 1U);
}

TEST(HttpServer, RequestByteByByte_IsOneRequest) {
  const auto server = start(test_options());
  Client client(server->port());
  for (const char c : post("/echo", "abc")) client.send({&c, 1});
  EXPECT_EQ(client.read().body, "abc");
}

TEST(HttpServer, CloseAskedFor_Closes) {
  const auto server = start(test_options());
  Client client(server->port());
  client.send(get("/health", "Connection: close\r\n"));
  EXPECT_EQ(client.read().header("Connection"), "close");
  EXPECT_TRUE(client.at_end());
  Client old(server->port());
  old.send("GET /health HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.read().body, "healthy");
  EXPECT_TRUE(old.at_end());
}

TEST(HttpServer, Head_IsGetWithoutBody) {
  const auto server = start(test_options());
  Client client(server->port());
  client.send("HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const Answer head = client.read(true);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.header("Content-Length"), "7");
  client.send(get("/metrics"));
  EXPECT_EQ(client.read().body, "counted");  // so nothing else came before it
}

TEST(HttpServer, NoRoute_Is404_AndTellsTheMethodsThatThereAre) {
  const auto server = start(test_options());
  Client client(server->port());
  client.send(get("/nosuch"));
  Answer answer = client.read();
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(answer.body, "{\"error\":\"404 File Not Found\"}");
  EXPECT_EQ(answer.header("Allow"), "");
  client.send(get("/echo"));
  answer = client.read();
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(answer.header("Allow"), "POST, OPTIONS");
  client.send("OPTIONS /echo HTTP/1.1\r\nHost: localhost\r\n\r\n");
  answer = client.read();
  EXPECT_EQ(answer.status, 204);
  EXPECT_EQ(answer.header("Allow"), "POST, OPTIONS");
}

TEST(HttpServer, RequestId_IsTheClientsOrOurs) {
  const auto server = start(test_options());
  Client client(server->port());
  client.send(get("/health", "X-Request-ID: mine-1.2_3\r\n"));
  EXPECT_EQ(client.read().header("x-request-id"), "mine-1.2_3");
  std::string last;
  for (const char* bad : {"", "two words", "\"quoted\"", "\xc3\xa4"}) {
    client.send(get("/health", std::string("X-Request-ID: ") + bad + "\r\n"));
    const std::string id = client.read().header("x-request-id");
    EXPECT_TRUE(id.starts_with("req-")) << id;
    EXPECT_NE(id, last);
    last = id;
  }
  client.send(get("/health", "X-Request-ID: " + std::string(65, 'a') + "\r\n"));
  EXPECT_TRUE(client.read().header("x-request-id").starts_with("req-"));
}

ServerOptions with_keys() {
  ServerOptions options = test_options();
  EXPECT_TRUE(options.keys.add("sk-right").ok());
  EXPECT_TRUE(options.keys.add("sk-other").ok());
  return options;
}

TEST(HttpServer, WithKeys_EachRouteButTheOpenOnesNeedsOne) {
  const auto server = start(with_keys());
  for (const char* headers :
       {"", "Authorization: Bearer wrong\r\n", "Authorization: Basic sk-right\r\n", "Authorization: Bearer\r\n",
        "Authorization: Bearer sk-righ\r\n", "Authorization: Bearer sk-right2\r\n", "X-Api-Key: wrong\r\n"}) {
    for (const std::string& request :
         {get("/metrics", headers), get("/nosuch", headers), get("/slots/1", headers), post("/echo", "x", headers)}) {
      Client client(server->port());
      client.send(request);
      const Answer answer = client.read();
      EXPECT_EQ(answer.status, 401) << request;
      EXPECT_EQ(answer.body, "{\"error\":\"401 Invalid API Key\"}");
      EXPECT_EQ(answer.header("WWW-Authenticate"), "Bearer");
    }
    Client client(server->port());
    client.send(get("/health", headers));
    EXPECT_EQ(client.read().status, 200);
  }
  for (const char* headers : {"Authorization: Bearer sk-right\r\n", "authorization: bearer  sk-other\r\n",
                              "X-Api-Key: sk-right\r\n", "x-api-key: sk-other\r\n"}) {
    Client client(server->port());
    client.send(post("/echo", "x", headers));
    EXPECT_EQ(client.read().status, 200) << headers;
  }
}

TEST(HttpServer, WithoutKey_NoByteOfTheBodyIsWaitedFor) {
  const auto server = start(with_keys());
  Client client(server->port());
  client.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n");
  EXPECT_EQ(client.read().status, 401);
  EXPECT_TRUE(client.at_end());
}

TEST(HttpServer, OtherOrigins_AreLetInOnlyWhereNamed) {
  ServerOptions options = with_keys();
  const std::string asks = "Origin: https://chat.example\r\nAccess-Control-Request-Method: POST\r\n";
  {
    const auto closed = start(options);
    Client client(closed->port());
    client.send("OPTIONS /echo HTTP/1.1\r\nHost: localhost\r\n" + asks + "\r\n");
    const Answer answer = client.read();
    EXPECT_EQ(answer.status, 401);  // nobody in particular
    EXPECT_EQ(answer.header("Access-Control-Allow-Origin"), "");
  }
  options.cors_origins = {"https://chat.example"};
  const auto server = start(options);
  Client client(server->port());
  client.send("OPTIONS /echo HTTP/1.1\r\nHost: localhost\r\n" + asks + "\r\n");
  Answer answer = client.read();
  EXPECT_EQ(answer.status, 204);
  EXPECT_EQ(answer.header("Access-Control-Allow-Origin"), "https://chat.example");
  EXPECT_NE(answer.header("Access-Control-Allow-Headers").find("Authorization"), std::string::npos);
  client.send(get("/metrics", "Origin: https://chat.example\r\n"));
  answer = client.read();
  EXPECT_EQ(answer.status, 401);  // the page may read that it is refused, but has no key
  EXPECT_EQ(answer.header("Access-Control-Allow-Origin"), "https://chat.example");
  client.send(get("/health", "Origin: https://evil.example\r\n"));
  EXPECT_EQ(client.read().header("Access-Control-Allow-Origin"), "");
}

TEST(HttpServer, WithoutKeys_PagesOfOtherOriginsMayNotAsk) {
  ServerOptions options = test_options();
  options.cors_origins = {"https://chat.example"};
  const auto server = start(options);
  Client client(server->port());
  for (const char* origin : {"https://evil.example", "null", "https://localhost.evil", "localhost"}) {
    Client page(server->port());
    page.send(post("/echo", "x", std::string("Origin: ") + origin + "\r\n"));
    EXPECT_EQ(page.read().status, 403) << origin;
  }
  for (const char* origin : {"http://localhost", "https://chat.example"}) {  // our own page: its host is the request's
    client.send(post("/echo", "x", std::string("Origin: ") + origin + "\r\n"));
    EXPECT_EQ(client.read().status, 200) << origin;
  }
}

// DNS rebinding: the page's own name leads to this machine, so its origin is the request's host.
TEST(HttpServer, WithoutKeys_ANameThatIsNotOursMayNotAsk) {
  const auto ask = [](const Server& server, std::string_view method, std::string_view host) {
    Client page(server.port());
    page.send(fmt::format("{} /metrics HTTP/1.1\r\nHost: {}\r\nOrigin: http://{}\r\n\r\n", method, host, host));
    return page.read(true).status;
  };
  const auto server = start(test_options());
  const auto guarded = start(with_keys());
  for (const std::string_view method : {"GET", "HEAD", "POST", "OPTIONS"}) {
    EXPECT_EQ(ask(*server, method, "evil.example:8080"), 403) << method;
    EXPECT_NE(ask(*server, method, "localhost:8080"), 403) << method;
    EXPECT_NE(ask(*guarded, method, "evil.example:8080"), 403) << method;  // needs a key, which the page has not
  }
  Client page(server->port());
  page.send("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  EXPECT_NE(page.read().body.find("evil.example"), std::string::npos);
}

TEST(HttpServer, AboveTheRate_Is429WithATimeToWait) {
  ServerOptions options = test_options();
  options.requests_per_second = 0.001;
  options.burst = 3;
  const auto server = start(options);
  Client client(server->port());
  for (int i = 0; i < 3; ++i) {
    client.send(post("/echo", "x"));
    EXPECT_EQ(client.read().status, 200);
  }
  client.send(get("/metrics"));
  const Answer answer = client.read();
  EXPECT_EQ(answer.status, 429);
  EXPECT_GT(std::stoi(answer.header("Retry-After")), 900);
  client.send(get("/health"));  // monitors are not counted
  EXPECT_EQ(client.read().status, 200);
}

TEST(HttpServer, Unavailable_AnswersAllButWhatIsMarked) {
  Router router = test_router();
  router.add("GET", "/health/live",
             {.handler = [](const std::shared_ptr<Exchange>& e) { e->reply({}); },
              .runs = Route::Runs::kIo,
              .needs_key = false,
              .while_unavailable = true});
  ServerOptions options = test_options();
  options.unavailable = Unavailable{.message = "loading", .retry_after_s = 1};
  const auto server = start(options, std::move(router));
  Client client(server->port());
  for (const char* path : {"/health", "/metrics", "/nosuch"}) {
    client.send(get(path));
    const Answer answer = client.read();
    EXPECT_EQ(answer.status, 503) << path;
    EXPECT_EQ(answer.body, "{\"error\":\"503 loading\"}");
    EXPECT_EQ(answer.header("Retry-After"), "1");
  }
  client.send(get("/health/live"));
  EXPECT_EQ(client.read().status, 200);
  server->set_unavailable(std::nullopt);
  EXPECT_TRUE(comes_true([&] {
    client.send(get("/health"));
    return client.read().status == 200;
  }));
}

TEST(HttpServer, HandlerThatThrowsOrForgets_Is500_AndTheConnectionGoesOn) {
  Router router = test_router();
  router.add("GET", "/throws",
             {.handler = [](const std::shared_ptr<Exchange>&) { throw std::runtime_error("planted"); }});
  router.add("GET", "/forgets", {.handler = [](const std::shared_ptr<Exchange>&) {}, .runs = Route::Runs::kIo});
  ServerOptions options = test_options();
  std::mutex mutex;
  std::vector<std::string> lines;
  options.log = Logger::to_function(LogLevel::kInfo, [&](LogLevel, std::string_view text) {
    const std::scoped_lock lock(mutex);
    lines.emplace_back(text);
  });
  const auto server = start(options, std::move(router));
  Client client(server->port());
  for (const char* path : {"/throws", "/forgets"}) {
    client.send(get(path));
    EXPECT_EQ(client.read().status, 500) << path;
  }
  client.send(get("/health"));
  EXPECT_EQ(client.read().status, 200);
  server->stop(Milliseconds(0));  // the line is written behind the answer: its thread ends here
  const std::scoped_lock lock(mutex);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("planted"), std::string::npos);
}

TEST(HttpServer, EachRequest_IsToldOnceWhenItIsDone) {
  ServerOptions options = test_options();
  std::mutex mutex;
  std::vector<Served> served;
  options.on_served = [&](const Served& one) {
    const std::scoped_lock lock(mutex);
    served.push_back(one);
  };
  const auto server = start(options);
  Client client(server->port());
  client.send(post("/echo", "abc", "X-Request-Id: r1\r\n"));
  client.read();
  client.send(get("/slots/7"));
  client.read();
  client.send(get("/nosuch"));
  client.read();
  client.send("junk\r\n\r\n");
  client.read();
  ASSERT_TRUE(comes_true([&] {
    const std::scoped_lock lock(mutex);
    return served.size() == 4;
  }));
  EXPECT_EQ(served[0].id, "r1");
  EXPECT_EQ(served[0].method, "POST");
  EXPECT_EQ(served[0].path, "/echo");
  EXPECT_EQ(served[0].status, 200);
  EXPECT_EQ(served[0].bytes_in, 3U);
  EXPECT_GT(served[0].bytes_out, 3U);
  EXPECT_TRUE(served[0].complete);
  EXPECT_EQ(served[1].path, "/slots/{id}");
  EXPECT_EQ(served[2].path, "");
  EXPECT_EQ(served[2].status, 404);
  EXPECT_EQ(served[3].status, 400);
}

TEST(HttpServer, AddressInUse_IsNamed) {
  const auto server = start(test_options());
  ServerOptions options = test_options();
  options.port = server->port();
  const auto second = Server::start(options, test_router());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code(), ErrorCode::kIo);
  EXPECT_NE(second.error().text().find(std::to_string(options.port)), std::string::npos);
}

}  // namespace
}  // namespace terrace::serve::http
