#include "rsocket/protocol/outgoing.h"

#include <algorithm>

#include "base/check.h"

namespace ucm::rsocket {

Piece SendBuffer::take(std::uint32_t wanted) {
  const std::uint32_t length = std::min({wanted, free_bytes(), size_ - next_});
  const Piece piece{.offset = next_, .length = length, .held = length};
  used_ += length;
  next_ = (next_ + length) % size_;
  return piece;
}

std::optional<Piece> SendBuffer::take_whole(std::uint32_t wanted) {
  const std::uint32_t skipped = size_ - next_ < wanted ? size_ - next_ : 0;
  if (free_bytes() < skipped + wanted) return std::nullopt;
  const std::uint32_t offset = skipped != 0 ? 0 : next_;
  used_ += skipped + wanted;
  next_ = (offset + wanted) % size_;
  return Piece{.offset = offset, .length = wanted, .held = skipped + wanted};
}

void SendBuffer::release(std::uint32_t held) {
  UCM_CHECK(held <= used_);
  used_ -= held;
}

void Outgoing::connected(const ConnectionData& peer) {
  limit_ = peer.credits;
  if (peer.data.length == 0) return;
  buffers_[0] = peer.data;
  count_ = 1;
}

Outgoing::Data Outgoing::take_data(std::uint32_t wanted) {
  UCM_CHECK(may_send() && room() != 0);
  RemoteBuffer& current = buffers_[0];
  const Piece piece = buffer_.take(std::min({wanted, current.length, kTransferMax}));
  const RemoteBuffer to{.address = current.address, .key = current.key, .length = piece.length};
  current.address += piece.length;
  current.length -= piece.length;
  if (current.length == 0) {
    buffers_[0] = buffers_[1];
    --count_;
  }
  ++sequence_;
  --requests_free_;
  return {piece, to};
}

Piece Outgoing::take_direct(std::uint32_t wanted) {
  UCM_CHECK(may_write());
  --requests_free_;
  return buffer_.take(std::min(wanted, kTransferMax));
}

std::optional<Piece> Outgoing::take_entry() {
  if (!may_send()) return std::nullopt;
  const auto piece = buffer_.take_whole(kIoMapEntrySize);
  if (piece) {
    ++sequence_;
    --requests_free_;
  }
  return piece;
}

void Outgoing::finished(std::uint32_t held) {
  UCM_CHECK(requests_free_ < requests_);
  ++requests_free_;
  buffer_.release(held);
}

void Outgoing::on_entry(const std::uint8_t* entries) {
  // More than were free, or of nothing: not to be used.
  const RemoteBuffer buffer = load_buffer_entry(entries + next_entry_ * kBufferEntrySize);
  if (count_ == kTargetEntries || buffer.length == 0) return;
  buffers_[count_++] = buffer;
  next_entry_ = (next_entry_ + 1) % kTargetEntries;
}

}  // namespace ucm::rsocket
