// The receiving half of a stream: which bytes of the receive buffer hold data, and when the peer is to be told of more
// room and more credits. Pure.
//
// The buffer has two halves that the peer fills in turn, each from its beginning to its end. A half is given to it
// again when as many bytes have been consumed.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/ring_queue.h"

namespace ucm::rsocket {

class Incoming {
 public:
  // `buffer_size` is even.
  Incoming(std::uint32_t buffer_size, std::uint16_t queue_size)
      : size_(buffer_size), queue_size_(queue_size), granted_(half()), consumed_(half()), grant_at_(queue_size / 2) {}

  std::uint32_t half() const { return size_ / 2; }
  bool empty() const { return available_ == 0; }

  // The peer has written `length` bytes. False when it had no leave to.
  bool on_data(std::uint32_t length);
  // A message without data has used a credit.
  void on_credit_used() { ++sequence_; }

  // Copies what there is to `out`, from the `buffer`; returns how much.
  std::size_t peek(Bytes buffer, MutableBytes out) const;
  std::size_t read(Bytes buffer, MutableBytes out);

  struct Grant {
    std::uint16_t limit;                // the sequence number that the peer may send up to
    std::optional<std::uint32_t> half;  // offset of a half that may be filled
  };
  bool grant_due() const;
  Grant take_grant();

 private:
  void consume(std::uint32_t bytes);

  std::uint32_t size_;
  std::uint16_t queue_size_;
  RingQueue<std::uint32_t> lengths_;  // of messages, as far as they have not been read
  std::uint32_t available_ = 0;
  std::uint32_t read_at_ = 0;
  std::uint32_t granted_;   // bytes that the peer may still write
  std::uint32_t consumed_;  // bytes that have not been given to the peer again
  std::uint32_t next_half_ = 1;
  std::uint16_t sequence_ = 0;  // messages consumed
  std::uint16_t grant_at_;      // by now the peer must hear of credits
};

}  // namespace ucm::rsocket
