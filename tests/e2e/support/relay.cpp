#include "tests/e2e/support/relay.h"

#include <fmt/core.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>
#include <xxhash.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "common/base/aligned_buffer.h"
#include "common/transport/address.h"
#include "tests/e2e/support/process.h"

namespace terrace::test {
namespace {

constexpr std::size_t kChunk = std::size_t{64} << 10;
constexpr std::size_t kVersionAt = 4, kTypeAt = 6, kLaneAt = 7, kLengthAt = 40, kChecksumAt = 56;

struct SocketAddress {
  sockaddr_storage bytes{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
  int socket() const { return ::socket(bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0); }
};

// Of a numeric host.
SocketAddress address_of(const std::string& host, std::uint16_t port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    throw std::runtime_error("a relay takes numeric addresses, not " + host);
  SocketAddress address;
  std::memcpy(&address.bytes, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  ::freeaddrinfo(found);
  return address;
}

// 127.a.b.c by the process and how many it has made: no two relays of this machine meet.
std::string own_address() {
  static std::atomic<unsigned> made = 0;
  const unsigned pid = static_cast<unsigned>(::getpid());
  return fmt::format("127.{}.{}.{}", 64 + pid / 250 % 180, 1 + pid % 250, 1 + made++ % 250);
}

bool write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

template <class T>
T load(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

void reseal(std::span<std::byte> frame) {
  const std::uint64_t zero = 0;
  std::memcpy(frame.data() + kChecksumAt, &zero, sizeof zero);
  const std::uint64_t checksum = XXH3_64bits(frame.data(), frame.size());
  std::memcpy(frame.data() + kChecksumAt, &checksum, sizeof checksum);
}

// Where the last byte of the last section's data lies.
std::size_t last_payload_byte(std::span<const std::byte> bytes) {
  auto copy = AlignedBuffer::allocate(bytes.size());
  std::memcpy(copy.value().data(), bytes.data(), bytes.size());
  const auto frame = wire::decode_frame(copy.value().bytes());
  if (!frame.ok() || frame->all().empty() || frame->all().back().data.empty()) return bytes.size() - 1;
  const auto data = frame->all().back().data;
  return static_cast<std::size_t>(data.data() - copy.value().data()) + data.size() - 1;
}

void change(std::vector<std::byte>& frame, Relay::Deed deed) {
  switch (deed) {
    case Relay::Deed::kPass:
      return;
    case Relay::Deed::kCorrupt:
      frame[frame.size() / 2] ^= std::byte{4};
      return;
    case Relay::Deed::kTruncate:
      frame.resize(frame.size() - 1 - frame.size() / 4);
      return;
    case Relay::Deed::kVersion:
      frame[kVersionAt] = std::byte(wire::kVersion + 1);
      return reseal(frame);
    case Relay::Deed::kPayload:
      frame[last_payload_byte(frame)] ^= std::byte{1};
      return reseal(frame);
  }
}

}  // namespace

// Both sockets of one connection.
struct Relay::Link {
  int to_node = -1;
  int to_coordinator = -1;
  bool data = false;

  ~Link() {
    ::close(to_node);
    ::close(to_coordinator);
  }
  void hang_up() const {
    ::shutdown(to_node, SHUT_RDWR);
    ::shutdown(to_coordinator, SHUT_RDWR);
  }
};

Relay::Relay(const std::string& node, std::uint16_t data_port) {
  const auto parsed = transport::parse_host_port(node);
  if (!parsed.ok()) throw std::runtime_error(parsed.error().text());
  node_host_ = parsed->host;
  const std::string host = own_address();
  address_ = fmt::format("{}:{}", host, parsed->port);
  listen(host, parsed->port, false);
  listen(host, data_port, true);
}

Relay::~Relay() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
    for (const auto& link : links_) link->hang_up();
  }
  for (const int listener : listeners_) ::shutdown(listener, SHUT_RDWR);
  for (;;) {  // a listener's thread may add two more before it ends
    std::vector<std::thread> threads;
    {
      const std::lock_guard lock(mutex_);
      threads.swap(threads_);
      for (const auto& link : links_) link->hang_up();
    }
    if (threads.empty()) break;
    for (std::thread& thread : threads) thread.join();
  }
  for (const int listener : listeners_) ::close(listener);
}

void Relay::listen(const std::string& host, std::uint16_t port, bool data) {
  const SocketAddress address = address_of(host, port);
  const int fd = address.socket();
  listeners_.push_back(fd);
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd, address.get(), address.length) != 0 || ::listen(fd, 64) != 0)
    throw std::runtime_error(fmt::format("the relay cannot listen on {}:{}: {}", host, port, std::strerror(errno)));
  const std::lock_guard lock(mutex_);
  threads_.emplace_back([this, fd, port, data] { accept(fd, port, data); });
}

