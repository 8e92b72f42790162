// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// TCP sockets that never block: whoever waits gives a deadline.

#ifndef MOIRA_RUNTIME_BOOTSTRAP_SOCKET_H
#define MOIRA_RUNTIME_BOOTSTRAP_SOCKET_H

#include "base/Status.h"

#include <chrono>
#include <string>

namespace moira::runtime {

using Deadline = std::chrono::steady_clock::time_point;

/// The moment in `seconds` from now.
Deadline deadlineIn(double seconds);
/// Milliseconds until then, for poll: 0 or more.
int millisecondsUntil(Deadline deadline);

/// Owns a descriptor.
class Socket {
public:
  Socket() = default;
  explicit Socket(int descriptor) : held(descriptor) {}
  Socket(Socket &&other) noexcept : held(other.release()) {}
  Socket &operator=(Socket &&other) noexcept;
  ~Socket() { close(); }

  int descriptor() const { return held; }
  bool isOpen() const { return held >= 0; }
  void close();

private:
  int release() {
    int descriptor = held;
    held = -1;
    return descriptor;
  }
  int held = -1;
};

/// Whether a host is this machine talking to itself ("localhost", 127.x, ::1).
bool isLoopback(const std::string &host);

/// Listens on `port` (0: a free one) of all addresses, or of this machine's
/// own where `loopback`.
Result<Socket> listenOn(int port, bool loopback);
/// Connects, again and again while nobody listens there, until the deadline.
Result<Socket> connectTo(const std::string &host, int port, Deadline deadline);
/// The next connection; a closed socket when there is none now.
Result<Socket> acceptFrom(const Socket &listener);

/// The port that a socket has on this machine, and its address.
int localPort(const Socket &socket);
std::string localAddress(const Socket &socket);

/// All bytes, or an error; MOIRA_UNAVAILABLE after the deadline.
Status sendAll(const Socket &socket, const void *data, size_t bytes,
               Deadline deadline);
Status receiveAll(const Socket &socket, void *data, size_t bytes,
                  Deadline deadline);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_BOOTSTRAP_SOCKET_H
