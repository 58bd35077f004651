// What a certificate says about the one that shows it.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/security/sha256.h"

namespace terrace::security {

struct PeerCertificate {
  std::vector<std::string> dns_names;  // of its subject alternative names
  bool for_server = false;             // its extended key usage names serverAuth; false: or it has none
  bool for_client = false;             // clientAuth
  Sha256 key{};                        // of its public key (SubjectPublicKeyInfo): the same as long as its key is
  std::chrono::system_clock::time_point not_before, not_after;
};

// Reads the first certificate of a PEM text. That it was signed by whom we trust is not looked at here: TLS did.
// kCorrupt: there is none, or it cannot be read.
Result<PeerCertificate> read_certificate(std::string_view pem);

// That the key belongs to the first certificate of `certificates`, and that this one was issued by one of `authorities`
// and is valid at `now`, the others between. All PEM. kRefused says which is not so.
Status check_chain(std::string_view key, std::string_view certificates, std::string_view authorities,
                   std::chrono::system_clock::time_point now);

}  // namespace terrace::security
