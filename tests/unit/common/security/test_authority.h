// Certificates for tests: any names, uses and dates, also those that our own authority never issues.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "common/security/certificate_authority.h"
#include "common/security/options.h"
#include "tests/unit/common/temp_dir.h"

namespace terrace::test {

struct LeafTerms {
  std::string names = "DNS:localhost,IP:127.0.0.1,IP:::1";  // empty: no such extension
  std::string usage = "serverAuth,clientAuth";              // of its key; empty: no such extension
  std::chrono::seconds begins{-3600};                       // from now
  std::chrono::seconds ends{3600};
};

// Any error throws: the test fails.
class TestAuthority {
 public:
  // A new one, as people make them.
  TestAuthority();
  // That of a secret.
  explicit TestAuthority(const security::Secret& secret);
  ~TestAuthority();

  struct Leaf {
    std::string key, certificate;  // PEM
  };
  Leaf issue(const LeafTerms& terms) const;
  const std::string& pem() const { return pem_; }

  // The options that present such a leaf: its files below `folder`, by `name`.
  security::SecurityOptions options(const TempDir& folder, const std::string& name, const LeafTerms& terms) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
  std::string pem_;
};

// A secret of 32 equal bytes, and its file, readable by its owner alone.
security::Secret secret_of(int byte);
security::SecurityOptions secret_options(const TempDir& folder, int byte);
void write_private_file(const std::filesystem::path& path, const std::string& bytes);

}  // namespace terrace::test
