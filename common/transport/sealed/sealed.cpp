#include "common/transport/sealed/sealed.h"

#include <utility>

#include "common/security/random.h"
#include "common/transport/sealed/sealed_connection.h"

namespace terrace::transport {
namespace {

class SealedListener final : public Listener {
 public:
  SealedListener(std::unique_ptr<Listener> inner, KeyFinder find_key, SealedTransport::RandomBytes random,
                 std::size_t max_open_sends, std::uint64_t most_frames)
      : inner_(std::move(inner)),
        find_key_(std::move(find_key)),
        random_(std::move(random)),
        max_open_sends_(max_open_sends),
        most_frames_(most_frames) {}

  Result<std::unique_ptr<Connection>> accept() override {
    TERRACE_ASSIGN_OR_RETURN(auto connection, inner_->accept());
    if (!connection) return std::unique_ptr<Connection>();
    wire::Nonce nonce;
    TERRACE_RETURN_IF_ERROR(random_(nonce));
    return std::unique_ptr<Connection>(std::make_unique<SealedConnection>(
        std::move(connection), std::make_unique<Handshake>(find_key_, nonce), max_open_sends_, most_frames_));
  }
  int wait_fd() override { return inner_->wait_fd(); }
  std::string address() const override { return inner_->address(); }
  std::uint16_t port() const override { return inner_->port(); }

 private:
  std::unique_ptr<Listener> inner_;
  KeyFinder find_key_;
  SealedTransport::RandomBytes random_;
  std::size_t max_open_sends_;
  std::uint64_t most_frames_;
};

// Of the inner connection, which also carries the handshake.
Options inner_options(const Options& options) {
  Options inner = options;
  inner.key = nullptr;
  if (inner.max_open_sends > 0) inner.max_open_sends += SealedConnection::kHandshakeSends;
  return inner;
}

}  // namespace

SealedTransport::SealedTransport(std::shared_ptr<Transport> inner, KeyFinder find_key)
    : SealedTransport(std::move(inner), std::move(find_key), &security::random_bytes) {}

SealedTransport::SealedTransport(std::shared_ptr<Transport> inner, KeyFinder find_key, RandomBytes random,
                                 std::uint64_t most_frames)
    : inner_(std::move(inner)), find_key_(std::move(find_key)), random_(std::move(random)), most_frames_(most_frames) {}

Result<std::unique_ptr<Listener>> SealedTransport::listen(const std::string& address, const Options& options) {
  if (!find_key_) return Error(ErrorCode::kInvalidArgument, address + ": nothing tells the keys of sessions here");
  TERRACE_ASSIGN_OR_RETURN(auto listener, inner_->listen(address, inner_options(options)));
  return std::unique_ptr<Listener>(
      std::make_unique<SealedListener>(std::move(listener), find_key_, random_, options.max_open_sends, most_frames_));
}

Result<std::unique_ptr<Connection>> SealedTransport::connect(const std::string& address, const Options& options,
                                                             std::chrono::milliseconds timeout) {
  if (options.key == nullptr)
    return Error(ErrorCode::kInvalidArgument, address + ": no key is given for the connection");
  wire::Nonce nonce;
  TERRACE_RETURN_IF_ERROR(random_(nonce));
  TERRACE_ASSIGN_OR_RETURN(auto connection, inner_->connect(address, inner_options(options), timeout));
  return std::unique_ptr<Connection>(std::make_unique<SealedConnection>(
      std::move(connection), std::make_unique<Handshake>(*options.key, nonce), options.max_open_sends, most_frames_));
}

}  // namespace terrace::transport
