// One end of a connection as a process of its own, so that it can be killed, stopped, and damaged. Arguments:
//
//   serve tcp|ucx                  prints its address, answers every frame with itself, until it is killed
//   send tcp|ucx ADDRESS           sends frames of many sizes until it is killed or the other end goes
//   damage tcp|ucx ADDRESS SEED    the same, with bits flipped in some of what its sockets send, 64 times, then ends
//   ask tcp|ucx ADDRESS            sends one frame; exit status 0 when the answer is the same
#include <dlfcn.h>
#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "common/base/split_mix.h"
#include "common/transport/tcp/tcp.h"
#include "tests/contract/transport_harness.h"
#include "tests/contract/ucx_on_loopback.h"

namespace {

std::atomic<bool> damages{false};
std::uint64_t damage_state = 0;
std::uint64_t sends = 0;
std::uint64_t damaged_sends = 0;
constexpr std::uint64_t kMostDamaged = 64;

// One bit in every few sends, once the connection is up.
void damage(std::byte* bytes, std::size_t n) {
  if (!damages || n == 0 || ++sends % 3 != 0) return;
  ++damaged_sends;
  const std::uint64_t random = terrace::split_mix(damage_state += terrace::kSplitMixStep);
  bytes[random % n] ^= std::byte(1 << (random >> 60) % 8);
}

template <class Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

// What libraries send goes through here: these stand before the C library's.
extern "C" ssize_t send(int fd, const void* data, size_t n, int flags) {
  static const auto next = real<ssize_t (*)(int, const void*, size_t, int)>("send");
  if (!damages) return next(fd, data, n, flags);
  std::vector<std::byte> copy(n);
  std::memcpy(copy.data(), data, n);
  damage(copy.data(), n);
  return next(fd, copy.data(), n, flags);
}

extern "C" ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  static const auto next = real<ssize_t (*)(int, const msghdr*, int)>("sendmsg");
  if (!damages) return next(fd, message, flags);
  std::vector<std::byte> copy;
  for (std::size_t i = 0; i < message->msg_iovlen; ++i) {
    const auto* const bytes = static_cast<const std::byte*>(message->msg_iov[i].iov_base);
    copy.insert(copy.end(), bytes, bytes + message->msg_iov[i].iov_len);
  }
  damage(copy.data(), copy.size());
  iovec whole{copy.data(), copy.size()};
  msghdr changed = *message;
  changed.msg_iov = &whole;
  changed.msg_iovlen = 1;
  return next(fd, &changed, flags);
}

namespace terrace::transport::test {
namespace {

std::unique_ptr<Transport> make_transport(const std::string& name) {
  if (name == "tcp") return std::make_unique<TcpTransport>();
  return std::make_unique<UcxOnLoopback>();
}

// Sends back what comes, as it comes. Open ends only.
struct Echo {
  std::unique_ptr<Connection> connection;
  std::vector<std::span<const std::byte>> under_way;  // by order of sending

  // False: it has ended.
  bool poll() {
    std::array<Event, 16> events;
    const std::size_t n = connection->poll(events);
    for (const Event& event : std::span(events).first(n)) {
      if (event.kind == Event::Kind::kClosed) return false;
      if (event.kind == Event::Kind::kReceived) {
        if (connection->send({&event.frame, 1}).ok())
          under_way.push_back(event.frame);
        else
          connection->release(event.frame);
      } else if (!under_way.empty()) {
        connection->release(under_way.front());
        under_way.erase(under_way.begin());
      }
    }
    return true;
  }
};

int serve(const std::string& transport_name) {
  const auto transport = make_transport(transport_name);
  const auto listener = std::move(transport->listen("127.0.0.1:0", {})).value();
  fmt::print("{}\n", listener->address());
  std::fflush(stdout);
  std::vector<Echo> ends;
  for (;;) {
    std::vector<pollfd> entries{{listener->wait_fd(), POLLIN, 0}};
    for (Echo& end : ends) entries.push_back({end.connection->wait_fd(), end.connection->wait_events(), 0});
    ::poll(entries.data(), entries.size(), 100);
    if (auto accepted = listener->accept(); accepted.ok() && *accepted) ends.push_back({std::move(*accepted), {}});
    std::erase_if(ends, [](Echo& end) { return !end.poll(); });
  }
}

int send_frames(const std::string& transport_name, const std::string& address, bool damaged) {
  const auto transport = make_transport(transport_name);
  End end;
  end.connection = std::move(transport->connect(address, {}, kPatience)).value();
  end.copy = false;
  std::vector<std::unique_ptr<TestFrame>> frames;
  for (const std::size_t size : {64u, 5008u, 100'000u, 300'000u}) frames.push_back(make_frame(1, size));
  fmt::print("connected\n");
  std::fflush(stdout);
  for (std::uint64_t sent = 0; !end.closed && damaged_sends < kMostDamaged;) {
    while (end->send(frames[sent % frames.size()]->parts()).ok()) ++sent;
    if (end.poll() == 0) wait_for_any({&end});
    damages = damaged && end.received > 0;
  }
  return 0;
}

int ask(const std::string& transport_name, const std::string& address) {
  const auto transport = make_transport(transport_name);
  auto connection = transport->connect(address, {}, kPatience);
  if (!connection.ok()) return 1;
  End end;
  end.connection = std::move(*connection);
  const TestFrame frame(1, 5008);
  if (!end->send(frame.parts()).ok()) return 1;
  const bool answered = pump({&end}, [&] { return end.received == 1 || end.closed; });
  return answered && end.received == 1 && end.frames[0] == frame.contiguous() ? 0 : 1;
}

}  // namespace
}  // namespace terrace::transport::test

int main(int argc, char** argv) {
  using namespace terrace::transport::test;
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 2 && words[0] == "serve") return serve(words[1]);
  if (words.size() == 3 && words[0] == "send") return send_frames(words[1], words[2], false);
  if (words.size() == 3 && words[0] == "ask") return ask(words[1], words[2]);
  if (words.size() == 4 && words[0] == "damage") {
    damage_state = std::stoull(words[3]);
    return send_frames(words[1], words[2], true);
  }
  fmt::print(stderr, "usage: {} serve|send|damage|ask tcp|ucx [ADDRESS [SEED]]\n", argv[0]);
  return 2;
}
