// A client that says exactly the bytes that a test gives it, and a server to say them to.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "coordinator/serve/http/server.h"

namespace terrace::serve::http {

struct Answer {
  int status = 0;  // 0: the connection ended before a whole head
  std::string head;
  std::string body;       // without chunk marks
  bool complete = false;  // as long as announced, or to the last chunk
  // The first of that name, in any case; empty: none.
  std::string header(std::string_view name) const;
};

class Client {
 public:
  explicit Client(std::uint16_t port, int receive_buffer = 0);  // bytes; 0: the system's
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // False: the server has closed.
  bool send(std::string_view bytes);
  // The next answer, or what there is of it when the connection ends or ten seconds are over.
  Answer read(bool to_head = false);
  // More of what the server sends, at least `bytes` of it, unless it closes.
  std::string read_bytes(std::size_t bytes);
  // The server has closed, and nothing is left to be read.
  bool at_end();
  void shut_sending();
  void close();
  void reset();  // closes so that the server sees a reset

 private:
  bool fill();  // false: no more
  int socket_ = -1;
  std::string input_;
};

inline std::string get(std::string_view path, std::string_view headers = "") {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(headers) + "\r\n";
}
inline std::string post(std::string_view path, std::string_view body, std::string_view headers = "") {
  return "POST " + std::string(path) +
         " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
         std::string(headers) + "\r\n" + std::string(body);
}

// Options of a test: any port, errors as {"error":"STATUS MESSAGE"}.
ServerOptions test_options();
// GET /health (open, kIo), GET /metrics (kIo), POST /echo (the body), GET /slots/{id}. Whatever else a test wants it
// adds.
Router test_router();
std::unique_ptr<Server> start(ServerOptions options, Router router);  // fails the test where it cannot
inline std::unique_ptr<Server> start(ServerOptions options) { return start(std::move(options), test_router()); }

// Asks `true_at_last` again and again for at most ten seconds.
inline bool comes_true(const std::function<bool()>& true_at_last) {
  for (int i = 0; i < 2000; ++i) {
    if (true_at_last()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

}  // namespace terrace::serve::http
