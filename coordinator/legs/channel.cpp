#include "coordinator/legs/channel.h"

#include <fmt/core.h>
#include <grpc/grpc_security_constants.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <netdb.h>

#include <string_view>

namespace terrace::legs {
namespace {

// A manifest holds 32 bytes a slab: 64 MiB is two million slabs.
constexpr int kMaxMessageBytes = 64 << 20;

std::shared_ptr<grpc::ChannelCredentials> channel_credentials(security::Credentials* credentials) {
  if (credentials == nullptr) return grpc::InsecureChannelCredentials();
  const security::TlsIdentityRef identity = credentials->current();
  return grpc::SslCredentials({identity->authorities, identity->key, identity->certificates});
}

}  // namespace

std::shared_ptr<grpc::Channel> make_channel(const transport::HostPort& target, security::Credentials* credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Each control has a connection of its own, so that a peer that went away is noticed by this one.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  if (credentials != nullptr && credentials->by_secret()) arguments.SetSslTargetNameOverride(security::kLinkName);
  // The scheme is ours, so that no host is taken for one ("unix:9000").
  return grpc::CreateCustomChannel("dns:///" + transport::to_string(target), channel_credentials(credentials),
                                   arguments);
}

void silence_grpc_log() {
  gpr_set_log_function([](gpr_log_func_args*) {});
}

Status check_answerer(const grpc::ClientContext& context, const security::Credentials* credentials) {
  if (credentials == nullptr) return {};
  const auto properties = context.auth_context()->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (properties.empty()) return Error(ErrorCode::kRefused, "it shows no certificate");
  const auto peer = credentials->check_peer({properties.front().data(), properties.front().size()});
  return peer.ok() ? Status() : peer.error();
}

Error unreachable(const std::string& address, const std::string& grpc_text, const security::Credentials* credentials) {
  const auto has = [&](std::string_view part) { return grpc_text.find(part) != std::string::npos; };
  const auto refused = [&](std::string_view what) {
    return Error(ErrorCode::kRefused, fmt::format("{}: {}", address, what));
  };
  if (has("wrong version number"))
    return refused(
        "it answers without TLS, and we have credentials; start terrace-node there with credentials of the same "
        "authority, or leave ours out if both are on this machine");
  if (has("is not in peer certificate"))
    return refused("its certificate is not for this name or address; give --node as the certificate names it");
  if (has("certificate verify failed") || has("SSL_ERROR") || has("andshake failed"))
    return refused(
        "its certificate is not one that we trust; secret, certificate or clock? Both machines need the same secret "
        "file (or certificates of an authority that the other knows), and clocks that agree");
  // gRPC puts its own layers before the system's reason: "...; last error: UNKNOWN: ipv4:...: Connection refused".
  const std::size_t last = grpc_text.rfind(": ");
  const std::string reason = last == std::string::npos ? grpc_text : grpc_text.substr(last + 2);
  const bool hung_up = has("Socket closed") || has("Connection reset") || has("Broken pipe");
  if (hung_up && credentials != nullptr)
    return Error(
        ErrorCode::kPeerGone,
        fmt::format("{}: closed the connection while it was being opened ({}); secret, certificate or clock? The "
                    "node's log says what it thinks of our certificate",
                    address, reason));
  if (hung_up)
    return Error(
        ErrorCode::kPeerGone,
        fmt::format("{}: cannot be reached ({}); does the node there want credentials? If so give --secret-file, "
                    "or --cert, --key and --ca",
                    address, reason));
  return Error(ErrorCode::kPeerGone,
               fmt::format("{}: cannot be reached ({}); is terrace-node running there, and is the address right?",
                           address, reason));
}

Status require_loopback(const std::string& address, const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int failed = getaddrinfo(host.c_str(), nullptr, &hints, &found); failed != 0)
    return Error(ErrorCode::kInvalidArgument, fmt::format("{}: the host cannot be resolved ({}); give --node HOST:PORT",
                                                          address, gai_strerror(failed)));
  bool loopback = true;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next)
    loopback = loopback && transport::is_loopback(*a->ai_addr);
  freeaddrinfo(found);
  if (!loopback)
    return Error(ErrorCode::kRefused,
                 fmt::format("{}: not a loopback address; links between machines need credentials: give "
                             "--secret-file, or --cert, --key and --ca",
                             address));
  return {};
}

}  // namespace terrace::legs
