#include "rsocket/protocol/stream.h"

#include <algorithm>
#include <bit>
#include <cerrno>

#include "base/check.h"

namespace ucm::rsocket {
namespace {

constexpr bool kBigEndianHost = std::endian::native == std::endian::big;

std::uint64_t address_of(const std::uint8_t* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

}  // namespace

StreamSizes StreamSizes::rounded() const {
  const auto buffer = [](std::uint32_t size) { return std::clamp(size, kBufferSizeMin, kBufferSizeMax) & ~1u; };
  const auto queue = [](std::uint16_t size) { return std::clamp(size, kQueueSizeMin, kQueueSizeMax); };
  return {.send_buffer = buffer(send_buffer),
          .receive_buffer = buffer(receive_buffer),
          .send_queue = queue(send_queue),
          .receive_queue = queue(receive_queue),
          .iomap = rounded_iomap_size(iomap)};
}

std::size_t Stream::remote_block_size(const StreamSizes& sizes) {
  return kTargetEntries * kBufferEntrySize + sizes.iomap * kIoMapEntrySize + sizes.receive_buffer;
}

std::size_t Stream::local_block_size(const StreamSizes& sizes) {
  return sizes.send_buffer + kControlSlots * kBufferEntrySize;
}

Stream::Stream(const StreamSizes& sizes, MutableBytes remote_block, MutableBytes local_block, std::uint32_t key)
    : sizes_(sizes),
      remote_block_(remote_block),
      local_block_(local_block),
      key_(key),
      outgoing_(sizes.send_buffer, sizes.send_queue),
      incoming_(sizes.receive_buffer, sizes.receive_queue),
      mappings_(sizes.iomap) {
  UCM_CHECK(remote_block.size() == remote_block_size(sizes) && local_block.size() == local_block_size(sizes));
}

MutableBytes Stream::iomap_entries() const {
  return remote_block_.subspan(kTargetEntries * kBufferEntrySize, mappings_.size() * kIoMapEntrySize);
}

ConnectionData Stream::connection_data() const {
  return {.big_endian = kBigEndianHost,
          .has_iomap = true,
          .credits = sizes_.receive_queue,
          .iomap_size = sizes_.iomap,
          .target_list = {address_of(target_list().data()), key_, kTargetEntries},
          .data = {address_of(receive_buffer().data()), key_, incoming_.half()}};
}

void Stream::connected(const ConnectionData& peer) {
  connected_ = sending_ = receiving_ = true;
  order_ = peer.big_endian == kBigEndianHost ? ByteOrder::kOwn : ByteOrder::kSwapped;
  peer_list_ = peer.target_list;
  peer_entry_ = 1 % peer_list_.length;
  // The map follows the list, under the same key.
  peer_iomap_ = {.address = peer_list_.address + kBufferEntrySize * std::uint64_t{peer_list_.length},
                 .key = peer_list_.key,
                 .length = peer.iomap_size};
  maps_.resize(peer_iomap_.length);
  outgoing_.connected(peer);
}

// --- What leaves ----------------------------------------------------------------------------------------------------

std::optional<Stream::Write> Stream::poll_write() {
  if (connected_) tell_maps();
  if (!writes_.empty()) {
    Write write = writes_.front();
    writes_.pop_front();
    return write;
  }
  return poll_control();
}

std::optional<Stream::Write> Stream::poll_control() {
  if (!connected_ || controls_free_ == 0) return std::nullopt;
  if (incoming_.grant_due()) {
    --controls_free_;
    return grant();
  }
  if (controls_.empty()) return std::nullopt;
  const Control control = controls_.front();
  controls_.pop_front();
  --controls_free_;
  Write write;
  write.kind = control == Control::kDisconnect ? Write::Kind::kDisconnect : Write::Kind::kControl;
  // That the peer's QP answers is all that a keep-alive asks.
  if (control != Control::kKeepAlive) {
    write.immediate = Message{MessageType::kControl, static_cast<std::uint32_t>(control)}.emit();
  }
  return write;
}

Stream::Write Stream::grant() {
  const Incoming::Grant grant = incoming_.take_grant();
  Write write;
  write.kind = Write::Kind::kControl;
  write.immediate = Message{MessageType::kCredits, grant.limit}.emit();
  if (!grant.half) return write;
  write.offset = static_cast<std::uint32_t>(sizes_.send_buffer + next_control_slot_ * kBufferEntrySize);
  write.length = kBufferEntrySize;
  write.remote_address = peer_list_.address + peer_entry_ * kBufferEntrySize;
  write.remote_key = peer_list_.key;
  store_buffer_entry(&local_block_[write.offset],
                     {.address = address_of(&receive_buffer()[*grant.half]), .key = key_, .length = incoming_.half()},
                     order_);
  next_control_slot_ = static_cast<std::uint16_t>((next_control_slot_ + 1) % kControlSlots);
  peer_entry_ = (peer_entry_ + 1) % peer_list_.length;
  return write;
}

void Stream::tell_maps() {
  while (!maps_to_tell_.empty()) {
    const auto piece = outgoing_.take_entry();
    if (!piece) return;
    const Map& map = maps_to_tell_.front();
    store_iomap_entry(&local_block_[piece->offset], map.entry, order_);
    writes_.push({.kind = Write::Kind::kRequest,
                  .offset = piece->offset,
                  .length = piece->length,
                  .remote_address = peer_iomap_.address + map.index * kIoMapEntrySize,
                  .remote_key = peer_iomap_.key,
                  .immediate = Message{MessageType::kIoMap, map.index}.emit(),
                  .held = piece->held});
    maps_to_tell_.pop_front();
  }
}

std::size_t Stream::send(Bytes data) {
  if (!may_send() || data.empty()) return 0;
  const auto wanted = static_cast<std::uint32_t>(std::min<std::size_t>(data.size(), kTransferMax));
  const auto [piece, to] = outgoing_.take_data(wanted);
  std::copy_n(data.begin(), piece.length, send_buffer().begin() + piece.offset);
  writes_.push({.kind = Write::Kind::kRequest,
                .offset = piece.offset,
                .length = piece.length,
                .remote_address = to.address,
                .remote_key = to.key,
                .immediate = Message{MessageType::kData, piece.length}.emit(),
                .held = piece.held});
  return piece.length;
}

std::size_t Stream::write_mapped(std::uint64_t offset, Bytes data) {
  const IoMapEntry* const mapping = find_mapping(offset);
  if (mapping == nullptr || !may_write() || data.empty()) return 0;
  const std::uint64_t into = offset - mapping->offset;
  const std::uint64_t wanted = std::min<std::uint64_t>({data.size(), mapping->buffer.length - into, kTransferMax});
  const Piece piece = outgoing_.take_direct(static_cast<std::uint32_t>(wanted));
  std::copy_n(data.begin(), piece.length, send_buffer().begin() + piece.offset);
  writes_.push({.kind = Write::Kind::kRequest,
                .offset = piece.offset,
                .length = piece.length,
                .remote_address = mapping->buffer.address + into,
                .remote_key = mapping->buffer.key,
                .immediate = std::nullopt,
                .held = piece.held});
  return piece.length;
}

void Stream::on_written(Write::Kind kind, std::uint32_t held) {
  if (kind == Write::Kind::kRequest) return outgoing_.finished(held);
  ++controls_free_;
  if (kind == Write::Kind::kDisconnect) on_end(0);
}

bool Stream::idle() const {
  return outgoing_.idle() && writes_.empty() && controls_.empty() && controls_free_ == kControlSlots;
}

void Stream::queue_control(Control control) { controls_.push(control); }

void Stream::send_keepalive() {
  if (connected_ && controls_.empty()) queue_control(Control::kKeepAlive);
}

void Stream::shut_down_sending() {
  if (!sending_) return;
  sending_ = false;
  queue_control(receiving_ ? Control::kShutdown : Control::kDisconnect);
}

void Stream::shut_down_receiving() {
  if (!receiving_) return;
  receiving_ = false;
  // The peer is told when this side has nothing to send either.
  if (!sending_) queue_control(Control::kDisconnect);
}

// --- What arrives ---------------------------------------------------------------------------------------------------

void Stream::on_message(std::uint32_t immediate, std::uint32_t written) {
  const auto message = Message::parse(immediate);
  if (!connected_) return;
  if (!message) return on_end(EPROTO);
  switch (message->type) {
    case MessageType::kData:
      if (!incoming_.on_data(message->value)) on_end(EPROTO);
      return;
    case MessageType::kCredits:
      outgoing_.on_credits(static_cast<std::uint16_t>(message->value));
      // Only an entry that came with its message is whole: the peer may be writing the next one.
      if (written >= kBufferEntrySize) outgoing_.on_entry(target_list().data());
      return;
    case MessageType::kIoMap:
      if (message->value >= mappings_.size()) return on_end(EPROTO);
      incoming_.on_credit_used();
      mappings_[message->value] = load_iomap_entry(&iomap_entries()[message->value * kIoMapEntrySize]);
      return;
    case MessageType::kControl:
      if (message->value == static_cast<std::uint32_t>(Control::kDisconnect)) return on_end(0);
      if (message->value != static_cast<std::uint32_t>(Control::kShutdown)) return;
      receiving_ = false;
      if (!sending_) on_end(0);
      return;
  }
}

void Stream::on_end(int error) {
  if (!connected_) return;
  connected_ = sending_ = receiving_ = false;
  error_ = error;
  writes_.clear();
  controls_.clear();
  maps_to_tell_.clear();
}

std::size_t Stream::receive(MutableBytes out, ReceiveMode mode) {
  return mode == ReceiveMode::kPeek ? incoming_.peek(receive_buffer(), out) : incoming_.read(receive_buffer(), out);
}

// --- Mapped memory --------------------------------------------------------------------------------------------------

std::optional<std::uint16_t> Stream::map(std::uint64_t offset, const RemoteBuffer& buffer) {
  const auto unused = std::find(maps_.begin(), maps_.end(), false);
  if (!connected_ || unused == maps_.end()) return std::nullopt;
  *unused = true;
  const auto index = static_cast<std::uint16_t>(unused - maps_.begin());
  maps_to_tell_.push_back({index, {offset, buffer}});
  return index;
}

void Stream::unmap(std::uint16_t index) {
  maps_[index] = false;
  std::erase_if(maps_to_tell_, [&](const Map& map) { return map.index == index; });
}

const IoMapEntry* Stream::find_mapping(std::uint64_t offset) const {
  const auto found = std::find_if(mappings_.begin(), mappings_.end(), [&](const IoMapEntry& entry) {
    return offset >= entry.offset && offset - entry.offset < entry.buffer.length;
  });
  return found != mappings_.end() ? &*found : nullptr;
}

}  // namespace ucm::rsocket
