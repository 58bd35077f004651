#include "coordinator/serve/http/host_name.h"

#include <algorithm>
#include <asio/ip/address.hpp>
#include <optional>
#include <system_error>

namespace terrace::serve::http {
namespace {

std::optional<asio::ip::address> as_address(const std::string& host) {
  std::error_code error;
  const auto address = asio::ip::make_address(host, error);
  if (error) return std::nullopt;
  if (!address.is_v6()) return address;
  return asio::ip::address_v6(address.to_v6().to_bytes());  // without the scope, which a Host header has not
}

// One spelling for names that mean the same.
std::string plain(std::string_view host) {
  std::string name(host);
  std::ranges::transform(name, name.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 32) : c; });
  if (name.ends_with('.')) name.pop_back();
  const auto address = as_address(name);
  return address ? address->to_string() : name;
}

// Of "[::1]:80" "::1", of "a.example:80" "a.example".
std::string_view without_port(std::string_view authority) {
  if (!authority.starts_with('[')) return authority.substr(0, authority.find(':'));
  return authority.substr(1, std::min(authority.find(']'), authority.size()) - 1);
}

}  // namespace

bool is_loopback(std::string_view host) {
  const std::string name = plain(host);
  const auto address = as_address(name);
  return address ? address->is_loopback() : name == "localhost";
}

HostNames::HostNames(std::string_view listens_on, const std::vector<std::string>& cors_origins,
                     std::string_view machine) {
  names_.push_back(plain(listens_on));
  const auto address = as_address(names_.front());
  all_addresses_ = address && address->is_unspecified();
  if (!is_loopback(listens_on) && !machine.empty()) names_.push_back(plain(machine));
  for (const std::string& origin : cors_origins) {
    all_ = all_ || origin == "*";
    const std::size_t scheme = origin.find("://");
    if (scheme != std::string::npos) names_.push_back(plain(without_port(std::string_view(origin).substr(scheme + 3))));
  }
}

bool HostNames::allowed(std::string_view host_header) const {
  if (all_ || host_header.empty()) return true;
  const std::string name = plain(without_port(host_header));
  return is_loopback(name) || (all_addresses_ && as_address(name)) || std::ranges::find(names_, name) != names_.end();
}

}  // namespace terrace::serve::http
