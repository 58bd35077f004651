#include "common/security/peer_certificate.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include <ctime>

#include "common/security/openssl_handles.h"

namespace terrace::security {
namespace {

void free_certificates(STACK_OF(X509) * stack) { sk_X509_pop_free(stack, X509_free); }
using OwnedCertificates = Owned<STACK_OF(X509), free_certificates>;

OwnedCertificate next_certificate(BIO* in) {
  return OwnedCertificate(PEM_read_bio_X509(in, nullptr, nullptr, nullptr));
}

// No pass phrase is ever asked for on a terminal.
int no_pass_phrase(char*, int, int, void*) { return 0; }

std::chrono::system_clock::time_point time_of(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return {};
  // Beyond what system_clock holds in nanoseconds: its own end.
  constexpr std::time_t kLast =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::time_point::max().time_since_epoch())
          .count();
  return std::chrono::system_clock::from_time_t(std::min(timegm(&parts), kLast));
}

std::vector<std::string> dns_names_of(const X509* certificate) {
  std::vector<std::string> found;
  const OwnedNames names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const each = sk_GENERAL_NAME_value(names.get(), i);
    if (each->type != GEN_DNS) continue;
    const auto* const text = reinterpret_cast<const char*>(ASN1_STRING_get0_data(each->d.dNSName));
    found.emplace_back(text, static_cast<std::size_t>(ASN1_STRING_length(each->d.dNSName)));
  }
  return found;
}

bool names_usage(const X509* certificate, int usage) {
  const OwnedUsage usages(
      static_cast<EXTENDED_KEY_USAGE*>(X509_get_ext_d2i(certificate, NID_ext_key_usage, nullptr, nullptr)));
  for (int i = 0; usages && i < sk_ASN1_OBJECT_num(usages.get()); ++i)
    if (OBJ_obj2nid(sk_ASN1_OBJECT_value(usages.get(), i)) == usage) return true;
  return false;
}

Result<Sha256> key_digest(const X509* certificate) {
  unsigned char* encoded = nullptr;
  const int size = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(certificate), &encoded);
  if (size <= 0) return openssl_error(ErrorCode::kCorrupt, "a certificate's public key cannot be read");
  const Sha256 digest = sha256(std::as_bytes(std::span(encoded, static_cast<std::size_t>(size))));
  OPENSSL_free(encoded);
  return digest;
}

Error not_so(std::string text) {
  ERR_clear_error();
  return Error(ErrorCode::kRefused, std::move(text));
}

}  // namespace

Result<PeerCertificate> read_certificate(std::string_view pem) {
  const OwnedBio in = reader_of(pem);
  const OwnedCertificate certificate = next_certificate(in.get());
  if (!certificate) return openssl_error(ErrorCode::kCorrupt, "there is no certificate (PEM) that can be read");
  PeerCertificate peer;
  peer.dns_names = dns_names_of(certificate.get());
  peer.for_server = names_usage(certificate.get(), NID_server_auth);
  peer.for_client = names_usage(certificate.get(), NID_client_auth);
  peer.not_before = time_of(X509_get0_notBefore(certificate.get()));
  peer.not_after = time_of(X509_get0_notAfter(certificate.get()));
  TERRACE_ASSIGN_OR_RETURN(peer.key, key_digest(certificate.get()));
  return peer;
}

Status check_chain(std::string_view key, std::string_view certificates, std::string_view authorities,
                   std::chrono::system_clock::time_point now) {
  const OwnedBio key_in = reader_of(key), leaf_in = reader_of(certificates), authorities_in = reader_of(authorities);
  const OwnedKey own(PEM_read_bio_PrivateKey(key_in.get(), nullptr, no_pass_phrase, nullptr));
  if (!own) return not_so("the key is no private key in PEM without a pass phrase");
  const OwnedCertificate leaf = next_certificate(leaf_in.get());
  if (!leaf) return not_so("there is no certificate in PEM");
  if (X509_check_private_key(leaf.get(), own.get()) != 1) return not_so("the key is not that of the certificate");
  const OwnedCertificates between(sk_X509_new_null());
  while (OwnedCertificate each = next_certificate(leaf_in.get())) sk_X509_push(between.get(), each.release());
  const OwnedStore store(X509_STORE_new());
  int n_authorities = 0;
  for (; OwnedCertificate each = next_certificate(authorities_in.get()); ++n_authorities)
    X509_STORE_add_cert(store.get(), each.get());
  ERR_clear_error();  // each loop ends with "no start line"
  if (n_authorities == 0) return not_so("there is no certificate in PEM to trust");
  const OwnedStoreContext context(X509_STORE_CTX_new());
  if (!context || X509_STORE_CTX_init(context.get(), store.get(), leaf.get(), between.get()) != 1)
    return openssl_error(ErrorCode::kInternal, "certificates cannot be checked");
  X509_STORE_CTX_set_time(context.get(), 0, std::chrono::system_clock::to_time_t(now));
  if (X509_verify_cert(context.get()) != 1)
    return not_so(fmt::format("the certificate is not one that its authority vouches for now: {}",
                              X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()))));
  return {};
}

}  // namespace terrace::security
