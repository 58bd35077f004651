// Writes what travels over any transport into a recording, and lets it travel.
//
// A decorator: connections behave as the inner ones do, with a copy of each frame to the file. A frame counts as sent
// when send() takes it. Above common/transport/sealed the file holds frames as they are before sealing and no
// handshake; below it, what travels. The first error of the file ends the recording, not the traffic: finish() tells.
// Threads  The recorder locks; the transport and its connections as the inner ones.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "common/transport/connection.h"
#include "common/transport/recording/recording.h"
#include "common/transport/send_queue.h"

namespace terrace::transport {

// The file. It is made anew; one that is there is replaced.
class Recorder {
 public:
  // kIo: names the file.
  static Result<std::shared_ptr<Recorder>> create(const std::filesystem::path& path);

  // A new connection's number.
  std::uint32_t connected();
  void sent(std::uint32_t connection, std::span<const Part> parts) { frame(connection, RecordedEvent::kSent, parts); }
  void received(std::uint32_t connection, std::span<const std::byte> bytes) {
    frame(connection, RecordedEvent::kReceived, {&bytes, 1});
  }
  void closed(std::uint32_t connection);
  // Everything so far is in the file. kIo: it is not, and nothing was recorded since.
  Status finish();

 private:
  Recorder(const std::filesystem::path& path, std::ofstream out);
  void frame(std::uint32_t connection, RecordedEvent event, std::span<const Part> parts);
  void write(std::uint32_t connection, RecordedEvent event, std::span<const Part> parts);

  const std::string path_;
  const std::chrono::steady_clock::time_point begin_;
  std::mutex mutex_;  // guards all below
  std::ofstream out_;
  std::uint32_t n_connections_ = 0;
};

class RecordingTransport final : public Transport {
 public:
  RecordingTransport(std::shared_ptr<Transport> inner, std::shared_ptr<Recorder> recorder)
      : inner_(std::move(inner)), recorder_(std::move(recorder)) {}

  Result<std::unique_ptr<Listener>> listen(const std::string& address, const Options& options) override;
  Result<std::unique_ptr<Connection>> connect(const std::string& address, const Options& options,
                                              std::chrono::milliseconds timeout) override;
  const char* name() const override { return inner_->name(); }

 private:
  std::shared_ptr<Transport> inner_;
  std::shared_ptr<Recorder> recorder_;
};

}  // namespace terrace::transport
