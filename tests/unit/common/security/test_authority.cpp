#include "tests/unit/common/security/test_authority.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <optional>
#include <stdexcept>

namespace terrace::test {
namespace {

void require(bool ok, const char* what) {
  if (!ok) throw std::runtime_error(what);
}

std::string written(int (*write)(BIO*, const X509*), const X509* certificate) {
  BIO* const out = BIO_new(BIO_s_mem());
  require(write(out, certificate) == 1, "PEM");
  char* data = nullptr;
  const long size = BIO_get_mem_data(out, &data);
  std::string text(data, static_cast<std::size_t>(size));
  BIO_free(out);
  return text;
}

void extend(X509* certificate, X509* issuer, int kind, const std::string& value) {
  if (value.empty()) return;
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  require(extension != nullptr && X509_add_ext(certificate, extension, -1) == 1, value.c_str());
  X509_EXTENSION_free(extension);
}

X509* blank(EVP_PKEY* key, const char* name, std::chrono::seconds begins, std::chrono::seconds ends) {
  X509* const certificate = X509_new();
  X509_set_version(certificate, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 7);
  X509_set_pubkey(certificate, key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
  X509_gmtime_adj(X509_getm_notBefore(certificate), begins.count());
  X509_gmtime_adj(X509_getm_notAfter(certificate), ends.count());
  return certificate;
}

std::string pem_of(const security::PrivateKey& key) { return key.pem().value(); }

}  // namespace

struct TestAuthority::Parts {
  std::optional<security::CertificateAuthority> derived;  // owns the key of a secret's
  EVP_PKEY* key = nullptr;
  X509* certificate = nullptr;
};

TestAuthority::TestAuthority() : parts_(std::make_unique<Parts>()) {
  parts_->key = EVP_EC_gen("P-256");
  parts_->certificate = blank(parts_->key, "test authority", std::chrono::hours(-48), std::chrono::hours(24 * 3650));
  X509* const certificate = parts_->certificate;
  X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
  extend(certificate, certificate, NID_basic_constraints, "critical,CA:TRUE");
  extend(certificate, certificate, NID_subject_key_identifier, "hash");
  require(X509_sign(certificate, parts_->key, EVP_sha256()) != 0, "sign");
  pem_ = written(PEM_write_bio_X509, certificate);
}

TestAuthority::TestAuthority(const security::Secret& secret) : parts_(std::make_unique<Parts>()) {
  parts_->derived = security::CertificateAuthority::derive(secret).value();
  parts_->key = parts_->derived->key().handle();
  EVP_PKEY_up_ref(parts_->key);
  pem_ = parts_->derived->certificate();
  BIO* const in = BIO_new_mem_buf(pem_.data(), static_cast<int>(pem_.size()));
  parts_->certificate = PEM_read_bio_X509(in, nullptr, nullptr, nullptr);
  BIO_free(in);
  require(parts_->certificate != nullptr, "the authority's certificate");
}

TestAuthority::~TestAuthority() {
  X509_free(parts_->certificate);
  EVP_PKEY_free(parts_->key);
}

TestAuthority::Leaf TestAuthority::issue(const LeafTerms& terms) const {
  const security::PrivateKey key = security::PrivateKey::generate().value();
  X509* const leaf = blank(key.handle(), "test leaf", terms.begins, terms.ends);
  X509_set_issuer_name(leaf, X509_get_subject_name(parts_->certificate));
  extend(leaf, parts_->certificate, NID_basic_constraints, "critical,CA:FALSE");
  extend(leaf, parts_->certificate, NID_subject_alt_name, terms.names);
  extend(leaf, parts_->certificate, NID_ext_key_usage, terms.usage);
  require(X509_sign(leaf, parts_->key, EVP_sha256()) != 0, "sign");
  Leaf made{pem_of(key), written(PEM_write_bio_X509, leaf)};
  X509_free(leaf);
  return made;
}

security::SecurityOptions TestAuthority::options(const TempDir& folder, const std::string& name,
                                                 const LeafTerms& terms) const {
  const Leaf leaf = issue(terms);
  security::SecurityOptions options;
  options.certificate = folder / (name + ".crt");
  options.key = folder / (name + ".key");
  options.authority = folder / (name + ".ca");
  write_file(options.certificate, leaf.certificate);
  write_private_file(options.key, leaf.key);
  write_file(options.authority, pem_);
  return options;
}

security::Secret secret_of(int byte) {
  std::array<std::byte, security::Secret::kBytes> bytes{};
  bytes.fill(static_cast<std::byte>(byte));
  return security::Secret(bytes);
}

security::SecurityOptions secret_options(const TempDir& folder, int byte) {
  security::SecurityOptions options;
  options.secret_file = folder / ("secret-" + std::to_string(byte));
  write_private_file(options.secret_file, secret_of(byte).line() + "\n");
  return options;
}

void write_private_file(const std::filesystem::path& path, const std::string& bytes) {
  write_file(path, bytes);
  std::filesystem::permissions(path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

}  // namespace terrace::test
