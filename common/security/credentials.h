// What one end of the control plane shows the other, and whom it lets in. From a secret, or from certificate files.
//
// Renewal  A leaf of a secret's authority is issued anew, for the same key, long before it ends. Certificate files are
//          read again when they have changed. Connections outlive their certificates; new handshakes use what is new.
// Threads  Any.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/log.h"
#include "common/base/result.h"
#include "common/security/certificate_authority.h"
#include "common/security/options.h"

namespace terrace::security {

// PEM texts for TLS. The key is wiped with the last owner.
struct TlsIdentity {
  std::string key;
  std::string certificates;  // the leaf first
  std::string authorities;   // that the other end must be vouched for by

  TlsIdentity() = default;
  TlsIdentity(TlsIdentity&&) = default;
  TlsIdentity& operator=(TlsIdentity&&) = delete;
  ~TlsIdentity();
};
using TlsIdentityRef = std::shared_ptr<const TlsIdentity>;

class Credentials {
 public:
  using Clock = std::function<std::chrono::system_clock::time_point()>;

  // Null where the options name none. kInvalidArgument: as check(options), or a file that is not what it should be.
  // kRefused: a file that others may read, a certificate that is not valid or is for the other end. kNotFound, kIo.
  // Texts name file (and line). `role`: of this end. `log` hears of renewals that failed.
  static Result<std::shared_ptr<Credentials>> load(const SecurityOptions& options, Role role, const Logger& log,
                                                   Clock clock = std::chrono::system_clock::now);
  virtual ~Credentials() = default;

  // To present in the next handshake; the same object until there is a newer one.
  virtual TlsIdentityRef current() = 0;
  // Certificates are the secret's: at the other end stands kLinkName, whatever the host's name. Else the certificate
  // has to be for the name or address that is connected to.
  virtual bool by_secret() const = 0;

  Role role() const { return role_; }
  LinkSecurity link_security() const { return link_security_; }

  // What TLS leaves open once it has verified the other end's certificate (PEM): that it is for the other role. Gives
  // that end's identity: the SHA-256 of its public key, in hexadecimal. kRefused says what is missing.
  Result<std::string> check_peer(std::string_view pem) const;

 protected:
  Credentials(Role role, LinkSecurity link_security) : role_(role), link_security_(link_security) {}

 private:
  const Role role_;
  const LinkSecurity link_security_;
};

}  // namespace terrace::security
