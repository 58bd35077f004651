// OpenSSL's objects as owners, and its errors as ours. For files of this folder: OpenSSL's headers end here.
#pragma once

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/param_build.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace terrace::security {

template <class T, void (*free_one)(T*)>
struct FreeWith {
  void operator()(T* one) const { free_one(one); }
};
template <class T, void (*free_one)(T*)>
using Owned = std::unique_ptr<T, FreeWith<T, free_one>>;

inline void free_bio(BIO* bio) { BIO_free_all(bio); }
inline void free_names(GENERAL_NAMES* names) { GENERAL_NAMES_free(names); }
inline void free_usage(EXTENDED_KEY_USAGE* usage) { EXTENDED_KEY_USAGE_free(usage); }

using OwnedBio = Owned<BIO, free_bio>;
using OwnedBignum = Owned<BIGNUM, BN_clear_free>;
using OwnedBignumContext = Owned<BN_CTX, BN_CTX_free>;
using OwnedCertificate = Owned<X509, X509_free>;
using OwnedExtension = Owned<X509_EXTENSION, X509_EXTENSION_free>;
using OwnedGroup = Owned<EC_GROUP, EC_GROUP_free>;
using OwnedKdf = Owned<EVP_KDF, EVP_KDF_free>;
using OwnedKdfContext = Owned<EVP_KDF_CTX, EVP_KDF_CTX_free>;
using OwnedKey = Owned<EVP_PKEY, EVP_PKEY_free>;
using OwnedKeyContext = Owned<EVP_PKEY_CTX, EVP_PKEY_CTX_free>;
using OwnedNames = Owned<GENERAL_NAMES, free_names>;
using OwnedParams = Owned<OSSL_PARAM, OSSL_PARAM_free>;
using OwnedParamBuilder = Owned<OSSL_PARAM_BLD, OSSL_PARAM_BLD_free>;
using OwnedPoint = Owned<EC_POINT, EC_POINT_free>;
using OwnedStore = Owned<X509_STORE, X509_STORE_free>;
using OwnedStoreContext = Owned<X509_STORE_CTX, X509_STORE_CTX_free>;
using OwnedUsage = Owned<EXTENDED_KEY_USAGE, free_usage>;

// "what: OpenSSL's reason". Empties OpenSSL's queue of errors.
Error openssl_error(ErrorCode code, std::string_view what);

// What was written to a memory BIO.
std::string text_of(BIO* bio);
// A BIO that reads `text`, which outlives it.
OwnedBio reader_of(std::string_view text);

}  // namespace terrace::security
