// RoCEv2 transport headers after UDP: BTH, DETH, XRCETH, RETH, AETH, AtomicETH, AtomicAckETH, ImmDt, IETH.
// IBTA 9.2-9.3. Plain structs; parse() needs at least kSize bytes and returns nullopt when they are missing or
// malformed; emit() writes exactly kSize bytes.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"

namespace ucm::wire {

enum class Opcode : std::uint8_t {
  kRcSendFirst = 0x00,
  kRcSendMiddle = 0x01,
  kRcSendLast = 0x02,
  kRcSendLastImm = 0x03,
  kRcSendOnly = 0x04,
  kRcSendOnlyImm = 0x05,
  kRcWriteFirst = 0x06,
  kRcWriteMiddle = 0x07,
  kRcWriteLast = 0x08,
  kRcWriteLastImm = 0x09,
  kRcWriteOnly = 0x0A,
  kRcWriteOnlyImm = 0x0B,
  kRcReadRequest = 0x0C,
  kRcReadResponseFirst = 0x0D,
  kRcReadResponseMiddle = 0x0E,
  kRcReadResponseLast = 0x0F,
  kRcReadResponseOnly = 0x10,
  kRcAck = 0x11,
  kRcAtomicAck = 0x12,
  kRcCompareSwap = 0x13,
  kRcFetchAdd = 0x14,
  kRcSendLastInvalidate = 0x16,
  kRcSendOnlyInvalidate = 0x17,
  kUdSendOnly = 0x64,
  kUdSendOnlyImm = 0x65,
};

// The transport service that an opcode belongs to: its top three bits. The other five mean the same in each.
// IBTA 9.2.1.
enum class Service : std::uint8_t { kRc = 0x00, kUc = 0x20, kUd = 0x60, kXrc = 0xA0 };
inline constexpr std::uint8_t kServiceMask = 0xE0;

constexpr Service service_of(Opcode opcode) {
  return static_cast<Service>(static_cast<std::uint8_t>(opcode) & kServiceMask);
}
// What an opcode of RC is called in `service`.
constexpr Opcode in_service(Service service, Opcode rc) {
  return static_cast<Opcode>(static_cast<std::uint8_t>(service) | static_cast<std::uint8_t>(rc));
}
// What an opcode of any service is called in RC.
constexpr Opcode as_rc(Opcode opcode) { return static_cast<Opcode>(static_cast<std::uint8_t>(opcode) & ~kServiceMask); }

inline constexpr std::uint32_t kMask24 = 0xFFFFFF;
inline constexpr std::uint32_t kMulticastQpn = 0xFFFFFF;  // the destination QP of every multicast packet
inline constexpr std::uint16_t kDefaultPkey = 0xFFFF;

struct Bth {
  static constexpr std::size_t kSize = 12;
  Opcode opcode{};
  bool solicited_event = false;
  bool mig_req = false;
  std::uint8_t pad_count = 0;  // 0..3
  std::uint16_t pkey = kDefaultPkey;
  std::uint32_t destination_qpn = 0;  // 24 bit
  bool ack_request = false;
  std::uint32_t psn = 0;  // 24 bit

  // nullopt when short or TVer is not 0. Any opcode value is returned as it is.
  static std::optional<Bth> parse(Bytes bytes);
  void emit(MutableBytes out) const;
};

struct Deth {
  static constexpr std::size_t kSize = 8;
  std::uint32_t qkey = 0;
  std::uint32_t source_qpn = 0;
  static std::optional<Deth> parse(Bytes bytes);
  void emit(MutableBytes out) const;
};

// In every request of XRC: the shared receive queue it is for. IBTA A14.
struct XrcEth {
  static constexpr std::size_t kSize = 4;
  std::uint32_t srq_number = 0;  // 24 bit
  static std::optional<XrcEth> parse(Bytes bytes);
  void emit(MutableBytes out) const;
};

struct Reth {
  static constexpr std::size_t kSize = 16;
  std::uint64_t virtual_address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t dma_length = 0;  // bytes
  static std::optional<Reth> parse(Bytes bytes);
  void emit(MutableBytes out) const;
};

struct AtomicEth {
  static constexpr std::size_t kSize = 28;
  std::uint64_t virtual_address = 0;
  std::uint32_t rkey = 0;
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;
  static std::optional<AtomicEth> parse(Bytes bytes);
  void emit(MutableBytes out) const;
};

struct Aeth {
  static constexpr std::size_t kSize = 4;
  std::uint8_t syndrome = 0;
  std::uint32_t msn = 0;  // 24 bit
  static std::optional<Aeth> parse(Bytes bytes);
  void emit(MutableBytes out) const;
};

struct AtomicAckEth {
  static constexpr std::size_t kSize = 8;
  std::uint64_t original = 0;
  static std::optional<AtomicAckEth> parse(Bytes bytes);
  void emit(MutableBytes out) const;
};

// ImmDt and IETH are one 32-bit word each; the immediate stays in wire order in the application's hands.
struct ImmDt {
  static constexpr std::size_t kSize = 4;
  std::uint32_t immediate = 0;
  static std::optional<ImmDt> parse(Bytes bytes);
  void emit(MutableBytes out) const;
};
struct Ieth {
  static constexpr std::size_t kSize = 4;
  std::uint32_t rkey = 0;
  static std::optional<Ieth> parse(Bytes bytes);
  void emit(MutableBytes out) const;
};

// AETH syndromes. IBTA 9.7.5.2.
inline constexpr std::uint8_t kSyndromeAck = 0x1F;     // credits not used
inline constexpr std::uint8_t kSyndromeRnrNak = 0x20;  // | 5-bit timer code
inline constexpr std::uint8_t kSyndromeNakSequence = 0x60;
inline constexpr std::uint8_t kSyndromeNakInvalidRequest = 0x61;
inline constexpr std::uint8_t kSyndromeNakRemoteAccess = 0x62;
inline constexpr std::uint8_t kSyndromeNakRemoteOperational = 0x63;

}  // namespace ucm::wire
