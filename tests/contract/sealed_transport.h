// Transports whose ends prove themselves and seal, with keys that a test knows, under the interface that knows no keys.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "common/transport/sealed/sealed.h"

namespace terrace::transport::test {

inline LinkKey test_link(security::Cipher cipher, std::uint64_t session = 0x1122334455667788) {
  LinkKey link;
  link.session = session;
  link.boot_id = 0x99aabbccddeeff00;
  link.cipher = cipher;
  for (std::size_t i = 0; i < security::Key::kBytes; ++i)
    link.key.writable()[i] = static_cast<std::byte>(i * 5 + session);
  return link;
}

inline KeyFinder finder_of(const LinkKey& link) {
  return [link](std::uint64_t session) { return session == link.session ? std::optional(link) : std::nullopt; };
}

// The owner of a transport that outlives whatever this is given to.
inline std::shared_ptr<Transport> borrowed(Transport& transport) {
  return std::shared_ptr<Transport>(std::shared_ptr<void>(), &transport);
}

// A coordinator's transport over one that proves nothing, which outlives it.
inline SealedTransport proving(Transport& below) { return SealedTransport(borrowed(below)); }

// Every connection is of one session.
class KeyedTransport final : public Transport {
 public:
  KeyedTransport(std::shared_ptr<Transport> inner, const LinkKey& link)
      : link_(link), sealed_(std::move(inner), finder_of(link)) {}

  Result<std::unique_ptr<Listener>> listen(const std::string& address, const Options& options) override {
    return sealed_.listen(address, options);
  }
  Result<std::unique_ptr<Connection>> connect(const std::string& address, const Options& options,
                                              std::chrono::milliseconds timeout) override {
    Options with_key = options;
    with_key.key = &link_;
    return sealed_.connect(address, with_key, timeout);
  }
  const char* name() const override { return sealed_.name(); }

 private:
  const LinkKey link_;
  SealedTransport sealed_;
};

}  // namespace terrace::transport::test
