#include "rsocket/protocol/messages.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace ucm::rsocket {
namespace {

constexpr std::uint8_t kFlagBigEndian = 1;
constexpr std::uint8_t kFlagIoMap = 2;

constexpr std::uint32_t kScaleExact = 128;  // and the bit that marks a scaled size
constexpr unsigned kScaleShift = 8;

constexpr unsigned kTypeShift = 29;

std::uint8_t scale(std::uint16_t size) {
  return static_cast<std::uint8_t>(size <= kScaleExact ? size : kScaleExact | size >> kScaleShift);
}
std::uint16_t unscale(std::uint8_t scaled) {
  return static_cast<std::uint16_t>(scaled <= kScaleExact ? scaled : (scaled & ~kScaleExact) << kScaleShift);
}

template <class T>
T load(const std::uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

std::uint32_t swapped(std::uint32_t value) { return __builtin_bswap32(value); }
std::uint64_t swapped(std::uint64_t value) { return __builtin_bswap64(value); }

template <class T>
void store(std::uint8_t* to, T value, ByteOrder order) {
  if (order == ByteOrder::kSwapped) value = swapped(value);
  std::memcpy(to, &value, sizeof(value));
}

RemoteBuffer load_big_endian(const std::uint8_t* from) {
  return {.address = load_be64(from), .key = load_be32(from + 8), .length = load_be32(from + 12)};
}
void store_big_endian(std::uint8_t* to, const RemoteBuffer& buffer) {
  store_be64(to, buffer.address);
  store_be32(to + 8, buffer.key);
  store_be32(to + 12, buffer.length);
}

}  // namespace

RemoteBuffer load_buffer_entry(const std::uint8_t* from) {
  return {.address = load<std::uint64_t>(from),
          .key = load<std::uint32_t>(from + 8),
          .length = load<std::uint32_t>(from + 12)};
}

void store_buffer_entry(std::uint8_t* to, const RemoteBuffer& buffer, ByteOrder order) {
  store(to, buffer.address, order);
  store(to + 8, buffer.key, order);
  store(to + 12, buffer.length, order);
}

IoMapEntry load_iomap_entry(const std::uint8_t* from) {
  return {.offset = load<std::uint64_t>(from), .buffer = load_buffer_entry(from + 8)};
}

void store_iomap_entry(std::uint8_t* to, const IoMapEntry& entry, ByteOrder order) {
  store(to, entry.offset, order);
  store_buffer_entry(to + 8, entry.buffer, order);
}

std::uint16_t rounded_iomap_size(int wanted) {
  return unscale(scale(static_cast<std::uint16_t>(std::clamp(wanted, 0, 0x7FFF))));
}

std::optional<ConnectionData> ConnectionData::parse(Bytes bytes) {
  if (bytes.size() < kSize || bytes[0] != kVersion) return std::nullopt;
  ConnectionData data;
  data.big_endian = (bytes[1] & kFlagBigEndian) != 0;
  data.has_iomap = (bytes[1] & kFlagIoMap) != 0;
  data.credits = load_be16(&bytes[2]);
  data.iomap_size = data.has_iomap ? unscale(bytes[7]) : std::uint16_t{0};
  data.target_list = load_big_endian(&bytes[8]);
  data.data = load_big_endian(&bytes[24]);
  if (data.target_list.length == 0) return std::nullopt;
  return data;
}

std::array<std::uint8_t, ConnectionData::kSize> ConnectionData::emit() const {
  std::array<std::uint8_t, kSize> bytes{};
  bytes[0] = kVersion;
  bytes[1] = static_cast<std::uint8_t>((big_endian ? kFlagBigEndian : 0) | (has_iomap ? kFlagIoMap : 0));
  store_be16(&bytes[2], credits);
  bytes[7] = scale(iomap_size);
  store_big_endian(&bytes[8], target_list);
  store_big_endian(&bytes[24], data);
  return bytes;
}

std::optional<Message> Message::parse(std::uint32_t immediate) {
  const auto type = static_cast<MessageType>(immediate >> kTypeShift);
  switch (type) {
    case MessageType::kData:
    case MessageType::kCredits:
    case MessageType::kIoMap:
    case MessageType::kControl:
      return Message{type, immediate & kValueMax};
  }
  return std::nullopt;
}

std::uint32_t Message::emit() const { return static_cast<std::uint32_t>(type) << kTypeShift | (value & kValueMax); }

}  // namespace ucm::rsocket
