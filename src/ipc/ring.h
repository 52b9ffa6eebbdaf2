// A single-producer single-consumer ring of variable-length records in memory that two processes share.
//
// Neither side trusts the other. Each keeps its own position in private memory and only publishes it; what the other
// publishes is checked on every access; records are copied out before they are looked at. A violation makes the ring
// broken() for good: the owner closes the link. Loops are bounded by what was asked for.
//
// Waking: the consumer announces that it sleeps, and a push then says that the consumer wants to be woken (through an
// eventfd, say). A push into a full ring announces that the producer waits, and a pop then says so.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace ucm::ipc {

// The shared part in front of the bytes of the ring. Zero-filled memory is an empty ring.
struct RingHeader {
  alignas(64) std::atomic<std::uint64_t> tail;   // bytes ever put; written by the producer
  std::atomic<std::uint32_t> producer_waiting;   // set by the producer, taken by the consumer
  alignas(64) std::atomic<std::uint64_t> head;   // bytes ever taken; written by the consumer
  std::atomic<std::uint32_t> consumer_sleeping;  // set by the consumer, taken by the producer
};
static_assert(sizeof(RingHeader) == 128);
static_assert(offsetof(RingHeader, producer_waiting) == 8);
static_assert(offsetof(RingHeader, head) == 64 && offsetof(RingHeader, consumer_sleeping) == 72);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

// Every record starts with its length and begins on a multiple of eight bytes.
inline constexpr std::size_t kRecordHeaderSize = 8;
constexpr std::size_t record_footprint(std::size_t size) { return kRecordHeaderSize + ((size + 7) & ~std::size_t{7}); }

// Memory for a ring of `capacity` bytes; capacity is a power of two of at least 64.
constexpr std::size_t ring_memory_size(std::uint32_t capacity) { return sizeof(RingHeader) + capacity; }

class RingProducer {
 public:
  enum class Push {
    kPushed,
    kPushedWake,  // pushed, and the consumer sleeps: wake it. Said once per sleep.
    kFull,        // nothing pushed; the next pop that makes room will say that the producer waits
    kBroken,
  };

  RingProducer() = default;
  // `memory` holds ring_memory_size(capacity) bytes, is aligned to 64 and outlives this.
  RingProducer(void* memory, std::uint32_t capacity);

  // Goes on where another producer has stopped, at `tail` bytes ever put; publishes that. Broken when the consumer
  // cannot be where it says.
  RingProducer(void* memory, std::uint32_t capacity, std::uint64_t tail);
  // Where a producer of this ring has published to be.
  static std::uint64_t published_tail(const void* memory);

  // One record made of `head` and `body`; together they are not longer than the capacity allows.
  Push try_push(Bytes head, Bytes body = {});

  bool broken() const { return broken_; }

 private:
  bool has_room(std::size_t size);
  void put(std::uint64_t position, Bytes bytes);

  RingHeader* header_ = nullptr;
  std::uint8_t* data_ = nullptr;
  std::uint64_t capacity_ = 0;
  std::uint64_t tail_ = 0;
  std::uint64_t head_seen_ = 0;
  bool broken_ = false;
};

class RingConsumer {
 public:
  enum class Pop { kPopped, kEmpty, kBroken };

  RingConsumer() = default;
  RingConsumer(void* memory, std::uint32_t capacity);

  // Goes on where another consumer has stopped, at `head` bytes ever taken; publishes that.
  RingConsumer(void* memory, std::uint32_t capacity, std::uint64_t head);
  static std::uint64_t published_head(const void* memory);

  // Copies the next record into `out` and sets `size`. A record longer than `out` breaks the ring: the owner knows the
  // largest one that is allowed.
  Pop try_pop(MutableBytes out, std::size_t& size);
  // The same, but the producer does not learn of it before publish(): a consumer that starts again finds the record.
  Pop try_read(MutableBytes out, std::size_t& size);
  void publish();

  // True once after the producer met a full ring and room has been made since: wake it.
  bool take_producer_waiting();

  // Announces that this side is going to sleep. False, and nothing is announced, when a record waits or the ring is
  // broken.
  bool sleep_prepare();
  // False when a push has said meanwhile that this side is to be woken.
  bool sleep_done();

  bool broken() const { return broken_; }

 private:
  void get(std::uint64_t position, MutableBytes out) const;

  RingHeader* header_ = nullptr;
  const std::uint8_t* data_ = nullptr;
  std::uint64_t capacity_ = 0;
  std::uint64_t head_ = 0;
  bool broken_ = false;
};

}  // namespace ucm::ipc
