// How links between machines are secured: the options of both programs (docs/security.md).
#pragma once

#include <filesystem>

#include "common/base/options.h"
#include "common/base/result.h"

namespace terrace::security {

struct SecurityOptions {
  std::filesystem::path secret_file;  // this, or all of the next three, or none of the four
  std::filesystem::path certificate;
  std::filesystem::path key;
  std::filesystem::path authority;
  bool plain_data = false;

  bool any_credentials() const {
    return !secret_file.empty() || !certificate.empty() || !key.empty() || !authority.empty();
  }
};

// How a session's data connections are protected.
enum class LinkSecurity {
  kOpen,           // no credentials: loopback alone
  kAuthenticated,  // both ends prove that they have the session's key; frames travel as they are (--plain-data)
  kSealed,         // and frames are encrypted and authenticated
};
const char* name(LinkSecurity security);  // "open", "authenticated", "sealed"
LinkSecurity link_security(const SecurityOptions& options);

// Adds --secret-file, --cert, --key, --ca and --plain-data below the heading in force.
void add_security_options(OptionTable& table, SecurityOptions* options);

// What they say together. kInvalidArgument: two ways at once, a part of a certificate missing, --plain-data without
// credentials.
Status check(const SecurityOptions& options);

}  // namespace terrace::security
