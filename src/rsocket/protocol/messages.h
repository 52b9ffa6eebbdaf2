// What two rsockets tell each other, as bytes: the private data of a connection's REQ and REP, the 32-bit messages that
// travel as immediate data, and the entries that each writes into the other's memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"

namespace ucm::rsocket {

// Memory of the peer that may be written.
struct RemoteBuffer {
  std::uint64_t address = 0;
  std::uint32_t key = 0;
  std::uint32_t length = 0;

  bool operator==(const RemoteBuffer&) const = default;
};

// Where the peer's `offset` .. `offset + buffer.length` lie.
struct IoMapEntry {
  std::uint64_t offset = 0;
  RemoteBuffer buffer;

  bool operator==(const IoMapEntry&) const = default;
};

// The entries as they lie in memory: in the byte order of the host that owns the memory.
inline constexpr std::size_t kBufferEntrySize = 16;
inline constexpr std::size_t kIoMapEntrySize = 24;
// Entries of a target list, by which the peer learns of receive buffers.
inline constexpr std::uint32_t kTargetEntries = 2;

// Whether the owner of the memory has another byte order than this host.
enum class ByteOrder : bool { kOwn, kSwapped };

RemoteBuffer load_buffer_entry(const std::uint8_t* from);
void store_buffer_entry(std::uint8_t* to, const RemoteBuffer& buffer, ByteOrder order);
IoMapEntry load_iomap_entry(const std::uint8_t* from);
void store_iomap_entry(std::uint8_t* to, const IoMapEntry& entry, ByteOrder order);

// Sizes of I/O maps travel in eight bits: exactly up to 128, in steps of 256 above.
std::uint16_t rounded_iomap_size(int wanted);

struct ConnectionData {
  static constexpr std::size_t kSize = 40;
  static constexpr std::uint8_t kVersion = 1;

  bool big_endian = false;
  bool has_iomap = true;
  std::uint16_t credits = 0;
  std::uint16_t iomap_size = 0;
  RemoteBuffer target_list;  // length counts entries
  RemoteBuffer data;

  bool operator==(const ConnectionData&) const = default;

  // nullopt when it is too short, of another version, or useless.
  static std::optional<ConnectionData> parse(Bytes bytes);
  std::array<std::uint8_t, kSize> emit() const;
};

enum class MessageType : std::uint8_t { kData = 0, kCredits = 4, kIoMap = 6, kControl = 7 };
enum class Control : std::uint8_t { kDisconnect = 0, kKeepAlive = 1, kShutdown = 2 };

struct Message {
  static constexpr std::uint32_t kValueMax = (1u << 29) - 1;

  MessageType type = MessageType::kData;
  std::uint32_t value = 0;

  bool operator==(const Message&) const = default;

  // nullopt for a reserved type.
  static std::optional<Message> parse(std::uint32_t immediate);
  std::uint32_t emit() const;
};

}  // namespace ucm::rsocket
