// Tests that run over every transport.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "common/transport/loopback/loopback.h"
#include "common/transport/tcp/tcp.h"

namespace terrace::legs::test {

class OverTransports : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<transport::Transport> transport_ = make();

 private:
  static std::unique_ptr<transport::Transport> make() {
    if (std::string(GetParam()) == "tcp") return std::make_unique<transport::TcpTransport>();
    return std::make_unique<transport::LoopbackTransport>();
  }
};

inline std::string transport_name(const testing::TestParamInfo<const char*>& param_info) { return param_info.param; }

}  // namespace terrace::legs::test

#define TERRACE_OVER_TRANSPORTS(suite) \
  INSTANTIATE_TEST_SUITE_P(Transports, suite, testing::Values("loopback", "tcp"), test::transport_name)
