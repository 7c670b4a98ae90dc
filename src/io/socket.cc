#include "io/socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <vector>

namespace tandem::io {
namespace {

constexpr int kBacklog = 1024;
constexpr int kFlags = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

Error socket_error(const std::string& verb, int error_number) {
  return make_error(Code::kUnavailable, "cannot " + verb + ": " + std::strerror(error_number));
}

Result<void> wait_for(int descriptor, short events, Deadline deadline) {
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd waiting{descriptor, events, 0};
    const int timeout = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000));
    const int ready = ::poll(&waiting, 1, timeout);
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return socket_error("wait for a socket", errno);
    if (left.count() <= 0) return make_error(Code::kDeadlineExceeded, "the peer takes too long");
  }
}

/// A dead machine is found by keep-alive probes of the kernel, which a stopped process answers.
void set_tcp_options(int descriptor) {
  const auto set = [&](int level, int name, int value) {
    ::setsockopt(descriptor, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 4000);
}

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Result<Addresses> resolve(const Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  if (error != 0) {
    return make_error(Code::kUnavailable, "cannot find host " + endpoint.host + ": " +
                                              ::gai_strerror(error) + "; use its address instead");
  }
  return Addresses(found, ::freeaddrinfo);
}

/// Whoever connects to a port of its own host where nobody listens may be given that port.
bool is_joined_to_itself(int descriptor) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_size = sizeof own;
  socklen_t peer_size = sizeof peer;
  return ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
         ::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 &&
         own_size == peer_size && std::memcmp(&own, &peer, own_size) == 0;
}

/// A leading zero byte makes a name that is no file and that ends with its socket.
Result<std::pair<sockaddr_un, socklen_t>> local_address(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof address.sun_path) {
    return make_error(Code::kInvalidArgument, "the socket name " + name + " is too long");
  }
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const size_t length = offsetof(sockaddr_un, sun_path) + 1 + name.size();
  return std::pair(address, static_cast<socklen_t>(length));
}

/// Whether the other end of a local socket is a process of the same user.
bool is_of_same_user(int descriptor) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == ::geteuid();
}

bool is_local(int descriptor) {
  int domain = 0;
  socklen_t size = sizeof domain;
  ::getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &domain, &size);
  return domain == AF_UNIX;
}

}  // namespace

std::string Endpoint::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

Result<Endpoint> parse_endpoint(std::string_view text) {
  const auto refuse = [&] {
    return make_error(
        Code::kInvalidArgument,
        fmt::format("\"{}\" is not host:port; write for example 10.0.0.1:29500 or [::1]:29500",
                    text));
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return refuse();
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return refuse();
  }
  int port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size()) return refuse();
  if (host.empty() || host.size() > 255 || port < 0 || port > 65535) return refuse();
  return Endpoint{std::string(host), port};
}

Result<Socket> Socket::connect_tcp(const Endpoint& endpoint, Deadline deadline) {
  const Addresses addresses = TANDEM_TRY(resolve(endpoint));
  int error = ECONNREFUSED;
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    Socket socket(FileDescriptor(::socket(address->ai_family, kFlags, 0)));
    if (socket.descriptor() < 0) return socket_error("make a socket", errno);
    if (::connect(socket.descriptor(), address->ai_addr, address->ai_addrlen) != 0 &&
        errno != EINPROGRESS) {
      error = errno;
      continue;
    }
    TANDEM_TRY(wait_for(socket.descriptor(), POLLOUT, deadline));
    socklen_t size = sizeof error;
    ::getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) continue;
    if (is_joined_to_itself(socket.descriptor())) {
      error = ECONNREFUSED;
      continue;
    }
    set_tcp_options(socket.descriptor());
    return socket;
  }
  return socket_error("connect to " + endpoint.text(), error);
}

Result<Socket> Socket::connect_local(const std::string& name) {
  const auto [address, length] = TANDEM_TRY(local_address(name));
  Socket socket(FileDescriptor(::socket(AF_UNIX, kFlags, 0)));
  if (socket.descriptor() < 0) return socket_error("make a socket", errno);
  if (::connect(socket.descriptor(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    const int error_number = errno;  // the next call may change it
    Error error = socket_error("connect to the local socket " + name, error_number);
    if (error_number == ECONNREFUSED) error.code = Code::kNotFound;
    return error;
  }
  if (!is_of_same_user(socket.descriptor())) {
    return make_error(Code::kNotFound, "the local socket " + name + " is another user's");
  }
  return socket;
}

Result<std::pair<Socket, Socket>> Socket::make_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, kFlags, 0, ends) != 0) return socket_error("make a socket", errno);
  return std::pair(Socket(FileDescriptor(ends[0])), Socket(FileDescriptor(ends[1])));
}

