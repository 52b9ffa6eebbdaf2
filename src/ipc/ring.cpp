#include "ipc/ring.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace ucm::ipc {
namespace {

RingHeader* checked_header(void* memory, std::uint32_t capacity) {
  UCM_CHECK(memory != nullptr && reinterpret_cast<std::uintptr_t>(memory) % alignof(RingHeader) == 0);
  UCM_CHECK(std::has_single_bit(capacity) && capacity >= 64);
  return static_cast<RingHeader*>(memory);
}

std::uint8_t* data_of(void* memory) { return static_cast<std::uint8_t*>(memory) + sizeof(RingHeader); }

}  // namespace

RingProducer::RingProducer(void* memory, std::uint32_t capacity)
    : header_(checked_header(memory, capacity)), data_(data_of(memory)), capacity_(capacity) {}

RingProducer::RingProducer(void* memory, std::uint32_t capacity, std::uint64_t tail) : RingProducer(memory, capacity) {
  tail_ = tail;
  head_seen_ = header_->head.load();
  const std::uint64_t unread = tail_ - head_seen_;
  broken_ = unread > capacity_ || unread % kRecordHeaderSize != 0;
  if (!broken_) header_->tail.store(tail_);
}

std::uint64_t RingProducer::published_tail(const void* memory) {
  return static_cast<const RingHeader*>(memory)->tail.load();
}

bool RingProducer::has_room(std::size_t size) {
  if (capacity_ - (tail_ - head_seen_) >= size) return true;
  // Sequentially consistent with the consumer's store of head and load of producer_waiting: one of the two sees the
  // other's store, so that a wake-up is never lost.
  const std::uint64_t head = header_->head.load();
  if (head - head_seen_ > tail_ - head_seen_ || head % kRecordHeaderSize != 0) {
    broken_ = true;
    return false;
  }
  head_seen_ = head;
  return capacity_ - (tail_ - head_seen_) >= size;
}

RingProducer::Push RingProducer::try_push(Bytes head, Bytes body) {
  const std::size_t size = head.size() + body.size();
  const std::size_t footprint = record_footprint(size);
  UCM_CHECK(footprint <= capacity_);
  if (broken_) return Push::kBroken;
  if (!has_room(footprint)) {
    if (broken_) return Push::kBroken;
    header_->producer_waiting.store(1);
    if (!has_room(footprint)) return broken_ ? Push::kBroken : Push::kFull;
    header_->producer_waiting.store(0);
  }
  std::array<std::uint8_t, kRecordHeaderSize> length{};
  const std::uint64_t length_value = size;
  std::memcpy(length.data(), &length_value, sizeof length_value);
  put(tail_, length);
  put(tail_ + kRecordHeaderSize, head);
  put(tail_ + kRecordHeaderSize + head.size(), body);
  tail_ += footprint;
  header_->tail.store(tail_);
  const bool wake = header_->consumer_sleeping.load() != 0 && header_->consumer_sleeping.exchange(0) != 0;
  return wake ? Push::kPushedWake : Push::kPushed;
}

void RingProducer::put(std::uint64_t position, Bytes bytes) {
  if (bytes.empty()) return;
  const std::size_t offset = position & (capacity_ - 1);
  const std::size_t before_end = std::min<std::size_t>(bytes.size(), capacity_ - offset);
  std::memcpy(data_ + offset, bytes.data(), before_end);
  if (before_end < bytes.size()) std::memcpy(data_, bytes.data() + before_end, bytes.size() - before_end);
}

RingConsumer::RingConsumer(void* memory, std::uint32_t capacity)
    : header_(checked_header(memory, capacity)), data_(data_of(memory)), capacity_(capacity) {}

RingConsumer::RingConsumer(void* memory, std::uint32_t capacity, std::uint64_t head) : RingConsumer(memory, capacity) {
  head_ = head;
  header_->head.store(head_);
}

std::uint64_t RingConsumer::published_head(const void* memory) {
  return static_cast<const RingHeader*>(memory)->head.load();
}

RingConsumer::Pop RingConsumer::try_pop(MutableBytes out, std::size_t& size) {
  const Pop popped = try_read(out, size);
  if (popped == Pop::kPopped) publish();
  return popped;
}

void RingConsumer::publish() { header_->head.store(head_); }

RingConsumer::Pop RingConsumer::try_read(MutableBytes out, std::size_t& size) {
  if (broken_) return Pop::kBroken;
  const std::uint64_t filled = header_->tail.load() - head_;
  if (filled == 0) return Pop::kEmpty;
  if (filled > capacity_ || filled % kRecordHeaderSize != 0) {
    broken_ = true;
    return Pop::kBroken;
  }
  std::array<std::uint8_t, kRecordHeaderSize> header{};
  get(head_, header);
  std::uint64_t length = 0;
  std::memcpy(&length, header.data(), sizeof length);
  // The first comparison keeps record_footprint() from overflowing.
  if (length > out.size() || record_footprint(length) > filled) {
    broken_ = true;
    return Pop::kBroken;
  }
  get(head_ + kRecordHeaderSize, out.first(length));
  size = length;
  head_ += record_footprint(length);
  return Pop::kPopped;
}

bool RingConsumer::take_producer_waiting() {
  return header_->producer_waiting.load() != 0 && header_->producer_waiting.exchange(0) != 0;
}

bool RingConsumer::sleep_prepare() {
  if (broken_) return false;
  header_->consumer_sleeping.store(1);
  if (header_->tail.load() == head_) return true;
  header_->consumer_sleeping.store(0);
  return false;
}

bool RingConsumer::sleep_done() { return header_->consumer_sleeping.exchange(0) != 0; }

void RingConsumer::get(std::uint64_t position, MutableBytes out) const {
  if (out.empty()) return;
  const std::size_t offset = position & (capacity_ - 1);
  const std::size_t before_end = std::min<std::size_t>(out.size(), capacity_ - offset);
  std::memcpy(out.data(), data_ + offset, before_end);
  if (before_end < out.size()) std::memcpy(out.data() + before_end, data_, out.size() - before_end);
}

}  // namespace ucm::ipc
