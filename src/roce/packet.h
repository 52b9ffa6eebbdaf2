// A RoCEv2 packet taken apart, and one put together. What an opcode means is one table.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "wire/datagram.h"
#include "wire/headers.h"
#include "wire/icrc.h"

namespace ucm::roce {

enum class PacketKind : std::uint8_t {
  kUnknown,
  // requests of RC and XRC, of which UC has the first two
  kSend,
  kWrite,
  kReadRequest,
  kAtomicRequest,
  // responses of RC and XRC
  kReadResponse,
  kAcknowledge,
  kAtomicAcknowledge,
  // UD
  kDatagram,
};

constexpr bool is_response(PacketKind kind) {
  return kind == PacketKind::kReadResponse || kind == PacketKind::kAcknowledge ||
         kind == PacketKind::kAtomicAcknowledge;
}

// Extended headers an opcode carries. They follow the BTH in this order, with XRCETH in front.
enum HeaderSet : std::uint8_t {
  kHasDeth = 1 << 0,
  kHasReth = 1 << 1,
  kHasAtomicEth = 1 << 2,
  kHasAeth = 1 << 3,
  kHasAtomicAck = 1 << 4,
  kHasImmediate = 1 << 5,
  kHasInvalidate = 1 << 6,
  kHasXrcEth = 1 << 7,
};

struct OpcodeTraits {
  PacketKind kind = PacketKind::kUnknown;
  bool first = false;  // begins a message
  bool last = false;   // ends a message
  std::uint8_t headers = 0;
};
// kUnknown for what this device does not speak (RD, reserved).
OpcodeTraits traits_of(wire::Opcode opcode);

struct Packet {
  wire::Bth bth;
  OpcodeTraits traits;
  wire::Deth deth;
  wire::XrcEth xrc;
  wire::Reth reth;
  wire::AtomicEth atomic;
  wire::Aeth aeth;
  wire::AtomicAckEth atomic_ack;
  wire::ImmDt immediate;
  wire::Ieth invalidate;
  Bytes payload;  // without pad
};

// `bytes`: BTH up to and including pad, without the ICRC. nullopt for what is short, of unknown opcode, or whose pad
// does not round the payload up to four bytes.
std::optional<Packet> parse_packet(Bytes bytes);

// Writes one packet front to back into a buffer of at least kPacketSizeMax bytes.
class PacketWriter {
 public:
  explicit PacketWriter(MutableBytes out) : out_(out) {}

  template <class Header>
  void add(const Header& header) {
    header.emit(out_.subspan(size_, Header::kSize));
    size_ += Header::kSize;
  }
  // Room for `length` bytes of payload, to be filled by the caller.
  MutableBytes payload(std::size_t length);
  // BTH to pad.
  std::size_t size() const { return size_; }

 private:
  MutableBytes out_;
  std::size_t size_ = 0;
};

constexpr std::uint8_t pad_of(std::size_t payload_size) { return static_cast<std::uint8_t>(-payload_size & 3); }

}  // namespace ucm::roce
