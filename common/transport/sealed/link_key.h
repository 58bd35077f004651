// What both ends of a data connection know before it opens, and the keys that follow from it (docs/wire.md 12).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "common/base/result.h"
#include "common/security/cipher.h"
#include "common/security/key.h"
#include "common/wire/messages.h"

namespace terrace::transport {

struct LinkKey {
  std::uint64_t session = 0;
  std::uint64_t boot_id = 0;  // of the node that opened the session
  std::uint8_t lane = 0;
  std::uint32_t socket_index = 0;  // of the lane
  security::Key key;               // from OpenSession
  security::Cipher cipher = security::Cipher::kPlain;
};

// The key of a session, lane and socket left out; none: no such session. Called by the thread that polls.
using KeyFinder = std::function<std::optional<LinkKey>(std::uint64_t session)>;

// Of one connection, never of another: both ends' random bytes are in them.
struct LinkSecrets {
  security::Key to_node;  // seals what the coordinator sends
  security::Key to_coordinator;
  wire::ProofCode coordinator_proof{};
  wire::ProofCode node_proof{};
};

// kInternal: OpenSSL refuses.
Result<LinkSecrets> derive_secrets(const LinkKey& link, const wire::Nonce& coordinator_random,
                                   const wire::Nonce& node_random);

}  // namespace terrace::transport
