// Under which name a server is asked: what a Host header may say where no key is needed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace terrace::serve::http {

// "localhost", an address of 127.0.0.0/8 or ::1 (without brackets): only this machine reaches it.
bool is_loopback(std::string_view host);

// The names of one server. A page of evil.example whose name is pointed at this machine (DNS rebinding) is of the same
// origin as its requests, but cannot say another Host than its own. An address is no name that somebody could point
// elsewhere.
class HostNames {
 public:
  // listens_on: address or name, as ServerOptions::host. cors_origins: as ServerOptions', "*" allows every name.
  // machine: this machine's name, which others ask by; it counts where the server listens beyond loopback.
  HostNames(std::string_view listens_on, const std::vector<std::string>& cors_origins, std::string_view machine);

  // host_header: "localhost:8080", "[::1]"; any port. Empty, as in HTTP/1.0 and never from a browser: allowed.
  bool allowed(std::string_view host_header) const;

 private:
  bool all_ = false;
  bool all_addresses_ = false;      // the server listens on all that the machine has
  std::vector<std::string> names_;  // in lower case, addresses in one spelling
};

}  // namespace terrace::serve::http
