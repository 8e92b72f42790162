// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The serving half of the store, a thread of rank 0. It trusts nobody: who does
// not greet, says too much or speaks another language is disconnected.

#ifndef MOIRA_RUNTIME_BOOTSTRAP_STORESERVER_H
#define MOIRA_RUNTIME_BOOTSTRAP_STORESERVER_H

#include "bootstrap/Socket.h"
#include "bootstrap/StoreProtocol.h"

#include <list>
#include <memory>
#include <thread>
#include <unordered_map>

namespace moira::runtime {

class StoreServer {
public:
  /// Serves `listener` until it is destroyed and the clients have left (5 s at
  /// most). Clients must greet with
  /// `greeting`; at most `connections` at a time, and as many again that have
  /// not greeted yet.
  static Result<std::unique_ptr<StoreServer>>
  start(Socket listener, std::string greeting, int connections);
  ~StoreServer();

private:
  struct Connection {
    Socket socket;
    std::string in, out;
    bool greeted = false;
    bool closing = false; ///< once `out` is sent
    Deadline greetBy;
    std::string awaited; ///< the key of a Get that is not answered yet
    bool waits = false;
    Deadline waitsUntil;
  };

  StoreServer(Socket listener, std::string greeting, int connections)
      : listener(std::move(listener)), greeting(std::move(greeting)),
        maxConnections(connections) {}
  void serve();
  void acceptAll();
  bool receive(Connection &connection); ///< false: to be disconnected
  bool flush(Connection &connection);
  bool obeyAll(Connection &connection);
  bool obey(Connection &connection, const StoreHead &head, std::string key,
            std::string value);
  bool store(const std::string &key, std::string value);
  void answer(Connection &connection, StoreSays says, const std::string &value);
  void answerLate();
  int nextTimeout() const;

  Socket listener;
  const std::string greeting;
  const int maxConnections;
  Socket wakeReader, wakeWriter; ///< a pipe; its end stops the thread
  std::list<Connection> connections;
  std::unordered_map<std::string, std::string> values;
  size_t valueBytes = 0;
  std::thread thread;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_BOOTSTRAP_STORESERVER_H
