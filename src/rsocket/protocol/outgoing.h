// The sending half of a stream: what may be written where in the peer's memory, and which parts of the own send buffer
// are in use. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "rsocket/protocol/limits.h"
#include "rsocket/protocol/messages.h"

namespace ucm::rsocket {

// A piece of the send buffer. `held` counts the bytes that come free with it: a piece that does not fit the end of the
// buffer takes the rest of it along.
struct Piece {
  std::uint32_t offset = 0;
  std::uint32_t length = 0;
  std::uint32_t held = 0;
};

class SendBuffer {
 public:
  explicit SendBuffer(std::uint32_t size) : size_(size) {}

  std::uint32_t free_bytes() const { return size_ - used_; }
  bool idle() const { return used_ == 0; }
  // At most `wanted` contiguous bytes, as many as there are. With `whole`, all of them or none.
  Piece take(std::uint32_t wanted);
  std::optional<Piece> take_whole(std::uint32_t wanted);
  // Pieces come back in the order they were taken in.
  void release(std::uint32_t held);

 private:
  std::uint32_t size_;
  std::uint32_t used_ = 0;
  std::uint32_t next_ = 0;
};

class Outgoing {
 public:
  Outgoing(std::uint32_t buffer_size, std::uint16_t queue_size)
      : buffer_(buffer_size), requests_free_(queue_size - kControlSlots), requests_(requests_free_) {}

  void connected(const ConnectionData& peer);

  // A request with a message of its own to the peer; without, the write of data to a mapped buffer.
  bool may_send() const { return may_write() && sequence_ != limit_; }
  bool may_write() const { return requests_free_ != 0 && buffer_.free_bytes() >= kSendLowWater; }
  // What is left of the receive buffer that is being filled; 0: none.
  std::uint32_t room() const { return count_ != 0 ? buffers_[0].length : 0; }

  // Up to `wanted` bytes of data: a piece to fill and the place to write it to. may_send(), room() != 0.
  struct Data {
    Piece piece;
    RemoteBuffer to;
  };
  Data take_data(std::uint32_t wanted);
  // A piece for a write without a message. may_write().
  Piece take_direct(std::uint32_t wanted);
  // A piece for an entry of the peer's I/O map; none when there is no room now.
  std::optional<Piece> take_entry();
  void finished(std::uint32_t held);

  // The peer has told of more credits.
  void on_credits(std::uint16_t limit) { limit_ = limit; }
  // It has written the next entry of the target list, which begins at `entries`.
  void on_entry(const std::uint8_t* entries);

  bool idle() const { return requests_free_ == requests_ && buffer_.idle(); }

 private:
  SendBuffer buffer_;
  std::uint16_t requests_free_;
  std::uint16_t requests_;
  std::uint16_t sequence_ = 0;
  std::uint16_t limit_ = 0;
  std::array<RemoteBuffer, kTargetEntries> buffers_;  // the first `count_`
  std::uint32_t count_ = 0;
  std::uint32_t next_entry_ = 1;  // entry 0 came with the connection
};

}  // namespace ucm::rsocket
