#include "common/security/certificate_authority.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/pem.h>

#include <array>

#include "common/security/hkdf.h"
#include "common/security/openssl_handles.h"
#include "common/security/random.h"

namespace terrace::security {
namespace {

constexpr const char* kCurve = "P-256";
constexpr const char* kAuthorityName = "Terrace link authority";
constexpr const char* kNotBefore = "20200101000000Z";
constexpr const char* kNotAfter = "99991231235959Z";

Error broken(std::string_view what) { return openssl_error(ErrorCode::kInternal, what); }

// (bytes mod (n - 1)) + 1: from 1 to n - 1.
Result<OwnedBignum> scalar_of(std::span<const std::byte> bytes, const EC_GROUP* group) {
  const OwnedBignumContext context(BN_CTX_new());
  const OwnedBignum wide(
      BN_bin2bn(reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()), nullptr));
  const OwnedBignum below(BN_dup(EC_GROUP_get0_order(group)));
  OwnedBignum scalar(BN_secure_new());
  if (!context || !wide || !below || !scalar || BN_sub_word(below.get(), 1) != 1 ||
      BN_mod(scalar.get(), wide.get(), below.get(), context.get()) != 1 || BN_add_word(scalar.get(), 1) != 1)
    return broken("the authority's key cannot be derived");
  return scalar;
}

// A private key that is imported without its public point is taken, and then cannot sign.
Result<PrivateKey> key_of(const BIGNUM* scalar, const EC_GROUP* group) {
  const OwnedPoint point(EC_POINT_new(group));
  std::array<unsigned char, 65> encoded{};
  if (!point || EC_POINT_mul(group, point.get(), scalar, nullptr, nullptr, nullptr) != 1 ||
      EC_POINT_point2oct(group, point.get(), POINT_CONVERSION_UNCOMPRESSED, encoded.data(), encoded.size(), nullptr) !=
          encoded.size())
    return broken("the authority's public key cannot be computed");
  const OwnedParamBuilder builder(OSSL_PARAM_BLD_new());
  if (!builder || OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, kCurve, 0) != 1 ||
      OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_PRIV_KEY, scalar) != 1 ||
      OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, encoded.data(), encoded.size()) != 1)
    return broken("the authority's key cannot be described");
  const OwnedParams parameters(OSSL_PARAM_BLD_to_param(builder.get()));
  const OwnedKeyContext context(EVP_PKEY_CTX_new_from_name(nullptr, "EC", nullptr));
  EVP_PKEY* key = nullptr;
  if (!parameters || !context || EVP_PKEY_fromdata_init(context.get()) != 1 ||
      EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_KEYPAIR, parameters.get()) != 1)
    return broken("the authority's key cannot be made");
  return PrivateKey(key);
}

bool add_extension(X509* certificate, X509* issuer, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const OwnedExtension extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value));
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool set_common_name(X509_NAME* to, const char* text) {
  return X509_NAME_add_entry_by_txt(to, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(text), -1, -1, 0) ==
         1;
}

// Everything but names, dates and extensions.
OwnedCertificate blank_certificate(EVP_PKEY* key) {
  OwnedCertificate certificate(X509_new());
  if (!certificate || X509_set_version(certificate.get(), X509_VERSION_3) != 1 ||
      X509_set_pubkey(certificate.get(), key) != 1)
    return nullptr;
  return certificate;
}

Result<OwnedCertificate> authority_certificate(const PrivateKey& key) {
  OwnedCertificate made = blank_certificate(key.handle());
  X509* const certificate = made.get();
  if (!made || ASN1_INTEGER_set_int64(X509_get_serialNumber(certificate), 1) != 1 ||
      !set_common_name(X509_get_subject_name(certificate), kAuthorityName) ||
      X509_set_issuer_name(certificate, X509_get_subject_name(certificate)) != 1 ||
      ASN1_TIME_set_string_X509(X509_getm_notBefore(certificate), kNotBefore) != 1 ||
      ASN1_TIME_set_string_X509(X509_getm_notAfter(certificate), kNotAfter) != 1 ||
      !add_extension(certificate, certificate, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !add_extension(certificate, certificate, NID_key_usage, "critical,keyCertSign") ||
      !add_extension(certificate, certificate, NID_subject_key_identifier, "hash") ||
      X509_sign(certificate, key.handle(), EVP_sha256()) == 0)
    return broken("the authority's certificate cannot be made");
  return made;
}

bool set_random_serial(X509* certificate) {
  std::uint64_t serial = 0;
  if (!random_bytes(std::as_writable_bytes(std::span(&serial, 1))).ok()) return false;
  return ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), (serial >> 1) | 1) == 1;
}