Result<void> Socket::send(std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      TANDEM_TRY(wait_for(descriptor(), POLLOUT, deadline));
    } else if (errno != EINTR) {
      return socket_error("send to the peer", errno);
    }
  }
  return {};
}

Result<void> Socket::receive(std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const size_t received = TANDEM_TRY(receive_some(bytes));
    if (received == 0) TANDEM_TRY(wait_for(descriptor(), POLLIN, deadline));
    bytes = bytes.subspan(received);
  }
  return {};
}

Result<size_t> Socket::receive_some(std::span<std::byte> bytes) {
  while (true) {
    const ssize_t received = ::recv(descriptor(), bytes.data(), bytes.size(), 0);
    if (received > 0) return static_cast<size_t>(received);
    if (received == 0) return make_error(Code::kUnavailable, "the peer ended the connection");
    if (errno == EAGAIN) return size_t{0};
    if (errno != EINTR) return socket_error("receive from the peer", errno);
  }
}

namespace {

/// One byte with room for one descriptor beside it, which is how descriptors travel.
struct DescriptorMessage {
  DescriptorMessage() {
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  DescriptorMessage(const DescriptorMessage&) = delete;
  DescriptorMessage& operator=(const DescriptorMessage&) = delete;

  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
};

}  // namespace

Result<void> Socket::send_descriptor(const FileDescriptor& sent) {
  DescriptorMessage message;
  cmsghdr* header = CMSG_FIRSTHDR(&message.header);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int value = sent.get();
  std::memcpy(CMSG_DATA(header), &value, sizeof value);
  if (::sendmsg(descriptor(), &message.header, MSG_NOSIGNAL) != 1) {
    return socket_error("hand over a descriptor", errno);
  }
  return {};
}

Result<FileDescriptor> Socket::receive_descriptor(Deadline deadline) {
  TANDEM_TRY(wait_for(descriptor(), POLLIN, deadline));
  DescriptorMessage message;
  const ssize_t received = ::recvmsg(descriptor(), &message.header, MSG_CMSG_CLOEXEC);
  const cmsghdr* header = received == 1 ? CMSG_FIRSTHDR(&message.header) : nullptr;
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int))) {
    return make_error(Code::kUnavailable, "the peer did not hand over a descriptor");
  }
  int value = -1;
  std::memcpy(&value, CMSG_DATA(header), sizeof value);
  return FileDescriptor(value);
}

int Socket::peer_process_id() const {
  ucred peer{};
  socklen_t size = sizeof peer;
  ::getsockopt(descriptor(), SOL_SOCKET, SO_PEERCRED, &peer, &size);
  return peer.pid;
}

Result<Listener> Listener::listen_tcp(const Endpoint& endpoint) {
  const Addresses addresses = TANDEM_TRY(resolve(endpoint));
  int error = EADDRNOTAVAIL;
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    FileDescriptor descriptor(::socket(address->ai_family, kFlags, 0));
    const int yes = 1;
    ::setsockopt(descriptor.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (::bind(descriptor.get(), address->ai_addr, address->ai_addrlen) == 0 &&
        ::listen(descriptor.get(), kBacklog) == 0) {
      return Listener(std::move(descriptor));
    }
    error = errno;
  }
  return socket_error("listen on " + endpoint.text(), error);
}

Result<Listener> Listener::listen_local(const std::string& name) {
  const auto [address, length] = TANDEM_TRY(local_address(name));
  FileDescriptor descriptor(::socket(AF_UNIX, kFlags, 0));
  if (::bind(descriptor.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(descriptor.get(), kBacklog) != 0) {
    return socket_error("listen on the local socket " + name, errno);
  }
  return Listener(std::move(descriptor));
}

Result<std::optional<Socket>> Listener::accept(Deadline deadline) {
  while (true) {
    FileDescriptor accepted(
        ::accept4(descriptor_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (accepted.get() >= 0) {
      if (is_local(accepted.get()) && !is_of_same_user(accepted.get())) continue;
      set_tcp_options(accepted.get());  // means nothing to a local socket, and does no harm
      return std::optional(Socket(std::move(accepted)));
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN) return socket_error("accept a connection", errno);
    if (const auto ready = wait_for(descriptor_.get(), POLLIN, deadline); !ready.ok()) {
      if (ready.error().code == Code::kDeadlineExceeded) return std::optional<Socket>();
      return ready.error();
    }
  }
}

int Listener::port() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(descriptor_.get(), reinterpret_cast<sockaddr*>(&address), &size);
  // The port stands at the same place in both families.
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

void wait_readable(std::span<const int> descriptors, std::chrono::milliseconds timeout) {
  std::vector<pollfd> waiting;
  waiting.reserve(descriptors.size());
  for (const int descriptor : descriptors) waiting.push_back({descriptor, POLLIN, 0});
  ::poll(waiting.data(), waiting.size(), static_cast<int>(timeout.count()));
}

}  // namespace tandem::io
