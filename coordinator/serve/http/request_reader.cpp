#include "coordinator/serve/http/request_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <limits>
#include <utility>

#include "common/base/check.h"

namespace terrace::serve::http {

namespace beast = boost::beast::http;

struct RequestReader::Parser {
  beast::request_parser<beast::string_body> request;
};

namespace {

std::string to_text(boost::beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace

RequestReader::RequestReader(const Limits& limits) : limits_(limits), parser_(std::make_unique<Parser>()) {
  parser_->request.header_limit(limits.header_bytes);
  // The announced length is looked at in read_body(), once it is known who asks. (Without a limit, Beast 1.74 takes
  // every announced length for too long.)
  parser_->request.body_limit(std::numeric_limits<std::uint64_t>::max());
}

RequestReader::~RequestReader() = default;

void RequestReader::fail(int status, std::string message) {
  state_ = State::kFailed;
  failure_ = {status, std::move(message)};
}

std::size_t RequestReader::feed(std::string_view bytes) {
  auto& parser = parser_->request;
  std::size_t used = 0;
  while (used < bytes.size() && (state_ == State::kHead || state_ == State::kBody)) {
    boost::system::error_code error;
    const std::size_t n = parser.put(boost::asio::const_buffer(bytes.data() + used, bytes.size() - used), error);
    used += n;
    if (error == beast::error::need_more) break;
    if (error == beast::error::header_limit) {
      fail(431, fmt::format("request line and headers are longer than the limit of {} bytes", limits_.header_bytes));
    } else if (error == beast::error::body_limit) {
      fail(413, fmt::format("the body is longer than the limit of {} bytes", max_body_));
    } else if (error == beast::error::bad_version) {
      fail(505, "the request is not HTTP/1.0 or HTTP/1.1");
    } else if (error) {
      fail(400, fmt::format("the request is not HTTP/1.1: {}", error.message()));
    } else if (state_ == State::kHead && parser.is_header_done()) {
      state_ = State::kHeadDone;
      take_head();
    } else if (parser.is_done()) {
      state_ = State::kDone;
    } else if (n == 0) {
      break;
    }
  }
  return used;
}

void RequestReader::take_head() {
  auto& parser = parser_->request;
  const auto& message = parser.get();
  head_.method = to_text(message.method_string());
  head_.target = to_text(message.target());
  head_.http_1_0 = message.version() == 10;
  head_.keep_alive = parser.keep_alive();
  std::size_t hosts = 0;
  for (const auto& field : message) {
    head_.headers.emplace_back(to_text(field.name_string()), to_text(field.value()));
    hosts += field.name() == beast::field::host ? 1U : 0U;
  }
  if (head_.headers.size() > limits_.headers)
    return fail(431, fmt::format("{} headers; {} are allowed", head_.headers.size(), limits_.headers));
  // RFC 9112 3.2: one Host, so that no two readers of the request see two hosts.
  if (hosts > 1 || (hosts == 0 && !head_.http_1_0)) return fail(400, "the request needs exactly one Host header");

  const bool encoded = message.count(beast::field::transfer_encoding) != 0;
  const auto encoding = message[beast::field::transfer_encoding];
  if (encoded && !boost::beast::iequals(encoding, "chunked"))
    return fail(501, "the only transfer encoding that is read here is chunked");
  // RFC 9112 6.1: an older proxy before us may have read another length.
  if (encoded && head_.http_1_0) return fail(400, "HTTP/1.0 has no transfer encodings");
  if (message.count(beast::field::content_encoding) != 0)
    return fail(415, "bodies are read as they are; send this one without Content-Encoding");

  if (!encoded) head_.body_bytes = parser.content_length().value_or(0);
  head_.has_body = encoded || *head_.body_bytes != 0;
}

void RequestReader::read_body(std::uint64_t max_bytes) {
  TERRACE_CHECK(state_ == State::kHeadDone, "the body follows the head");
  max_body_ = max_bytes;
  if (head_.body_bytes && *head_.body_bytes > max_bytes)
    return fail(413, fmt::format("a body of {} bytes is announced; the limit is {}", *head_.body_bytes, max_bytes));
  parser_->request.body_limit(max_bytes);
  state_ = parser_->request.is_done() ? State::kDone : State::kBody;
}

std::size_t RequestReader::body_bytes() const { return parser_->request.get().body().size(); }

std::string RequestReader::take_body() { return std::move(parser_->request.get().body()); }

}  // namespace terrace::serve::http
