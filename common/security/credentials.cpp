#include "common/security/credentials.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "common/security/peer_certificate.h"
#include "common/security/private_file.h"
#include "common/security/sha256.h"

namespace terrace::security {
namespace {

using TimePoint = std::chrono::system_clock::time_point;

// Far from a leaf's end, so that a clock set wrong by months does not let one lapse.
constexpr std::chrono::hours kRenewAfter{30 * 24};
constexpr std::size_t kMaxPemBytes = 1 << 20;

Role other(Role role) { return role == Role::kNode ? Role::kCoordinator : Role::kNode; }

bool is_for(const PeerCertificate& certificate, Role role) {
  return role == Role::kNode ? certificate.for_server : certificate.for_client;
}
const char* usage_of(Role role) { return role == Role::kNode ? "serverAuth" : "clientAuth"; }

class SecretCredentials final : public Credentials {
 public:
  SecretCredentials(CertificateAuthority authority, PrivateKey key, Role role, LinkSecurity security, Logger log,
                    Clock clock)
      : Credentials(role, security),
        authority_(std::move(authority)),
        key_(std::move(key)),
        log_(std::move(log)),
        clock_(std::move(clock)) {}

  Status renew() {
    const TimePoint now = clock_();
    auto identity = std::make_shared<TlsIdentity>();
    TERRACE_ASSIGN_OR_RETURN(identity->key, key_.pem());
    TERRACE_ASSIGN_OR_RETURN(identity->certificates, authority_.issue(key_, role(), now));
    identity->authorities = authority_.certificate();
    current_ = std::move(identity);
    issued_ = now;
    return {};
  }

  TlsIdentityRef current() override {
    const std::lock_guard lock(mutex_);
    const TimePoint now = clock_();
    // A clock that was put back may stand before the leaf begins.
    if (now - issued_ > kRenewAfter || issued_ - now > kLeafBackdate / 2) {
      if (const Status renewed = renew(); !renewed.ok()) log_.error("{}", renewed.error().text());
    }
    return current_;
  }
  bool by_secret() const override { return true; }

 private:
  const CertificateAuthority authority_;
  const PrivateKey key_;
  const Logger log_;
  const Clock clock_;
  std::mutex mutex_;  // guards these two
  TlsIdentityRef current_;
  TimePoint issued_;
};

class FileCredentials final : public Credentials {
 public:
  FileCredentials(const SecurityOptions& options, Role role, Logger log, Clock clock)
      : Credentials(role, security::link_security(options)),
        options_(options),
        log_(std::move(log)),
        clock_(std::move(clock)) {}

  Status read() {
    const Versions versions = versions_now();
    auto identity = std::make_shared<TlsIdentity>();
    TERRACE_ASSIGN_OR_RETURN(identity->key, read_private_file(options_.key, kMaxPemBytes));
    TERRACE_ASSIGN_OR_RETURN(identity->certificates, read_public_file(options_.certificate, kMaxPemBytes));
    TERRACE_ASSIGN_OR_RETURN(identity->authorities, read_public_file(options_.authority, kMaxPemBytes));
    if (const Status chain = check_chain(identity->key, identity->certificates, identity->authorities, clock_());
        !chain.ok())
      return chain.error().in(fmt::format("{} (--key {}, --ca {})", options_.certificate.string(),
                                          options_.key.string(), options_.authority.string()));
    auto leaf = read_certificate(identity->certificates);
    if (!leaf.ok()) return leaf.error().in(options_.certificate.string());
    if (!is_for(*leaf, role()))
      return Error(ErrorCode::kRefused,
                   fmt::format("{}: is no certificate for a {}: its extended key usage lacks {}",
                               options_.certificate.string(), security::name(role()), usage_of(role())));
    current_ = std::move(identity);
    versions_ = versions;
    return {};
  }

  TlsIdentityRef current() override {
    const std::lock_guard lock(mutex_);
    if (const Versions now = versions_now(); now != versions_) {
      const Status again = read();
      if (again.ok())
        log_.info("{}: certificate read again", options_.certificate.string());
      else
        log_.warn("{}; going on with the certificate read before", again.error().text());
      versions_ = now;  // said once for each change
    }
    return current_;
  }
  bool by_secret() const override { return false; }

 private:
  struct Version {
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = 0;
    std::int64_t modified_ns = 0;
    bool operator==(const Version&) const = default;
  };
  using Versions = std::array<Version, 3>;

  static Version version_of(const std::filesystem::path& file) {
    struct stat facts {};
    if (::stat(file.c_str(), &facts) != 0) return {};
    return {facts.st_dev, facts.st_ino, facts.st_size,
            std::int64_t{facts.st_mtim.tv_sec} * 1'000'000'000 + facts.st_mtim.tv_nsec};
  }
  Versions versions_now() const {
    return {version_of(options_.key), version_of(options_.certificate), version_of(options_.authority)};
  }

  const SecurityOptions options_;
  const Logger log_;
  const Clock clock_;
  std::mutex mutex_;  // guards these two
  TlsIdentityRef current_;
  Versions versions_;
};

Result<std::shared_ptr<Credentials>> from_secret(const SecurityOptions& options, Role role, const Logger& log,
                                                 Credentials::Clock clock) {
  TERRACE_ASSIGN_OR_RETURN(const Secret secret, Secret::read(options.secret_file));
  TERRACE_ASSIGN_OR_RETURN(CertificateAuthority authority, CertificateAuthority::derive(secret));
  TERRACE_ASSIGN_OR_RETURN(PrivateKey key, PrivateKey::generate());
  auto credentials = std::make_shared<SecretCredentials>(std::move(authority), std::move(key), role,
                                                         link_security(options), log, std::move(clock));
  TERRACE_RETURN_IF_ERROR(credentials->renew());
  return std::shared_ptr<Credentials>(std::move(credentials));
}

}  // namespace

TlsIdentity::~TlsIdentity() { wipe(key); }

Result<std::shared_ptr<Credentials>> Credentials::load(const SecurityOptions& options, Role role, const Logger& log,
                                                       Clock clock) {
  TERRACE_RETURN_IF_ERROR(check(options));
  if (!options.any_credentials()) return std::shared_ptr<Credentials>();
  if (!options.secret_file.empty()) return from_secret(options, role, log, std::move(clock));
  auto credentials = std::make_shared<FileCredentials>(options, role, log, std::move(clock));
  TERRACE_RETURN_IF_ERROR(credentials->read());
  return std::shared_ptr<Credentials>(std::move(credentials));
}

Result<std::string> Credentials::check_peer(std::string_view pem) const {
  TERRACE_ASSIGN_OR_RETURN(const PeerCertificate peer, read_certificate(pem));
  const Role expected = other(role_);
  if (!is_for(peer, expected))
    return Error(ErrorCode::kRefused,
                 fmt::format("the certificate is not one for a {}: its extended key usage lacks {}",
                             security::name(expected), usage_of(expected)));
  if (by_secret() && std::ranges::find(peer.dns_names, kLinkName) == peer.dns_names.end())
    return Error(ErrorCode::kRefused, fmt::format("the certificate is not for the name {}", kLinkName));
  return to_hex(peer.key);
}

}  // namespace terrace::security
