// A node that answers Describe as it is told and nothing else: what versions that do not exist yet would say.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/wire/versions.h"

namespace terrace::test {

class FakeNode {
 public:
  struct Description {
    std::uint32_t protocol_min = wire::kProtocolMin, protocol_max = wire::kProtocolMax;
    std::uint32_t numerics_version = 1;
  };
  explicit FakeNode(const Description& description);
  ~FakeNode();

  const std::string& address() const { return address_; }  // HOST:PORT
  int sessions_asked() const;                              // calls of OpenSession

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::string address_;
};

}  // namespace terrace::test
