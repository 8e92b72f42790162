// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "collective/tcp/TcpPeer.h"

#include <algorithm>
#include <cerrno>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

using namespace moira;
using namespace moira::runtime;

/// What stands in for memory that is no longer ours: never read from after a
/// write, so that threads may share it.
static constexpr size_t scratchBytes = 64 * 1024;
static const char zeros[scratchBytes] = {};

void TcpHead::put(unsigned char *at) const {
  putNumber(at, magic, 4);
  putNumber(at + 4, static_cast<uint32_t>(frame), 4);
  putNumber(at + 8, message, 8);
  putNumber(at + 16, piece, 8);
}

bool TcpHead::get(const unsigned char *at) {
  uint64_t kind = getNumber(at + 4, 4);
  message = getNumber(at + 8, 8);
  piece = getNumber(at + 16, 8);
  if (getNumber(at, 4) != magic || kind < 1 || kind > 3)
    return false;
  frame = static_cast<TcpFrame>(kind);
  switch (frame) {
  case TcpFrame::Data:
    return message <= static_cast<uint64_t>(INT64_MAX) && piece > 0 &&
           piece <= message;
  case TcpFrame::Failure:
    return piece == sizeof(FailureFrame);
  case TcpFrame::Bye:
    return piece == 0;
  }
  return false;
}

short TcpPeer::events() const {
  if (!isOpen())
    return 0;
  short events = holds() ? 0 : POLLIN;
  if (!sendBroken && (inPiece || hasWork()))
    events = static_cast<short>(events | POLLOUT);
  return events;
}

void TcpPeer::beginPiece() {
  const Message &message = sends.front();
  TcpHead piece;
  piece.message = static_cast<uint64_t>(message.bytes);
  pieceBytes = std::min(maxPiece, message.bytes - sendOffset);
  piece.piece = static_cast<uint64_t>(pieceBytes);
  piece.put(sendHead);
  sendHeadDone = 0;
  pieceDone = 0;
  inPiece = true;
}

// Who does not read may still have told why: that is what `receive` reports.
std::optional<Failure> TcpPeer::send() {
  while (isOpen() && !sendBroken && (inPiece || hasWork())) {
    if (!inPiece && !sends.empty())
      beginPiece();
    iovec parts[2];
    size_t count = 0;
    if (inPiece) {
      if (sendHeadDone < TcpHead::size)
        parts[count++] = {sendHead + sendHeadDone,
                          TcpHead::size - sendHeadDone};
      size_t rest = static_cast<size_t>(pieceBytes - pieceDone);
      if (dropped)
        parts[count++] = {const_cast<char *>(zeros),
                          std::min(rest, scratchBytes)};
      else
        parts[count++] = {static_cast<char *>(sends.front().data) + sendOffset +
                              pieceDone,
                          rest};
    } else {
      parts[count++] = {words.data(), words.size()};
    }
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    ssize_t sent =
        sendmsg(socket.descriptor(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR)
        continue;
      sendBroken = errno != EAGAIN && errno != EWOULDBLOCK;
      return std::nullopt;
    }
    if (!inPiece) {
      words.erase(0, static_cast<size_t>(sent));
      continue;
    }
    size_t ofHead =
        std::min(static_cast<size_t>(sent), TcpHead::size - sendHeadDone);
    sendHeadDone += ofHead;
    pieceDone += sent - static_cast<ssize_t>(ofHead);
    if (sendHeadDone < TcpHead::size || pieceDone < pieceBytes)
      continue;
    inPiece = false;
    if (dropped)
      continue;
    sendOffset += pieceBytes;
    if (sendOffset == sends.front().bytes) {
      sends.pop_front();
      sendOffset = 0;
    }
  }
  return std::nullopt;
}

std::optional<Failure> TcpPeer::broken(int error) {
  ended = true;
  if (left && isDone())
    return std::nullopt;
  return Failure{rank, MOIRA_FAILED,
                 left ? "has left before the last message"
                      : concat("has ended or lost its connection",
                               error ? concat(" (", std::strerror(error), ")")
                                     : std::string())};
}

/// Whether what has been announced is what is expected here.
std::optional<Failure> TcpPeer::headArrived() {
  if (!head.get(headBuffer))
    return Failure{rank, MOIRA_DATA_LOSS, "sent bytes that are no message"};
  arrived = 0;
  return std::nullopt;
}

void TcpPeer::pieceArrived() {
  headBytes = 0;
  if (head.frame == TcpFrame::Bye)
    left = true;
  if (head.frame != TcpFrame::Data || dropped)
    return;
  receiveOffset += static_cast<int64_t>(head.piece);
  if (receiveOffset == receives.front().bytes) {
    receives.pop_front();
    receiveOffset = 0;
  }
}

std::optional<Failure> TcpPeer::receive() {
  char scratch[scratchBytes];
  while (isOpen() && !holds()) {
    void *to = headBuffer + headBytes;
    size_t room = TcpHead::size - headBytes;
    if (readsPayload()) {
      room = static_cast<size_t>(head.piece) - static_cast<size_t>(arrived);
      if (head.frame == TcpFrame::Failure) {
        to = reinterpret_cast<char *>(&heard) + arrived;
      } else if (head.frame == TcpFrame::Data && !dropped) {
        const Message &message = receives.front();
        if (head.message != static_cast<uint64_t>(message.bytes) ||
            receiveOffset + static_cast<int64_t>(head.piece) > message.bytes)
          return Failure{rank, MOIRA_FAILED,
                         concat("sent a message of ", head.message,
                                " bytes where ", message.bytes,
                                " were expected")};
        to = static_cast<char *>(message.data) + receiveOffset + arrived;
      } else {
        to = scratch;
        room = std::min(room, scratchBytes);
      }
    }
    if (room > 0) {
      ssize_t got = recv(socket.descriptor(), to, room, MSG_DONTWAIT);
      if (got < 0 && errno == EINTR)
        continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return std::nullopt;
      if (got <= 0)
        return broken(got < 0 ? errno : 0);
      if (!readsPayload()) {
        headBytes += static_cast<size_t>(got);
        if (readsPayload())
          if (std::optional<Failure> failure = headArrived())
            return failure;
        continue;
      }
      arrived += got;
    }
    if (arrived < static_cast<int64_t>(head.piece))
      continue;
    pieceArrived();
    if (head.frame == TcpFrame::Failure)
      return heard.failure();
  }
  return std::nullopt;
}

void TcpPeer::drop() {
  // A piece that has begun goes on, with other bytes.
  dropped = true;
  sends.clear();
  receives.clear();
}

static std::string frame(TcpFrame kind, const void *data, size_t bytes) {
  TcpHead head;
  head.frame = kind;
  head.piece = bytes;
  std::string text(TcpHead::size, '\0');
  head.put(reinterpret_cast<unsigned char *>(text.data()));
  return text.append(static_cast<const char *>(data), bytes);
}

void TcpPeer::tell(const FailureFrame &failure) {
  words += frame(TcpFrame::Failure, &failure, sizeof(failure));
}

void TcpPeer::sayBye() { words += frame(TcpFrame::Bye, "", 0); }

void TcpPeer::shutDown() {
  if (socket.isOpen())
    shutdown(socket.descriptor(), SHUT_WR);
}
