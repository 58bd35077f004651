#include "tier_node/service/server_credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpcpp/grpcpp.h>

#include <string_view>
#include <utility>

namespace terrace::node {
namespace {

// gRPC's C++ credentials hold one certificate for ever; its C interface asks for it before each handshake. What it
// calls back lives as long as the C credentials do, which may be longer than the C++ object: they destroy it.
struct State {
  std::shared_ptr<security::Credentials> credentials;
  security::TlsIdentityRef given;
};

grpc_ssl_certificate_config_reload_status fetch(void* state, grpc_ssl_server_certificate_config** config) {
  auto& own = *static_cast<State*>(state);  // gRPC calls it under a lock of its own
  security::TlsIdentityRef now = own.credentials->current();
  if (now == own.given) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  const grpc_ssl_pem_key_cert_pair pair = {now->key.c_str(), now->certificates.c_str()};
  *config = grpc_ssl_server_certificate_config_create(now->authorities.c_str(), &pair, 1);
  own.given = std::move(now);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

std::string_view certificate_of(const grpc_auth_context* context) {
  grpc_auth_property_iterator each =
      grpc_auth_context_find_properties_by_name(context, GRPC_X509_PEM_CERT_PROPERTY_NAME);
  const grpc_auth_property* const property = grpc_auth_property_iterator_next(&each);
  return property == nullptr ? std::string_view() : std::string_view(property->value, property->value_length);
}

// Runs before each call of any service, health and reflection among them.
void admit(void* state, grpc_auth_context* context, const grpc_metadata*, std::size_t,
           grpc_process_auth_metadata_done_cb done, void* user_data) {
  const auto peer = static_cast<State*>(state)->credentials->check_peer(certificate_of(context));
  if (peer.ok())
    done(user_data, nullptr, 0, nullptr, 0, GRPC_STATUS_OK, nullptr);
  else
    done(user_data, nullptr, 0, nullptr, 0, GRPC_STATUS_UNAUTHENTICATED, peer.error().text().c_str());
}

class RenewedCredentials final : public grpc::ServerCredentials {
 public:
  explicit RenewedCredentials(std::shared_ptr<security::Credentials> credentials) {
    auto* const state = new State{std::move(credentials), nullptr};
    credentials_ =
        grpc_ssl_server_credentials_create_with_options(grpc_ssl_server_credentials_create_options_using_config_fetcher(
            GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, fetch, state));
    grpc_server_credentials_set_auth_metadata_processor(
        credentials_, {admit, [](void* owned) { delete static_cast<State*>(owned); }, state});
  }
  ~RenewedCredentials() override { grpc_server_credentials_release(credentials_); }

  // The processor is ours.
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  grpc_server_credentials* credentials_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> make_server_credentials(std::shared_ptr<security::Credentials> credentials) {
  if (!credentials) return grpc::InsecureServerCredentials();
  return std::make_shared<RenewedCredentials>(std::move(credentials));
}

Result<std::string> peer_of(const grpc::ServerContextBase& context, const security::Credentials* credentials) {
  if (credentials == nullptr) return std::string();
  const auto properties = context.auth_context()->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (properties.empty()) return Error(ErrorCode::kRefused, "the caller shows no certificate");
  return credentials->check_peer({properties.front().data(), properties.front().size()});
}

}  // namespace terrace::node
