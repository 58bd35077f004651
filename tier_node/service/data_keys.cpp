#include "tier_node/service/data_keys.h"

namespace terrace::node {

transport::KeyFinder data_keys(const SessionTable& sessions) {
  return [&sessions](std::uint64_t id) -> std::optional<transport::LinkKey> {
    const auto session = sessions.find(id);
    if (!session.ok()) return std::nullopt;
    transport::LinkKey key;
    key.session = id;
    key.boot_id = sessions.boot_id();
    key.key = (*session)->data_key();
    key.cipher = (*session)->data_cipher();
    return key;
  };
}

}  // namespace terrace::node
