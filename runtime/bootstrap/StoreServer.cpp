// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "bootstrap/StoreServer.h"

#include <algorithm>
#include <cerrno>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

using namespace moira;
using namespace moira::runtime;

static constexpr size_t maxStored = size_t(256) << 20;
static constexpr size_t maxUnsent = size_t(8) << 20;
static constexpr double greetSeconds = 10;
static constexpr double leaveSeconds = 5;

Result<std::unique_ptr<StoreServer>>
StoreServer::start(Socket listener, std::string greeting, int connections) {
  std::unique_ptr<StoreServer> server(
      new StoreServer(std::move(listener), std::move(greeting), connections));
  int ends[2];
  if (pipe(ends))
    return Status(MOIRA_UNAVAILABLE, "the store has no pipe");
  server->wakeReader = Socket(ends[0]);
  server->wakeWriter = Socket(ends[1]);
  server->thread = std::thread([raw = server.get()] { raw->serve(); });
  return server;
}

StoreServer::~StoreServer() {
  wakeWriter.close();
  if (thread.joinable())
    thread.join();
}

int StoreServer::nextTimeout() const {
  int least = 1000;
  for (const Connection &connection : connections) {
    if (!connection.greeted)
      least = std::min(least, millisecondsUntil(connection.greetBy));
    if (connection.waits)
      least = std::min(least, millisecondsUntil(connection.waitsUntil));
  }
  return least;
}

void StoreServer::serve() {
  std::vector<pollfd> entries;
  bool leaving = false;
  Deadline leaveBy;
  while (!leaving || (!connections.empty() && millisecondsUntil(leaveBy) > 0)) {
    entries.clear();
    entries.push_back({leaving ? -1 : wakeReader.descriptor(), POLLIN, 0});
    entries.push_back({listener.descriptor(), POLLIN, 0});
    for (Connection &connection : connections) {
      short events =
          static_cast<short>(POLLIN | (connection.out.empty() ? 0 : POLLOUT));
      entries.push_back({connection.socket.descriptor(), events, 0});
    }
    poll(entries.data(), entries.size(), nextTimeout());
    if (entries[0].revents) {
      // Who has passed a last barrier may not know it yet.
      leaving = true;
      leaveBy = deadlineIn(leaveSeconds);
    }
    size_t at = 2;
    for (auto it = connections.begin(); it != connections.end();) {
      bool keep = !entries[at++].revents || receive(*it);
      it = keep ? std::next(it) : connections.erase(it);
    }
    if (entries[1].revents)
      acceptAll();
    answerLate();
    for (auto it = connections.begin(); it != connections.end();)
      it = flush(*it) ? std::next(it) : connections.erase(it);
  }
}

void StoreServer::acceptAll() {
  while (true) {
    Result<Socket> socket = acceptFrom(listener);
    if (!socket.ok() || !socket->isOpen())
      return;
    // Over the limit it is closed at once.
    if (static_cast<int>(connections.size()) >= 2 * maxConnections)
      continue;
    connections.emplace_back();
    connections.back().socket = std::move(*socket);
    connections.back().greetBy = deadlineIn(greetSeconds);
  }
}

bool StoreServer::receive(Connection &connection) {
  char buffer[16384];
  while (true) {
    ssize_t got =
        recv(connection.socket.descriptor(), buffer, sizeof(buffer), 0);
    if (got == 0)
      return false;
    if (got < 0)
      return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    // Who is about to be disconnected is not listened to.
    if (connection.closing)
      continue;
    connection.in.append(buffer, static_cast<size_t>(got));
    if (!obeyAll(connection) || connection.out.size() > maxUnsent)
      return false;
  }
}

