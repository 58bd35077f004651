// How the control port knows its clients: mutual TLS for gRPC, renewed without a restart.
#pragma once

#include <memory>
#include <string>

#include "common/base/result.h"
#include "common/security/credentials.h"

namespace grpc {
class ServerCredentials;
class ServerContextBase;
}  // namespace grpc

namespace terrace::node {

// Null `credentials`: none, for loopback. Else a client must show a certificate that its authority vouches for, or the
// handshake fails; and one for a coordinator (Credentials::check_peer), or every call on its connection, of whatever
// service, ends with UNAUTHENTICATED. Each handshake asks Credentials::current(), so renewal needs no restart.
std::shared_ptr<grpc::ServerCredentials> make_server_credentials(std::shared_ptr<security::Credentials> credentials);

// Who calls: the identity that Credentials::check_peer() gives. Empty without credentials. kRefused: not one that
// make_server_credentials() lets in.
Result<std::string> peer_of(const grpc::ServerContextBase& context, const security::Credentials* credentials);

}  // namespace terrace::node
