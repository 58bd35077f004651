// gRPC channels to nodes, with or without credentials: the one place where they are made.
#pragma once

#include <memory>
#include <string>

#include "common/base/result.h"
#include "common/security/credentials.h"
#include "common/transport/address.h"

namespace grpc {
class Channel;
class ClientContext;
}  // namespace grpc

namespace terrace::legs {

// Connects with the first call. Null `credentials`: plain text. Else mutual TLS with the certificate of now; a channel
// keeps it, so channels are not kept for longer than certificates last.
std::shared_ptr<grpc::Channel> make_channel(const transport::HostPort& target, security::Credentials* credentials);

// From now on this process's gRPC writes nothing to stderr by itself: what fails is told by our errors. For programs;
// it is one switch for all servers and channels of the process.
void silence_grpc_log();

// After a call that was answered: that who answered is a node (Credentials::check_peer). kRefused.
Status check_answerer(const grpc::ClientContext& context, const security::Credentials* credentials);

// Why a call to `address` was not answered, from gRPC's words for UNAVAILABLE. With TLS most causes look alike from
// here: the sentence asks what they come from.
Error unreachable(const std::string& address, const std::string& grpc_text, const security::Credentials* credentials);

// Of this host, however many addresses it has: for links without credentials. kInvalidArgument: cannot be resolved.
// kRefused: beyond loopback.
Status require_loopback(const std::string& address, const std::string& host);

}  // namespace terrace::legs
