// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "bootstrap/TcpStore.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

// What the server may take to answer, beyond the wait that it is asked for.
static constexpr double answerSeconds = 10;

Result<std::unique_ptr<TcpStore>> TcpStore::open(const Environment &environment,
                                                 double seconds) {
  if (environment.masterAddress.empty() || environment.storePort == 0)
    return Status(MOIRA_INVALID_ARGUMENT,
                  "expected MASTER_ADDR and MASTER_PORT (or "
                  "MOIRA_MASTER_PORT) to say where rank 0 is");
  std::unique_ptr<TcpStore> store(new TcpStore(environment));
  const std::string greeting =
      storeGreeting(environment.job, environment.ranks);
  Deadline deadline = deadlineIn(seconds);
  if (environment.rank == 0) {
    Result<Socket> listener =
        listenOn(environment.storePort, isLoopback(environment.masterAddress));
    if (!listener.ok())
      return listener.status().within(
          "the store of rank 0 (MOIRA_MASTER_PORT chooses another port)");
    Result<std::unique_ptr<StoreServer>> server = StoreServer::start(
        std::move(*listener), greeting, 2 * environment.ranks + 16);
    if (!server.ok())
      return server.status();
    store->server = std::move(*server);
  }
  const std::string where =
      concat("the store of rank 0 at ", environment.masterAddress, " port ",
             environment.storePort);
  Result<Socket> socket =
      connectTo(environment.masterAddress, environment.storePort, deadline);
  if (!socket.ok())
    return socket.status().within(where);
  store->socket = std::move(*socket);
  Result<Answer> answer = store->ask(StoreAsk::Hello, "", greeting, 0);
  if (!answer.ok())
    return answer.status().within(where);
  if (answer->says != StoreSays::Ok)
    return Status(MOIRA_UNAVAILABLE, concat(where, ": expected ", greeting,
                                            ", it serves ", answer->value));
  return store;
}

Result<TcpStore::Answer> TcpStore::ask(StoreAsk what, const std::string &key,
                                       const std::string &value, double wait) {
  if (key.size() > storeMaxKey || value.size() > storeMaxValue)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected a key of at most ", storeMaxKey,
                         " bytes and a value of at most ", storeMaxValue,
                         ", got ", key.size(), " and ", value.size()));
  StoreHead head;
  head.ask = what;
  head.keyBytes = static_cast<uint32_t>(key.size());
  head.valueBytes = static_cast<uint32_t>(value.size());
  wait = std::min(std::max(wait, 0.0), 1e6);
  head.milliseconds = static_cast<uint32_t>(wait * 1e3);
  std::string request(StoreHead::size, '\0');
  head.put(reinterpret_cast<unsigned char *>(request.data()));
  request += key;
  request += value;

  std::lock_guard<std::mutex> lock(mutex);
  if (!socket.isOpen())
    return Status(MOIRA_UNAVAILABLE, "the store has failed before");
  Deadline deadline = deadlineIn(wait + answerSeconds);
  Answer answer;
  auto talk = [&]() -> Status {
    MOIRA_RETURN_IF_ERROR(
        sendAll(socket, request.data(), request.size(), deadline));
    unsigned char bytes[storeAnswerHead];
    MOIRA_RETURN_IF_ERROR(receiveAll(socket, bytes, sizeof(bytes), deadline));
    uint64_t says = getNumber(bytes, 4), size = getNumber(bytes + 4, 4);
    if (says > 2 || size > storeMaxValue)
      return Status(MOIRA_DATA_LOSS, "expected the answer of a store");
    answer.says = static_cast<StoreSays>(says);
    answer.value.resize(size);
    return receiveAll(socket, answer.value.data(), size, deadline);
  };
  Status status = talk();
  if (!status.ok()) {
    socket.close(); // what comes next would answer another question
    return status;
  }
  return answer;
}

Status TcpStore::set(const std::string &key, const std::string &value) {
  Result<Answer> answer = ask(StoreAsk::Set, key, value, 0);
  return answer.ok() ? Status()
                     : answer.status().within(concat("store: set ", key));
}

Result<std::string> TcpStore::get(const std::string &key, double seconds) {
  Result<Answer> answer = ask(StoreAsk::Get, key, "", seconds);
  if (!answer.ok())
    return answer.status().within(concat("store: get ", key));
  if (answer->says != StoreSays::Ok)
    return Status(MOIRA_UNAVAILABLE,
                  concat("store: get ", key, ": no value in ", seconds,
                         " s; has a rank not started?"));
  return std::move(answer->value);
}

Result<int64_t> TcpStore::add(const std::string &key, int64_t value) {
  unsigned char bytes[8];
  putNumber(bytes, static_cast<uint64_t>(value), 8);
  Result<Answer> answer = ask(
      StoreAsk::Add, key, std::string(reinterpret_cast<char *>(bytes), 8), 0);
  if (!answer.ok())
    return answer.status().within(concat("store: add ", key));
  if (answer->value.size() != 8)
    return Status(MOIRA_DATA_LOSS, concat("store: add ", key, ": no number"));
  return static_cast<int64_t>(getNumber(
      reinterpret_cast<const unsigned char *>(answer->value.data()), 8));
}

Status TcpStore::barrier(const std::string &name, double seconds) {
  int round = 0;
  {
    std::lock_guard<std::mutex> lock(mutex);
    round = barriers[name]++;
  }
  const std::string key = concat("barrier/", name, "/", round);
  Result<int64_t> arrived = add(key, 1);
  if (!arrived.ok())
    return arrived.status();
  if (*arrived == size)
    return set(key + "/passed", "");
  Result<std::string> passed = get(key + "/passed", seconds);
  if (passed.ok())
    return Status();
  return Status(passed.status().code,
                concat("barrier '", name, "': not all of ", size,
                       " ranks came in ", seconds, " s"));
}
