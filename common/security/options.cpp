#include "common/security/options.h"

#include <fmt/format.h>

namespace terrace::security {

const char* name(LinkSecurity security) {
  switch (security) {
    case LinkSecurity::kOpen:
      return "open";
    case LinkSecurity::kAuthenticated:
      return "authenticated";
    case LinkSecurity::kSealed:
      return "sealed";
  }
  return "?";
}

LinkSecurity link_security(const SecurityOptions& options) {
  if (!options.any_credentials()) return LinkSecurity::kOpen;
  return options.plain_data ? LinkSecurity::kAuthenticated : LinkSecurity::kSealed;
}

void add_security_options(OptionTable& table, SecurityOptions* options) {
  table.add("secret-file", &options->secret_file, "the secret of `terrace secret new`, the same on every machine")
      .value_name("FILE")
      .default_text("none; loopback alone");
  table.add("cert", &options->certificate, "instead: this machine's certificate chain, PEM; with --key and --ca")
      .value_name("FILE")
      .default_text("none");
  table.add("key", &options->key, "the certificate's private key, PEM, readable by nobody else")
      .value_name("FILE")
      .default_text("none");
  table.add("ca", &options->authority, "whose certificates are trusted at the other end, PEM")
      .value_name("FILE")
      .default_text("none");
  table.add("plain-data", &options->plain_data,
            "do not encrypt data connections: rows and weights can be read on the way, both ends still prove who they "
            "are");
}

Status check(const SecurityOptions& options) {
  const bool all = !options.certificate.empty() && !options.key.empty() && !options.authority.empty();
  const bool some = !options.certificate.empty() || !options.key.empty() || !options.authority.empty();
  const auto invalid = [](std::string text) { return Error(ErrorCode::kInvalidArgument, std::move(text)); };
  if (!options.secret_file.empty() && some)
    return invalid(
        "--secret-file and certificates (--cert, --key, --ca) are two ways to do one thing; give one of them");
  if (some && !all) {
    const char* const missing = options.certificate.empty() ? "--cert" : options.key.empty() ? "--key" : "--ca";
    return invalid(fmt::format("{} is missing; certificates take all three of --cert, --key and --ca", missing));
  }
  if (options.plain_data && !options.any_credentials())
    return invalid(
        "--plain-data without credentials changes nothing, since such links are not encrypted anyway; leave "
        "it out, or give --secret-file");
  return {};
}

}  // namespace terrace::security
