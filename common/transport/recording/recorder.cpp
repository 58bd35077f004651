#include "common/transport/recording/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/transport/forwarding_connection.h"
#include "common/transport/recording/format.h"

namespace terrace::transport {
namespace {

constexpr std::array<std::byte, recording::kAlignment> kPadding{};

class RecordingConnection final : public ForwardingConnection {
 public:
  RecordingConnection(std::unique_ptr<Connection> inner, std::shared_ptr<Recorder> recorder)
      : ForwardingConnection(std::move(inner)), recorder_(std::move(recorder)), number_(recorder_->connected()) {}

  Result<SendTicket> send(std::span<const Part> parts) override {
    auto ticket = inner_->send(parts);
    if (ticket.ok()) recorder_->sent(number_, parts);
    return ticket;
  }
  std::size_t poll(std::span<Event> out) override {
    const std::size_t n = inner_->poll(out);
    for (const Event& event : out.first(n)) {
      if (event.kind == Event::Kind::kReceived) recorder_->received(number_, event.frame);
      if (event.kind == Event::Kind::kClosed) recorder_->closed(number_);
    }
    return n;
  }

 private:
  std::shared_ptr<Recorder> recorder_;
  const std::uint32_t number_;
};

class RecordingListener final : public Listener {
 public:
  RecordingListener(std::unique_ptr<Listener> inner, std::shared_ptr<Recorder> recorder)
      : inner_(std::move(inner)), recorder_(std::move(recorder)) {}

  Result<std::unique_ptr<Connection>> accept() override {
    TERRACE_ASSIGN_OR_RETURN(auto connection, inner_->accept());
    if (!connection) return std::unique_ptr<Connection>();
    return std::unique_ptr<Connection>(std::make_unique<RecordingConnection>(std::move(connection), recorder_));
  }
  int wait_fd() override { return inner_->wait_fd(); }
  std::string address() const override { return inner_->address(); }
  std::uint16_t port() const override { return inner_->port(); }

 private:
  std::unique_ptr<Listener> inner_;
  std::shared_ptr<Recorder> recorder_;
};

}  // namespace

Result<std::shared_ptr<Recorder>> Recorder::create(const std::filesystem::path& path) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  if (!out) return Error(ErrorCode::kIo, fmt::format("{}: cannot be written: {}", path.string(), std::strerror(errno)));
  const recording::FileHeader header;
  out.write(reinterpret_cast<const char*>(&header), sizeof header);
  return std::shared_ptr<Recorder>(new Recorder(path, std::move(out)));
}

Recorder::Recorder(const std::filesystem::path& path, std::ofstream out)
    : path_(path.string()), begin_(std::chrono::steady_clock::now()), out_(std::move(out)) {}

std::uint32_t Recorder::connected() {
  const std::lock_guard lock(mutex_);
  write(n_connections_, RecordedEvent::kConnected, {});
  return n_connections_++;
}

void Recorder::closed(std::uint32_t connection) {
  const std::lock_guard lock(mutex_);
  write(connection, RecordedEvent::kClosed, {});
}

void Recorder::frame(std::uint32_t connection, RecordedEvent event, std::span<const Part> parts) {
  const std::lock_guard lock(mutex_);
  write(connection, event, parts);
}

void Recorder::write(std::uint32_t connection, RecordedEvent event, std::span<const Part> parts) {
  recording::EntryHeader header;
  header.time_ns = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin_).count());
  header.connection = connection;
  header.event = static_cast<std::uint8_t>(event);
  std::uint64_t bytes = 0;
  for (const Part part : parts) bytes += part.size();
  header.bytes = static_cast<std::uint32_t>(bytes);
  out_.write(reinterpret_cast<const char*>(&header), sizeof header);
  for (const Part part : parts)
    out_.write(reinterpret_cast<const char*>(part.data()), static_cast<std::streamsize>(part.size()));
  out_.write(reinterpret_cast<const char*>(kPadding.data()),
             static_cast<std::streamsize>(recording::padded(bytes) - bytes));
}

Status Recorder::finish() {
  const std::lock_guard lock(mutex_);
  out_.flush();
  if (out_) return {};
  return Error(ErrorCode::kIo, path_ + ": the recording could not be written to its end; is the disk full?");
}

Result<std::unique_ptr<Listener>> RecordingTransport::listen(const std::string& address, const Options& options) {
  TERRACE_ASSIGN_OR_RETURN(auto listener, inner_->listen(address, options));
  return std::unique_ptr<Listener>(std::make_unique<RecordingListener>(std::move(listener), recorder_));
}

Result<std::unique_ptr<Connection>> RecordingTransport::connect(const std::string& address, const Options& options,
                                                                std::chrono::milliseconds timeout) {
  TERRACE_ASSIGN_OR_RETURN(auto connection, inner_->connect(address, options, timeout));
  return std::unique_ptr<Connection>(std::make_unique<RecordingConnection>(std::move(connection), recorder_));
}

}  // namespace terrace::transport
