// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "bootstrap/Socket.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

using namespace moira;
using namespace moira::runtime;

Deadline moira::runtime::deadlineIn(double seconds) {
  // A century is for ever, and does not overflow.
  seconds = std::min(std::max(seconds, 0.0), 3e9);
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(
             std::chrono::duration<double>(seconds));
}

int moira::runtime::millisecondsUntil(Deadline deadline) {
  auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                  deadline - std::chrono::steady_clock::now())
                  .count();
  // poll rounds down, so the last millisecond would be polled through.
  return static_cast<int>(
      std::min<int64_t>(std::max<int64_t>(left + 1, 0), 1000 * 1000));
}

Socket &Socket::operator=(Socket &&other) noexcept {
  if (this != &other) {
    close();
    held = other.release();
  }
  return *this;
}

void Socket::close() {
  if (held >= 0)
    ::close(held);
  held = -1;
}

static Status systemError(const std::string &what, int error) {
  return Status(MOIRA_UNAVAILABLE, concat(what, ": ", std::strerror(error)));
}

bool moira::runtime::isLoopback(const std::string &host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

// Small messages go at once, and a host that vanishes is noticed in half a
// minute. (TCP_USER_TIMEOUT would end a connection whose reader computes.)
static void setOptions(int socket) {
  auto set = [socket](int level, int option, int value) {
    setsockopt(socket, level, option, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
}

static Result<Socket> listenOn(int family, int port, bool loopback) {
  Socket socket(
      ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.isOpen())
    return systemError("socket", errno);
  int yes = 1, no = 0;
  setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_storage address = {};
  socklen_t size = sizeof(sockaddr_in);
  if (family == AF_INET6) {
    setsockopt(socket.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
    auto *inet6 = reinterpret_cast<sockaddr_in6 *>(&address);
    inet6->sin6_family = AF_INET6;
    inet6->sin6_addr = in6addr_any;
    inet6->sin6_port = htons(static_cast<uint16_t>(port));
    size = sizeof(sockaddr_in6);
  } else {
    auto *inet = reinterpret_cast<sockaddr_in *>(&address);
    inet->sin_family = AF_INET;
    inet->sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY);
    inet->sin_port = htons(static_cast<uint16_t>(port));
  }
  if (bind(socket.descriptor(), reinterpret_cast<sockaddr *>(&address), size) ||
      listen(socket.descriptor(), 1024))
    return systemError(concat("listen on port ", port), errno);
  return socket;
}

Result<Socket> moira::runtime::listenOn(int port, bool loopback) {
  if (loopback)
    return ::listenOn(AF_INET, port, true);
  // One socket for both families, where the machine has both.
  Result<Socket> both = ::listenOn(AF_INET6, port, false);
  return both.ok() ? std::move(both) : ::listenOn(AF_INET, port, false);
}

/// One attempt at one address.
static Result<Socket> connectOnce(const addrinfo &address, Deadline deadline) {
  Socket socket(::socket(address.ai_family,
                         SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.isOpen())
    return systemError("socket", errno);
  int error = 0;
  if (connect(socket.descriptor(), address.ai_addr, address.ai_addrlen)) {
    if (errno != EINPROGRESS)
      return systemError("connect", errno);
    pollfd entry = {socket.descriptor(), POLLOUT, 0};
    if (poll(&entry, 1, millisecondsUntil(deadline)) <= 0)
      return systemError("connect", ETIMEDOUT);
    socklen_t size = sizeof(error);
    getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error)
    return systemError("connect", error);
  setOptions(socket.descriptor());
  return socket;
}

Result<Socket> moira::runtime::connectTo(const std::string &host, int port,
                                         Deadline deadline) {
  Status last(MOIRA_UNAVAILABLE, "no attempt was made");
  for (auto pause = std::chrono::milliseconds(2);;) {
    addrinfo hints = {}, *found = nullptr;
    // "localhost" may be ::1, where a loopback listener is not.
    hints.ai_family = isLoopback(host) && host != "::1" ? AF_INET : AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    int error =
        getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found,
                                                             freeaddrinfo);
    if (error)
      last = Status(MOIRA_UNAVAILABLE, gai_strerror(error));
    for (addrinfo *address = error ? nullptr : found; address;
         address = address->ai_next) {
      Result<Socket> socket = connectOnce(*address, deadline);
      if (socket.ok())
        return socket;
      last = socket.status();
    }
    if (std::chrono::steady_clock::now() + pause >= deadline)
      return last.within(concat(host, " port ", port));
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(200));
  }
}

Result<Socket> moira::runtime::acceptFrom(const Socket &listener) {
  Socket socket(accept4(listener.descriptor(), nullptr, nullptr,
                        SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.isOpen()) {
    setOptions(socket.descriptor());
    return socket;
  }
  // The other errors concern one connection that is no more.
  if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
      errno == ENOMEM || errno == EBADF)
    return systemError("accept", errno);
  return Socket();
}

int moira::runtime::localPort(const Socket &socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  getsockname(socket.descriptor(), reinterpret_cast<sockaddr *>(&address),
              &size);
  if (address.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<sockaddr_in6 *>(&address)->sin6_port);
  return ntohs(reinterpret_cast<sockaddr_in *>(&address)->sin_port);
}

std::string moira::runtime::localAddress(const Socket &socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  getsockname(socket.descriptor(), reinterpret_cast<sockaddr *>(&address),
              &size);
  char text[NI_MAXHOST] = {};
  getnameinfo(reinterpret_cast<sockaddr *>(&address), size, text, sizeof(text),
              nullptr, 0, NI_NUMERICHOST);
  std::string result = text;
  // An IPv4 address seen through a socket for both families.
  return result.rfind("::ffff:", 0) == 0 ? result.substr(7) : result;
}

/// Repeats `step` (send or recv) until all bytes have gone through it.
template <typename Step>
static Status moveAll(const Socket &socket, size_t bytes, short events,
                      Deadline deadline, const char *what, Step step) {
  for (size_t done = 0; done < bytes;) {
    ssize_t moved = step(done, bytes - done);
    if (moved > 0) {
      done += static_cast<size_t>(moved);
      continue;
    }
    if (moved == 0)
      return Status(MOIRA_UNAVAILABLE,
                    concat(what, ": the other side closed the connection"));
    if (errno == EINTR)
      continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK)
      return systemError(what, errno);
    pollfd entry = {socket.descriptor(), events, 0};
    if (std::chrono::steady_clock::now() >= deadline)
      return systemError(what, ETIMEDOUT);
    poll(&entry, 1, millisecondsUntil(deadline));
  }
  return Status();
}

Status moira::runtime::sendAll(const Socket &socket, const void *data,
                               size_t bytes, Deadline deadline) {
  return moveAll(
      socket, bytes, POLLOUT, deadline, "send", [&](size_t done, size_t left) {
        return send(socket.descriptor(), static_cast<const char *>(data) + done,
                    left, MSG_NOSIGNAL);
      });
}

Status moira::runtime::receiveAll(const Socket &socket, void *data,
                                  size_t bytes, Deadline deadline) {
  return moveAll(socket, bytes, POLLIN, deadline, "receive",
                 [&](size_t done, size_t left) {
                   return recv(socket.descriptor(),
                               static_cast<char *>(data) + done, left, 0);
                 });
}