bool set_dates(X509* certificate, std::chrono::system_clock::time_point now) {
  const auto begin = std::chrono::system_clock::to_time_t(now - kLeafBackdate);
  const auto end = std::chrono::system_clock::to_time_t(now + kLeafLifetime);
  return ASN1_TIME_set(X509_getm_notBefore(certificate), begin) != nullptr &&
         ASN1_TIME_set(X509_getm_notAfter(certificate), end) != nullptr;
}

Result<std::string> pem_of(X509* certificate) {
  const OwnedBio out(BIO_new(BIO_s_mem()));
  if (!out || PEM_write_bio_X509(out.get(), certificate) != 1) return broken("a certificate cannot be written");
  return text_of(out.get());
}

}  // namespace

const char* name(Role role) { return role == Role::kNode ? "node" : "coordinator"; }

void PrivateKey::Free::operator()(evp_pkey_st* key) const { EVP_PKEY_free(key); }

Result<PrivateKey> PrivateKey::generate() {
  EVP_PKEY* const key = EVP_EC_gen(kCurve);
  if (key == nullptr) return broken("a key cannot be made");
  return PrivateKey(key);
}

Result<std::string> PrivateKey::pem() const {
  const OwnedBio out(BIO_new(BIO_s_secmem()));
  if (!out || PEM_write_bio_PKCS8PrivateKey(out.get(), handle(), nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return broken("a key cannot be written");
  return text_of(out.get());
}

void CertificateAuthority::Free::operator()(x509_st* certificate) const { X509_free(certificate); }

Result<CertificateAuthority> CertificateAuthority::derive(const Secret& secret) {
  const OwnedGroup group(EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1));
  if (!group) return broken("the curve P-256 is missing");
  std::array<std::byte, 48> bytes{};
  const Status derived = hkdf_sha256(secret.bytes(), "terrace", "ca v1", bytes);
  auto scalar = scalar_of(bytes, group.get());
  OPENSSL_cleanse(bytes.data(), bytes.size());
  TERRACE_RETURN_IF_ERROR(derived);
  if (!scalar.ok()) return scalar.error();
  TERRACE_ASSIGN_OR_RETURN(PrivateKey key, key_of(scalar->get(), group.get()));
  TERRACE_ASSIGN_OR_RETURN(OwnedCertificate certificate, authority_certificate(key));
  TERRACE_ASSIGN_OR_RETURN(std::string pem, pem_of(certificate.get()));
  return CertificateAuthority(std::move(key), OwnCertificate(certificate.release()), std::move(pem));
}

Result<std::string> CertificateAuthority::issue(const PrivateKey& key, Role role,
                                                std::chrono::system_clock::time_point now) const {
  const OwnedCertificate made = blank_certificate(key.handle());
  X509* const leaf = made.get();
  const std::string names = std::string("DNS:") + kLinkName;
  if (!made || !set_random_serial(leaf) || !set_common_name(X509_get_subject_name(leaf), security::name(role)) ||
      X509_set_issuer_name(leaf, X509_get_subject_name(certificate_.get())) != 1 || !set_dates(leaf, now) ||
      !add_extension(leaf, certificate_.get(), NID_basic_constraints, "critical,CA:FALSE") ||
      !add_extension(leaf, certificate_.get(), NID_key_usage, "critical,digitalSignature") ||
      !add_extension(leaf, certificate_.get(), NID_ext_key_usage, role == Role::kNode ? "serverAuth" : "clientAuth") ||
      !add_extension(leaf, certificate_.get(), NID_authority_key_identifier, "keyid:always") ||
      !add_extension(leaf, certificate_.get(), NID_subject_alt_name, names.c_str()) ||
      X509_sign(leaf, key_.handle(), EVP_sha256()) == 0)
    return broken("a certificate cannot be issued");
  return pem_of(leaf);
}

}  // namespace terrace::security
