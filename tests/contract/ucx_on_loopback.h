// The transport ucx on this machine's loopback interface.
#pragma once

#include <memory>
#include <string>

#include "common/transport/ucx/ucx.h"

namespace terrace::transport::test {

// What UCX takes from the environment is set once for the process, so make the first before there are threads.
class UcxOnLoopback final : public Transport {
 public:
  UcxOnLoopback() {
    UcxOptions options;
    options.interface = "lo";
    [[maybe_unused]] static const bool prepared = [&] {
      ucx_return_signals();
      ucx_prepare_environment(options);
      return true;
    }();
    ucx_ = UcxTransport::create(options, Logger::silent()).value();
  }
  Result<std::unique_ptr<Listener>> listen(const std::string& address, const Options& options) override {
    return ucx_->listen(address, options);
  }
  Result<std::unique_ptr<Connection>> connect(const std::string& address, const Options& options,
                                              std::chrono::milliseconds timeout) override {
    return ucx_->connect(address, options, timeout);
  }
  const char* name() const override { return ucx_->name(); }

 private:
  std::unique_ptr<UcxTransport> ucx_;
};

}  // namespace terrace::transport::test