bool StoreServer::obeyAll(Connection &connection) {
  while (connection.in.size() >= StoreHead::size && !connection.closing) {
    std::optional<StoreHead> head = StoreHead::get(
        reinterpret_cast<const unsigned char *>(connection.in.data()));
    if (!head)
      return false;
    size_t bytes = StoreHead::size + head->keyBytes + head->valueBytes;
    if (connection.in.size() < bytes)
      return true;
    std::string key = connection.in.substr(StoreHead::size, head->keyBytes);
    std::string value = connection.in.substr(StoreHead::size + head->keyBytes,
                                             head->valueBytes);
    connection.in.erase(0, bytes);
    if (!obey(connection, *head, std::move(key), std::move(value)))
      return false;
  }
  return true;
}

bool StoreServer::obey(Connection &connection, const StoreHead &head,
                       std::string key, std::string value) {
  if (!connection.greeted) {
    if (head.ask != StoreAsk::Hello)
      return false;
    connection.greeted = value == greeting;
    connection.closing = !connection.greeted;
    answer(connection, connection.greeted ? StoreSays::Ok : StoreSays::Refused,
           greeting);
    return true;
  }
  // A client asks one thing at a time.
  if (connection.waits)
    return false;
  auto found = values.find(key);
  switch (head.ask) {
  case StoreAsk::Hello:
    return false;
  case StoreAsk::Set:
    if (!store(key, std::move(value)))
      return false;
    answer(connection, StoreSays::Ok, "");
    return true;
  case StoreAsk::Add: {
    unsigned char number[8] = {};
    if (value.size() != sizeof(number))
      return false;
    uint64_t sum =
        getNumber(reinterpret_cast<const unsigned char *>(value.data()), 8);
    if (found != values.end()) {
      if (found->second.size() != sizeof(number))
        return false;
      sum += getNumber(
          reinterpret_cast<const unsigned char *>(found->second.data()), 8);
    }
    putNumber(number, sum, 8);
    std::string bytes(reinterpret_cast<char *>(number), sizeof(number));
    if (!store(key, bytes))
      return false;
    answer(connection, StoreSays::Ok, bytes);
    return true;
  }
  case StoreAsk::Get:
    if (found != values.end()) {
      answer(connection, StoreSays::Ok, found->second);
      return true;
    }
    connection.awaited = std::move(key);
    connection.waits = true;
    connection.waitsUntil = deadlineIn(head.milliseconds / 1e3);
    return true;
  }
  return false;
}

bool StoreServer::store(const std::string &key, std::string value) {
  auto entry = values.find(key);
  size_t before = entry == values.end() ? 0 : key.size() + entry->second.size();
  size_t after = valueBytes - before + key.size() + value.size();
  if (after > maxStored)
    return false;
  valueBytes = after;
  for (Connection &connection : connections)
    if (connection.waits && connection.awaited == key) {
      connection.waits = false;
      answer(connection, StoreSays::Ok, value);
    }
  values[key] = std::move(value);
  return true;
}

void StoreServer::answer(Connection &connection, StoreSays says,
                         const std::string &value) {
  unsigned char head[storeAnswerHead];
  putNumber(head, static_cast<uint32_t>(says), 4);
  putNumber(head + 4, value.size(), 4);
  connection.out.append(reinterpret_cast<char *>(head), sizeof(head));
  connection.out += value;
}

void StoreServer::answerLate() {
  for (Connection &connection : connections) {
    if (connection.waits && millisecondsUntil(connection.waitsUntil) == 0) {
      connection.waits = false;
      answer(connection, StoreSays::Late, "");
    }
    if (!connection.greeted && millisecondsUntil(connection.greetBy) == 0)
      connection.closing = true;
  }
}

bool StoreServer::flush(Connection &connection) {
  while (!connection.out.empty()) {
    ssize_t sent = send(connection.socket.descriptor(), connection.out.data(),
                        connection.out.size(), MSG_NOSIGNAL);
    if (sent < 0)
      return (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) &&
             connection.out.size() <= maxUnsent;
    connection.out.erase(0, static_cast<size_t>(sent));
  }
  return !connection.closing;
}
