// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How ranks find each other: each listens and tells the store where; each
// connects to the ranks below it and is connected to by those above.

#include "collective/tcp/TcpTransport.h"

#include <algorithm>
#include <cerrno>
#include <list>
#include <poll.h>
#include <random>
#include <sys/socket.h>

using namespace moira;
using namespace moira::runtime;

namespace {

/// The first bytes of a connection. The token keeps strangers out: rank 0 draws
/// it, and only the store's clients see it.
struct Hello {
  static constexpr size_t size = 24;
  static constexpr uint32_t magic = 0x4c48434d; // "MCHL"
  uint32_t rank = 0;
  std::string token; ///< 16 bytes

  void put(unsigned char *at) const {
    putNumber(at, magic, 4);
    putNumber(at + 4, rank, 4);
    std::memcpy(at + 8, token.data(), 16);
  }
};

struct Caller {
  Socket socket;
  unsigned char bytes[Hello::size];
  size_t got = 0;
};

std::string randomToken() {
  std::random_device source;
  std::string token(16, '\0');
  for (int i = 0; i < 4; ++i)
    putNumber(reinterpret_cast<unsigned char *>(token.data()) + 4 * i, source(),
              4);
  return token;
}

/// Where a rank listens: "address port". An address of the machine itself says
/// nothing elsewhere; then the rank is where rank 0 is, and so is left out.
std::string ownPlace(const TcpStore &store, const Socket &listener) {
  std::string address = store.ownAddress();
  return concat(isLoopback(address) ? "" : address, " ", localPort(listener));
}

Result<Socket> callRank(TcpStore &store, int rank, const Hello &hello,
                        Deadline deadline, double seconds) {
  Result<std::string> place = store.get(concat("tcp/", rank), seconds);
  if (!place.ok())
    return place.status();
  size_t space = place->find(' ');
  int port = space == std::string::npos ? 0 : atoi(place->c_str() + space);
  if (port < 1 || port > 65535)
    return Status(MOIRA_DATA_LOSS,
                  concat("expected an address, got '", *place, "'"));
  Result<Socket> socket = connectTo(
      space == 0 ? store.host() : place->substr(0, space), port, deadline);
  if (!socket.ok())
    return socket;
  unsigned char bytes[Hello::size];
  hello.put(bytes);
  MOIRA_RETURN_IF_ERROR(sendAll(*socket, bytes, sizeof(bytes), deadline));
  return socket;
}

/// Reads on; whether the caller is still of interest.
bool listenTo(Caller &caller) {
  while (caller.got < Hello::size) {
    ssize_t got = recv(caller.socket.descriptor(), caller.bytes + caller.got,
                       Hello::size - caller.got, 0);
    if (got < 0)
      return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    if (got == 0)
      return false;
    caller.got += static_cast<size_t>(got);
  }
  return true;
}

} // namespace

/// Takes the connections of the ranks above `self`, whoever else may call.
static Status acceptRanks(const Socket &listener, const std::string &token,
                          int self, std::vector<Socket> &sockets,
                          Deadline deadline) {
  std::list<Caller> callers;
  auto missing = [&] {
    return std::find_if(sockets.begin() + self + 1, sockets.end(),
                        [](const Socket &socket) { return !socket.isOpen(); });
  };
  while (missing() != sockets.end()) {
    if (millisecondsUntil(deadline) == 0)
      return Status(MOIRA_UNAVAILABLE,
                    concat("rank ", missing() - sockets.begin(),
                           " has not connected in time"));
    std::vector<pollfd> entries{{listener.descriptor(), POLLIN, 0}};
    for (Caller &caller : callers)
      entries.push_back({caller.socket.descriptor(), POLLIN, 0});
    poll(entries.data(), entries.size(),
         std::min(millisecondsUntil(deadline), 1000));
    Result<Socket> socket = acceptFrom(listener);
    if (!socket.ok())
      return socket.status();
    if (socket->isOpen()) {
      callers.emplace_back();
      callers.back().socket = std::move(*socket);
    }
    for (auto it = callers.begin(); it != callers.end();) {
      bool keep = listenTo(*it);
      if (keep && it->got == Hello::size) {
        uint64_t rank = getNumber(it->bytes + 4, 4);
        if (getNumber(it->bytes, 4) == Hello::magic &&
            std::memcmp(it->bytes + 8, token.data(), 16) == 0 &&
            rank > static_cast<uint64_t>(self) && rank < sockets.size() &&
            !sockets[rank].isOpen())
          sockets[rank] = std::move(it->socket);
        keep = false;
      }
      it = keep ? std::next(it) : callers.erase(it);
    }
  }
  return Status();
}

Status TcpTransport::connect(TcpStore &store) {
  const double seconds = options.connectSeconds;
  const Deadline deadline = deadlineIn(seconds);
  Result<Socket> listener = listenOn(0, isLoopback(store.host()));
  if (!listener.ok())
    return listener.status();
  Hello hello;
  hello.rank = static_cast<uint32_t>(self);
  if (self == 0) {
    hello.token = randomToken();
    MOIRA_RETURN_IF_ERROR(store.set("tcp/token", hello.token));
  } else {
    Result<std::string> token = store.get("tcp/token", seconds);
    if (!token.ok())
      return token.status();
    if (token->size() != 16)
      return Status(MOIRA_DATA_LOSS, "expected a token of 16 bytes");
    hello.token = std::move(*token);
  }
  MOIRA_RETURN_IF_ERROR(
      store.set(concat("tcp/", self), ownPlace(store, *listener)));
  std::vector<Socket> sockets(size);
  for (int other = 0; other < self; ++other) {
    Result<Socket> socket = callRank(store, other, hello, deadline, seconds);
    if (!socket.ok())
      return socket.status().within(concat("rank ", other));
    sockets[other] = std::move(*socket);
  }
  MOIRA_RETURN_IF_ERROR(
      acceptRanks(*listener, hello.token, self, sockets, deadline));
  peers.resize(size);
  for (int other = 0; other < size; ++other)
    if (other != self)
      peers[other] = std::make_unique<TcpPeer>(other, std::move(sockets[other]),
                                               options.piece);
  return store.barrier("tcp/connected", seconds);
}

Result<std::unique_ptr<TcpTransport>>
TcpTransport::open(TcpStore &store, const TcpOptions &options) {
  if (options.piece < 1)
    return Status(MOIRA_INVALID_ARGUMENT, "expected pieces of 1 byte or more");
  std::unique_ptr<TcpTransport> transport(
      new TcpTransport(store.rank(), store.ranks(), options));
  MOIRA_RETURN_IF_ERROR(transport->connect(store));
  return transport;
}