void Relay::accept(int listener, std::uint16_t port, bool data) {
  for (;;) {
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    auto link = std::make_unique<Link>();
    link->to_coordinator = fd;
    const SocketAddress address = address_of(node_host_, port);
    link->to_node = address.socket();
    link->data = data;
    const int on = 1;
    for (const int end : {link->to_coordinator, link->to_node})
      ::setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    wait_while_mute();
    if (::connect(link->to_node, address.get(), address.length) != 0) continue;
    const std::lock_guard lock(mutex_);
    if (stop_) return;
    Link& kept = *links_.emplace_back(std::move(link));
    threads_.emplace_back([this, &kept] { carry(kept, Way::kToNode); });
    threads_.emplace_back([this, &kept] { carry(kept, Way::kToCoordinator); });
  }
}

void Relay::carry(Link& link, Way way) {
  const int from = way == Way::kToNode ? link.to_coordinator : link.to_node;
  const int to = way == Way::kToNode ? link.to_node : link.to_coordinator;
  std::vector<std::byte> pending, chunk(kChunk);
  for (;;) {
    const ssize_t n = ::recv(from, chunk.data(), chunk.size(), 0);
    wait_while_mute();
    if (n <= 0) break;
    const auto got = std::span(chunk).first(static_cast<std::size_t>(n));
    if (!link.data) {
      if (!write_all(to, got)) break;
      continue;
    }
    pending.insert(pending.end(), got.begin(), got.end());
    if (!pass_frames(link, way, pending, to)) break;
  }
  link.hang_up();  // an end that is gone is gone for both: nothing here closes half a connection
}

// Passes whole frames on; false: the connection ends.
bool Relay::pass_frames(Link&, Way way, std::vector<std::byte>& pending, int to) {
  for (;;) {
    if (pending.size() < wire::kHeaderBytes) return true;
    const std::size_t bytes = wire::kHeaderBytes + load<std::uint32_t>(pending, kLengthAt);
    if (pending.size() < bytes) return true;
    std::vector<std::byte> frame(pending.begin(), pending.begin() + static_cast<std::ptrdiff_t>(bytes));
    pending.erase(pending.begin(), pending.begin() + static_cast<std::ptrdiff_t>(bytes));
    const Deed deed = judge(way, static_cast<wire::FrameType>(frame[kTypeAt]), static_cast<wire::Lane>(frame[kLaneAt]));
    wait_while_mute();
    change(frame, deed);
    if (!write_all(to, frame)) return false;
    if (deed == Deed::kTruncate) return false;
  }
}

Relay::Deed Relay::judge(Way way, wire::FrameType type, wire::Lane lane) {
  std::unique_lock lock(mutex_);
  if (!point_ || point_->way != way || point_->type.value_or(type) != type || point_->lane.value_or(lane) != lane)
    return Deed::kPass;
  if (point_->skip > 0) {
    --point_->skip;
    return Deed::kPass;
  }
  point_.reset();
  held_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return deed_ || stop_; });
  held_ = false;
  gone_ = true;
  return deed_.value_or(Deed::kPass);
}

void Relay::hold_at(const Point& point) {
  const std::lock_guard lock(mutex_);
  point_ = point;
  deed_.reset();
  gone_ = false;
}

bool Relay::wait_held() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kPatience, [this] { return held_ || (!point_ && !gone_); });
  return held_;
}

void Relay::drop_point() {
  const std::lock_guard lock(mutex_);
  point_.reset();
  changed_.notify_all();
}

void Relay::go(Deed deed) {
  const std::lock_guard lock(mutex_);
  deed_ = deed;
  changed_.notify_all();
}

bool Relay::gone() const {
  const std::lock_guard lock(mutex_);
  return gone_;
}

void Relay::set_mute(bool mute) {
  const std::lock_guard lock(mutex_);
  mute_ = mute;
  changed_.notify_all();
}

void Relay::cut() {
  const std::lock_guard lock(mutex_);
  for (const auto& link : links_) link->hang_up();
}

void Relay::slip_in(Deed deed) {
  wire::FrameBuilder builder;
  builder.begin({.type = wire::FrameType::kPing, .sequence = 1});
  std::vector<std::byte> frame;
  for (const auto part : builder.finish()) frame.insert(frame.end(), part.begin(), part.end());
  change(frame, deed);
  const std::lock_guard lock(mutex_);
  for (const auto& link : links_) {
    if (!link->data) continue;
    (void)write_all(link->to_coordinator, frame);
    if (deed == Deed::kTruncate) link->hang_up();
  }
}

void Relay::wait_while_mute() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !mute_ || stop_; });
}

}  // namespace terrace::test
