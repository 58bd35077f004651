// Bytes of a connection to one request: head, then body. Nothing else here sees the library that parses them.
//
// One owner thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "coordinator/serve/http/message.h"

namespace terrace::serve::http {

// Why a request cannot be read: what the client is told before the connection ends.
struct ReadFailure {
  int status = 400;
  std::string message;
};

class RequestReader {
 public:
  struct Limits {
    std::uint32_t header_bytes = 0;
    std::uint32_t headers = 0;
  };
  explicit RequestReader(const Limits& limits);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  enum class State { kHead, kHeadDone, kBody, kDone, kFailed };
  State state() const { return state_; }

  // Takes a beginning of `bytes` and says how long it was; the rest has to be given again, with what came behind it.
  // Stops at the head's end (kHeadDone), at the body's (kDone), and where something is wrong (kFailed).
  std::size_t feed(std::string_view bytes);

  // ---- from kHeadDone on ----
  struct Head {
    std::string method;  // as it was sent
    std::string target;
    Headers headers;
    bool http_1_0 = false;
    bool keep_alive = true;                   // the client does not want the connection closed
    std::optional<std::uint64_t> body_bytes;  // as announced; empty: in chunks, known at the end
    bool has_body = false;
  };
  const Head& head() const { return head_; }
  // Goes on behind the head; a body beyond the limit then fails with 413.
  void read_body(std::uint64_t max_bytes);
  std::size_t body_bytes() const;  // so far
  std::string take_body();         // at kDone

  const ReadFailure& failure() const { return failure_; }  // at kFailed

 private:
  struct Parser;
  void fail(int status, std::string message);
  void take_head();

  Limits limits_;
  State state_ = State::kHead;
  std::uint64_t max_body_ = 0;
  Head head_;
  ReadFailure failure_;
  std::unique_ptr<Parser> parser_;
};

}  // namespace terrace::serve::http
