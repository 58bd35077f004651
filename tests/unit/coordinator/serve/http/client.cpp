#include "tests/unit/coordinator/serve/http/client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace terrace::serve::http {

std::string Answer::header(std::string_view name) const {
  const auto lower = [](std::string text) {
    std::ranges::transform(text, text.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    return text;
  };
  const std::string in = lower(head);
  const std::string wanted = "\r\n" + lower(std::string(name)) + ": ";
  const std::size_t at = in.find(wanted);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + wanted.size();
  return head.substr(begin, head.find("\r\n", begin) - begin);
}

Client::Client(std::uint16_t port, int receive_buffer) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const timeval patience{10, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  if (receive_buffer > 0) ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
    throw std::runtime_error(fmt::format("no connection to port {}", port));
}

Client::~Client() { close(); }

bool Client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

bool Client::fill() {
  std::array<char, 16384> buffer;
  const ssize_t n = ::recv(socket_, buffer.data(), buffer.size(), 0);
  if (n <= 0) return false;
  input_.append(buffer.data(), static_cast<std::size_t>(n));
  return true;
}

Answer Client::read(bool to_head) {
  Answer answer;
  std::size_t head_end = 0;
  while ((head_end = input_.find("\r\n\r\n")) == std::string::npos)
    if (!fill()) return answer;
  answer.head = input_.substr(0, head_end + 2);
  input_.erase(0, head_end + 4);
  answer.status = std::atoi(answer.head.c_str() + std::min<std::size_t>(answer.head.size(), 9));
  if (to_head || answer.status == 204 || answer.status == 100) return answer;

  if (const std::string length = answer.header("Content-Length"); !length.empty()) {
    const std::size_t wanted = std::stoul(length);
    while (input_.size() < wanted && fill()) {
    }
    answer.body = input_.substr(0, wanted);
    answer.complete = answer.body.size() == wanted;
    input_.erase(0, answer.body.size());
    return answer;
  }
  if (answer.header("Transfer-Encoding") != "chunked") {
    while (fill()) {
    }
    answer.body = std::exchange(input_, {});
    answer.complete = true;
    return answer;
  }
  for (;;) {
    std::size_t line = 0;
    while ((line = input_.find("\r\n")) == std::string::npos)
      if (!fill()) return answer;
    const std::size_t size = std::stoul(input_.substr(0, line), nullptr, 16);
    while (input_.size() < line + 2 + size + 2)
      if (!fill()) return answer;
    answer.body += input_.substr(line + 2, size);
    input_.erase(0, line + 2 + size + 2);
    if (size == 0) break;
  }
  answer.complete = true;
  return answer;
}

std::string Client::read_bytes(std::size_t bytes) {
  while (input_.size() < bytes && fill()) {
  }
  return std::exchange(input_, {});
}

bool Client::at_end() {
  char byte = 0;
  return input_.empty() && ::recv(socket_, &byte, 1, 0) == 0;
}

void Client::shut_sending() { ::shutdown(socket_, SHUT_WR); }

void Client::close() {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
}

void Client::reset() {
  const linger at_once{1, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  close();
}

ServerOptions test_options() {
  ServerOptions options;
  options.port = 0;
  options.error_reply = [](int status, std::string_view message, std::string_view) {
    Reply reply;
    reply.status = status;
    reply.body = fmt::format("{{\"error\":\"{} {}\"}}", status, message);
    return reply;
  };
  return options;
}

Router test_router() {
  const auto says = [](std::string text) {
    return [text](const std::shared_ptr<Exchange>& exchange) {
      Reply reply;
      reply.body = text;
      exchange->reply(std::move(reply));
    };
  };
  Router router;
  router.add("GET", "/health",
             {.handler = says("healthy"), .runs = Route::Runs::kIo, .needs_key = false, .while_unavailable = false});
  router.add("GET", "/metrics", {.handler = says("counted"), .runs = Route::Runs::kIo});
  router.add("POST", "/echo", {.handler = [](const std::shared_ptr<Exchange>& exchange) {
               Reply reply;
               reply.body = exchange->request().body;
               exchange->reply(std::move(reply));
             }});
  router.add("GET", "/slots/{id}", {.handler = [](const std::shared_ptr<Exchange>& exchange) {
               Reply reply;
               reply.body = exchange->request().parameter("id");
               exchange->reply(std::move(reply));
             }});
  return router;
}

std::unique_ptr<Server> start(ServerOptions options, Router router) {
  auto server = Server::start(std::move(options), std::move(router));
  if (!server.ok()) throw std::runtime_error(server.error().text());
  return std::move(server).value();
}

}  // namespace terrace::serve::http
