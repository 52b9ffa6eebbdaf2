#include "rsocket/protocol/incoming.h"

#include <algorithm>

#include "base/check.h"

namespace ucm::rsocket {

bool Incoming::on_data(std::uint32_t length) {
  if (length > granted_ || lengths_.size() == queue_size_) return false;
  granted_ -= length;
  if (length == 0) {
    on_credit_used();
    return true;
  }
  available_ += length;
  lengths_.push(length);
  return true;
}

std::size_t Incoming::peek(Bytes buffer, MutableBytes out) const {
  UCM_CHECK(buffer.size() == size_);
  const std::size_t total = std::min<std::size_t>(out.size(), available_);
  const std::size_t to_end = std::min<std::size_t>(total, size_ - read_at_);
  const auto from = buffer.begin() + read_at_;
  std::copy_n(from, to_end, out.begin());
  std::copy_n(buffer.begin(), total - to_end, out.begin() + static_cast<std::ptrdiff_t>(to_end));
  return total;
}

std::size_t Incoming::read(Bytes buffer, MutableBytes out) {
  const std::size_t total = peek(buffer, out);
  consume(static_cast<std::uint32_t>(total));
  return total;
}

void Incoming::consume(std::uint32_t bytes) {
  available_ -= bytes;
  consumed_ += bytes;
  read_at_ = (read_at_ + bytes) % size_;
  while (bytes != 0) {
    std::uint32_t& length = lengths_.front();
    const std::uint32_t part = std::min(length, bytes);
    length -= part;
    bytes -= part;
    if (length != 0) return;
    lengths_.pop_front();
    ++sequence_;
  }
}

bool Incoming::grant_due() const {
  return consumed_ >= half() || static_cast<std::int16_t>(sequence_ - grant_at_) >= 0;
}

Incoming::Grant Incoming::take_grant() {
  Grant grant{.limit = static_cast<std::uint16_t>(sequence_ + queue_size_), .half = std::nullopt};
  grant_at_ = static_cast<std::uint16_t>(sequence_ + queue_size_ / 2);
  if (consumed_ < half()) return grant;
  grant.half = next_half_ * half();
  next_half_ = 1 - next_half_;
  consumed_ -= half();
  granted_ += half();
  return grant;
}

}  // namespace ucm::rsocket
