// An HTTP server of one page, GET /metrics, for a program that has no other. It answers nothing else, needs no key and
// changes nothing; it is the library's (prometheus-cpp's exposer on civetweb), held to one address and small limits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/metrics/families.h"

namespace terrace::metrics {

class Exposer {
 public:
  // Listens on `host` (numeric, IPv6 in brackets), port 0: the system's choice. `collect` is called by threads of the
  // server, several at once, until the destructor has returned. kIo: the address cannot be bound; the text names it.
  static Result<std::unique_ptr<Exposer>> start(const std::string& host, std::uint16_t port,
                                                std::function<std::vector<Family>()> collect);
  // Ends answers in progress, within seconds.
  ~Exposer();
  Exposer(const Exposer&) = delete;
  Exposer& operator=(const Exposer&) = delete;

  const std::string& address() const { return address_; }  // HOST:PORT with the port as bound

 private:
  struct Impl;
  Exposer(std::unique_ptr<Impl> impl, std::string address);

  std::unique_ptr<Impl> impl_;
  std::string address_;
};

}  // namespace terrace::metrics
