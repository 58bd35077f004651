#include "common/transport/sealed/link_key.h"

#include <array>
#include <cstring>
#include <string_view>

#include "common/security/hkdf.h"
#include "common/security/hmac.h"

namespace terrace::transport {
namespace {

constexpr std::string_view kLabel = "terrace data v1";

// The last byte of HKDF's info: what the key is for.
enum class Purpose : std::uint8_t { kToNode = 0, kToCoordinator = 1, kCoordinatorProof = 2, kNodeProof = 3 };

// Fields one after the other, little-endian, without gaps.
class Text {
 public:
  Text& add(std::span<const std::byte> bytes) {
    std::memcpy(bytes_.data() + size_, bytes.data(), bytes.size());
    size_ += bytes.size();
    return *this;
  }
  template <class T>
  Text& add_number(T number) {
    for (std::size_t i = 0; i < sizeof(T); ++i)
      bytes_[size_++] = static_cast<std::byte>(std::uint64_t{number} >> 8 * i);
    return *this;
  }
  std::span<const std::byte> bytes() const { return std::span(bytes_).first(size_); }

 private:
  std::array<std::byte, 96> bytes_;
  std::size_t size_ = 0;
};

Text link_text(const LinkKey& link) {
  Text text;
  text.add(std::as_bytes(std::span(kLabel)));
  text.add_number(link.session).add_number(link.boot_id).add_number(link.lane).add_number(link.socket_index);
  return text;
}

Result<security::Key> derive(const LinkKey& link, std::span<const std::byte> salt, Purpose purpose) {
  Text info = link_text(link);
  info.add_number(static_cast<std::uint8_t>(purpose));
  security::Key key;
  TERRACE_RETURN_IF_ERROR(security::hkdf_sha256(link.key.bytes(), salt, info.bytes(), key.writable()));
  return key;
}

}  // namespace

Result<LinkSecrets> derive_secrets(const LinkKey& link, const wire::Nonce& coordinator_random,
                                   const wire::Nonce& node_random) {
  Text salt;
  salt.add(coordinator_random).add(node_random);
  LinkSecrets secrets;
  TERRACE_ASSIGN_OR_RETURN(secrets.to_node, derive(link, salt.bytes(), Purpose::kToNode));
  TERRACE_ASSIGN_OR_RETURN(secrets.to_coordinator, derive(link, salt.bytes(), Purpose::kToCoordinator));
  TERRACE_ASSIGN_OR_RETURN(const security::Key coordinator, derive(link, salt.bytes(), Purpose::kCoordinatorProof));
  TERRACE_ASSIGN_OR_RETURN(const security::Key node, derive(link, salt.bytes(), Purpose::kNodeProof));
  // Everything that was said before the proofs, the cipher agreed on included.
  Text transcript = link_text(link);
  transcript.add(salt.bytes()).add_number(static_cast<std::uint8_t>(link.cipher));
  secrets.coordinator_proof = security::hmac_sha256(coordinator.bytes(), transcript.bytes());
  secrets.node_proof = security::hmac_sha256(node.bytes(), transcript.bytes());
  return secrets;
}

}  // namespace terrace::transport
