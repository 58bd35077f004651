#include "common/metrics/exposer/exposer.h"

#include <fmt/core.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

#include <exception>
#include <utility>

#include "common/metrics/convert.h"

namespace terrace::metrics {
namespace {

// Of civetweb. A scrape is one short request a few times a minute; a client that says nothing holds a thread for
// request_timeout_ms at most, and the threads are few.
std::vector<std::string> server_options(const std::string& address) {
  return {"listening_ports",  address, "num_threads",       "4",  "request_timeout_ms", "2000",
          "max_request_size", "4096",  "enable_keep_alive", "no", "linger_timeout_ms",  "1000",
          "connection_queue", "16",    "decode_url",        "no"};
}

class Page final : public prometheus::Collectable {
 public:
  explicit Page(std::function<std::vector<Family>()> collect) : collect_(std::move(collect)) {}
  std::vector<prometheus::MetricFamily> Collect() const override { return to_library(collect_()); }

 private:
  std::function<std::vector<Family>()> collect_;
};

}  // namespace

struct Exposer::Impl {
  std::shared_ptr<Page> page;
  std::unique_ptr<prometheus::Exposer> server;  // goes first: its threads use the page
};

Exposer::Exposer(std::unique_ptr<Impl> impl, std::string address)
    : impl_(std::move(impl)), address_(std::move(address)) {}
Exposer::~Exposer() = default;

Result<std::unique_ptr<Exposer>> Exposer::start(const std::string& host, std::uint16_t port,
                                                std::function<std::vector<Family>()> collect) {
  const std::string asked = fmt::format("{}:{}", host, port);
  auto impl = std::make_unique<Impl>();
  impl->page = std::make_shared<Page>(std::move(collect));
  try {
    impl->server = std::make_unique<prometheus::Exposer>(server_options(asked));
    impl->server->RegisterCollectable(impl->page);
    const std::vector<int> ports = impl->server->GetListeningPorts();
    return std::unique_ptr<Exposer>(new Exposer(std::move(impl), fmt::format("{}:{}", host, ports.at(0))));
  } catch (const std::exception& error) {
    return Error(ErrorCode::kIo,
                 fmt::format("{}: metrics cannot be served there: {}; is the port in use?", asked, error.what()));
  }
}

}  // namespace terrace::metrics
