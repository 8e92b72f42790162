// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Batches over MPI_Isend, MPI_Irecv and MPI_Testsome. MpiLife.cpp has what
// happens before the first batch, after a failure and at the end.

#include "collective/mpi/MpiTransport.h"

#include "collective/SelfMessages.h"
#include "collective/mpi/MpiStatus.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

using namespace moira;
using namespace moira::runtime;

// MPI keeps messages of one tag in order, so all pieces share one.
static constexpr int pieceTag = 1;

/// What went wrong here is a failure of all ranks.
Status MpiTransport::blame(int rank, const Status &status) {
  if (failed.set({rank, status.code, status.message}))
    tellFailure();
  return failed.status();
}

Status MpiTransport::beginPiece(Stream &stream, bool send) {
  const Message &message = stream.messages[stream.message];
  int bytes =
      static_cast<int>(std::min(options.piece, message.bytes - stream.offset));
  char *at = static_cast<char *>(message.data) + stream.offset;
  MPI_Request request = MPI_REQUEST_NULL;
  int code = send ? MPI_Isend(at, bytes, MPI_BYTE, stream.peer, pieceTag, data,
                              &request)
                  : MPI_Irecv(at, bytes, MPI_BYTE, stream.peer, pieceTag, data,
                              &request);
  if (code != MPI_SUCCESS)
    return blame(self, mpiStatus(code, concat(send ? "MPI_Isend to rank "
                                                   : "MPI_Irecv from rank ",
                                              stream.peer)));
  requests.push_back(request);
  pieces.push_back({&stream, bytes, send});
  ++stream.inFlight;
  ++(send ? sendsInFlight : receivesInFlight);
  stream.offset += bytes;
  if (stream.offset == message.bytes) {
    ++stream.message;
    stream.offset = 0;
  }
  return Status();
}

// No limit makes the ranks of a collective wait for each other in a circle. Of
// all messages of its outstanding batch take one of the least distance:
// whatever its sender and its receiver had to begin before it is done, so both
// have begun it.
Status MpiTransport::fillWindows() {
  for (Stream &stream : receives)
    while (!stream.begun() && stream.inFlight < options.perPeer &&
           receivesInFlight < options.receives)
      MOIRA_RETURN_IF_ERROR(beginPiece(stream, false));
  for (Stream &stream : sends)
    while (!stream.begun() && stream.inFlight < options.perPeer &&
           sendsInFlight < options.sends)
      MOIRA_RETURN_IF_ERROR(beginPiece(stream, true));
  return Status();
}

/// One stream per rank, in the order of the distance to it: upwards for what is
/// sent, downwards for what is received. So while few messages are in flight
/// each rank sends to another one, whatever the order of the batch.
template <typename Streams>
static void addMessages(Streams &streams, const std::vector<Message> &messages,
                        int self, int size, bool send) {
  std::map<int, size_t> place;
  streams.clear();
  for (const Message &message : messages) {
    if (message.peer == self || message.bytes == 0)
      continue;
    auto [entry, isNew] = place.emplace(message.peer, streams.size());
    if (isNew) {
      streams.emplace_back();
      streams.back().peer = message.peer;
    }
    streams[entry->second].messages.push_back(message);
  }
  auto distance = [=](const auto &stream) {
    return ((send ? stream.peer - self : self - stream.peer) + size) % size;
  };
  std::sort(streams.begin(), streams.end(),
            [&](const auto &one, const auto &other) {
              return distance(one) < distance(other);
            });
}

Status MpiTransport::post(const Batch &batch) {
  std::lock_guard<std::mutex> lock(mutex);
  hearFailures();
  if (failed.isSet())
    return failed.status();
  if (!requests.empty())
    return Status(MOIRA_FAILED,
                  "expected the previous batch to have completed");
  MOIRA_RETURN_IF_ERROR(checkBatch(batch, size));
  MOIRA_RETURN_IF_ERROR(copySelfMessages(batch, self));
  addMessages(sends, batch.sends, self, size, true);
  addMessages(receives, batch.receives, self, size, false);
  waits = 0;
  return fillWindows();
}

Status MpiTransport::completePieces(int count, bool someFailed) {
  for (int i = 0; i < count; ++i) {
    const MPI_Status &status = statuses[i];
    Piece &piece = pieces[indices[i]];
    const int peer = piece.stream->peer;
    // Where the call has failed the statuses say which message did.
    if (someFailed && status.MPI_ERROR != MPI_SUCCESS)
      return blame(peer,
                   mpiStatus(status.MPI_ERROR, piece.sent ? "does not receive"
                                                          : "does not send"));
    if (!piece.sent) {
      int got = 0;
      MPI_Get_count(&status, MPI_BYTE, &got);
      if (got != piece.bytes)
        return blame(
            peer, Status(MOIRA_FAILED, concat("sent ", got, " bytes where ",
                                              piece.bytes, " were expected")));
    }
    --piece.stream->inFlight;
    --(piece.sent ? sendsInFlight : receivesInFlight);
    piece.stream = nullptr;
  }
  size_t kept = 0;
  for (size_t i = 0; i < pieces.size(); ++i)
    if (pieces[i].stream) {
      pieces[kept] = pieces[i];
      requests[kept++] = requests[i];
    }
  pieces.resize(kept);
  requests.resize(kept);
  return fillWindows();
}

Result<bool> MpiTransport::progress(bool inside) {
  hearFailures();
  if (failed.isSet()) {
    dropBatch();
    return failed.status();
  }
  if (requests.empty())
    return true;
  int count = 0, entries = static_cast<int>(requests.size());
  indices.resize(requests.size());
  statuses.resize(requests.size());
  // A simulator charges time for each request that MPI_Waitsome looks at.
  int code = MPI_SUCCESS;
  if (inside) {
    code =
        MPI_Waitany(entries, requests.data(), indices.data(), statuses.data());
    count = 1;
  } else {
    code = MPI_Testsome(entries, requests.data(), &count, indices.data(),
                        statuses.data());
  }
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS)
    return blame(self, mpiStatus(code, "MPI_Testsome"));
  if (count > 0) {
    waits = 0;
    MOIRA_RETURN_IF_ERROR(completePieces(count, code == MPI_ERR_IN_STATUS));
  }
  return requests.empty();
}

Result<bool> MpiTransport::test() {
  std::lock_guard<std::mutex> lock(mutex);
  if (options.waitInside && !failed.isSet())
    return requests.empty();
  return progress(false);
}

// A message between two cores takes some 10 us, so it is worth yielding before
// sleeping; a sleep of 20 us takes about 70 where the kernel's timers are lazy.
void MpiTransport::idle() {
  if (options.waitInside) {
    std::lock_guard<std::mutex> lock(mutex);
    // What fails here fails in the `test` that follows.
    if (!requests.empty() && !progress(true).ok())
      dropBatch();
    return;
  }
  if (++waits <= 50)
    return std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::microseconds(waits < 500 ? 20 : 50));
}

int MpiTransport::awaited() {
  std::lock_guard<std::mutex> lock(mutex);
  // What does not arrive says more than what is not fetched.
  for (const std::vector<Stream> *side : {&receives, &sends})
    for (const Stream &stream : *side)
      if (stream.inFlight > 0 || !stream.begun())
        return stream.peer;
  return -1;
}
