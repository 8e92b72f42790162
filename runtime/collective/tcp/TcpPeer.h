// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One connection of a TCP transport: both directions of it, cut in frames.
//
// A message travels in pieces, each a head and its bytes. Between two pieces a
// rank may say that it has failed, or that it leaves. A piece that was begun is
// finished with zeros after a failure, since its memory is no longer ours.

#ifndef MOIRA_RUNTIME_COLLECTIVE_TCP_TCPPEER_H
#define MOIRA_RUNTIME_COLLECTIVE_TCP_TCPPEER_H

#include "bootstrap/Socket.h"
#include "bootstrap/Wire.h"
#include "collective/Failing.h"

#include <deque>

namespace moira::runtime {

enum class TcpFrame : uint32_t { Data = 1, Failure = 2, Bye = 3 };

struct TcpHead {
  static constexpr size_t size = 24;
  static constexpr uint32_t magic = 0x4d54434d; ///< "MCTM"
  TcpFrame frame = TcpFrame::Data;
  uint64_t message = 0; ///< bytes of the whole message
  uint64_t piece = 0;   ///< bytes that follow

  void put(unsigned char *at) const;
  /// False where the bytes are no head.
  bool get(const unsigned char *at);
};

class TcpPeer {
public:
  TcpPeer(int rank, Socket socket, int64_t piece)
      : rank(rank), socket(std::move(socket)), maxPiece(piece) {}

  void queueSend(const Message &message) { sends.push_back(message); }
  void queueReceive(const Message &message) { receives.push_back(message); }

  /// Moves what can be moved now. A failure names the rank that is to blame;
  /// one that the peer has told is in `heard`.
  std::optional<Failure> send();
  std::optional<Failure> receive();

  /// No message of the batch is outstanding.
  bool isDone() const { return sends.empty() && receives.empty(); }
  bool receivesMore() const { return !receives.empty(); }
  /// Nothing at all is left to be sent.
  bool isFlushed() const { return !isOpen() || !(inPiece || hasWork()); }
  bool isOpen() const { return socket.isOpen() && !ended; }
  /// What poll should look for; 0: nothing.
  short events() const;
  int descriptor() const { return socket.descriptor(); }

  /// Forgets the batch: its memory is no longer touched.
  void drop();
  /// The last words, after the piece that is under way.
  void tell(const FailureFrame &failure);
  void sayBye();
  void shutDown();

  const int rank;

private:
  bool hasWork() const { return !sends.empty() || !words.empty(); }
  void beginPiece();
  std::optional<Failure> broken(int error);
  std::optional<Failure> headArrived();
  void pieceArrived();
  bool readsPayload() const { return headBytes == TcpHead::size; }
  /// A head of data for which no receive is posted yet.
  bool holds() const {
    return readsPayload() && head.frame == TcpFrame::Data && !dropped &&
           receives.empty();
  }

  Socket socket;
  const int64_t maxPiece;
  bool ended = false;      ///< the peer's side is at its end
  bool sendBroken = false; ///< nobody reads what we send
  bool left = false;       ///< the peer said goodbye
  bool dropped = false;

  std::deque<Message> sends;
  int64_t sendOffset = 0; ///< in the first of them
  bool inPiece = false;   ///< a piece is under way
  unsigned char sendHead[TcpHead::size];
  size_t sendHeadDone = 0;
  int64_t pieceDone = 0, pieceBytes = 0;
  std::string words; ///< frames that are no data

  std::deque<Message> receives;
  int64_t receiveOffset = 0;
  unsigned char headBuffer[TcpHead::size];
  size_t headBytes = 0;
  TcpHead head;
  int64_t arrived = 0; ///< of the piece
  FailureFrame heard;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_TCP_TCPPEER_H
