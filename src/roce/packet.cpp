#include "roce/packet.h"

#include <array>
#include <cstring>

namespace ucm::roce {
namespace {

using wire::Opcode;

constexpr std::array<OpcodeTraits, 256> make_traits() {
  std::array<OpcodeTraits, 256> table{};
  const auto set = [&table](Opcode opcode, OpcodeTraits traits) { table[static_cast<std::uint8_t>(opcode)] = traits; };
  set(Opcode::kRcSendFirst, {.kind = PacketKind::kSend, .first = true});
  set(Opcode::kRcSendMiddle, {.kind = PacketKind::kSend});
  set(Opcode::kRcSendLast, {.kind = PacketKind::kSend, .last = true});
  set(Opcode::kRcSendLastImm, {.kind = PacketKind::kSend, .last = true, .headers = kHasImmediate});
  set(Opcode::kRcSendLastInvalidate, {.kind = PacketKind::kSend, .last = true, .headers = kHasInvalidate});
  set(Opcode::kRcSendOnly, {.kind = PacketKind::kSend, .first = true, .last = true});
  set(Opcode::kRcSendOnlyImm, {.kind = PacketKind::kSend, .first = true, .last = true, .headers = kHasImmediate});
  set(Opcode::kRcSendOnlyInvalidate,
      {.kind = PacketKind::kSend, .first = true, .last = true, .headers = kHasInvalidate});
  set(Opcode::kRcWriteFirst, {.kind = PacketKind::kWrite, .first = true, .headers = kHasReth});
  set(Opcode::kRcWriteMiddle, {.kind = PacketKind::kWrite});
  set(Opcode::kRcWriteLast, {.kind = PacketKind::kWrite, .last = true});
  set(Opcode::kRcWriteLastImm, {.kind = PacketKind::kWrite, .last = true, .headers = kHasImmediate});
  set(Opcode::kRcWriteOnly, {.kind = PacketKind::kWrite, .first = true, .last = true, .headers = kHasReth});
  set(Opcode::kRcWriteOnlyImm,
      {.kind = PacketKind::kWrite, .first = true, .last = true, .headers = kHasReth | kHasImmediate});
  set(Opcode::kRcReadRequest, {.kind = PacketKind::kReadRequest, .first = true, .last = true, .headers = kHasReth});
  set(Opcode::kRcCompareSwap,
      {.kind = PacketKind::kAtomicRequest, .first = true, .last = true, .headers = kHasAtomicEth});
  set(Opcode::kRcFetchAdd, {.kind = PacketKind::kAtomicRequest, .first = true, .last = true, .headers = kHasAtomicEth});
  set(Opcode::kRcReadResponseFirst, {.kind = PacketKind::kReadResponse, .first = true, .headers = kHasAeth});
  set(Opcode::kRcReadResponseMiddle, {.kind = PacketKind::kReadResponse});
  set(Opcode::kRcReadResponseLast, {.kind = PacketKind::kReadResponse, .last = true, .headers = kHasAeth});
  set(Opcode::kRcReadResponseOnly,
      {.kind = PacketKind::kReadResponse, .first = true, .last = true, .headers = kHasAeth});
  set(Opcode::kRcAck, {.kind = PacketKind::kAcknowledge, .first = true, .last = true, .headers = kHasAeth});
  set(Opcode::kRcAtomicAck,
      {.kind = PacketKind::kAtomicAcknowledge, .first = true, .last = true, .headers = kHasAeth | kHasAtomicAck});
  set(Opcode::kUdSendOnly, {.kind = PacketKind::kDatagram, .first = true, .last = true, .headers = kHasDeth});
  set(Opcode::kUdSendOnlyImm,
      {.kind = PacketKind::kDatagram, .first = true, .last = true, .headers = kHasDeth | kHasImmediate});
  for (auto opcode = static_cast<std::uint8_t>(Opcode::kRcSendFirst);
       opcode <= static_cast<std::uint8_t>(Opcode::kRcWriteOnlyImm); ++opcode) {
    set(in_service(wire::Service::kUc, static_cast<Opcode>(opcode)), table[opcode]);
  }
  // XRC has all of RC. Its requests say whom they are for.
  for (auto opcode = static_cast<std::uint8_t>(Opcode::kRcSendFirst);
       opcode <= static_cast<std::uint8_t>(Opcode::kRcSendOnlyInvalidate); ++opcode) {
    OpcodeTraits traits = table[opcode];
    if (traits.kind == PacketKind::kUnknown) continue;
    if (!is_response(traits.kind)) traits.headers |= kHasXrcEth;
    set(in_service(wire::Service::kXrc, static_cast<Opcode>(opcode)), traits);
  }
  return table;
}
constexpr std::array<OpcodeTraits, 256> kTraits = make_traits();

// Takes headers off the front of a span.
class Reader {
 public:
  explicit Reader(Bytes bytes) : rest_(bytes) {}

  // Parses a header into `header` when `present`; false when it is missing.
  template <class Header>
  bool take_if(bool present, Header& header) {
    if (!present) return true;
    const std::optional<Header> parsed = Header::parse(rest_);
    if (!parsed) return false;
    header = *parsed;
    rest_ = rest_.subspan(Header::kSize);
    return true;
  }
  Bytes rest() const { return rest_; }

 private:
  Bytes rest_;
};

}  // namespace

OpcodeTraits traits_of(Opcode opcode) { return kTraits[static_cast<std::uint8_t>(opcode)]; }

std::optional<Packet> parse_packet(Bytes bytes) {
  Packet packet;
  Reader reader(bytes);
  if (!reader.take_if(true, packet.bth)) return std::nullopt;
  packet.traits = traits_of(packet.bth.opcode);
  if (packet.traits.kind == PacketKind::kUnknown) return std::nullopt;
  const std::uint8_t headers = packet.traits.headers;
  const bool complete = reader.take_if((headers & kHasDeth) != 0, packet.deth) &&
                        reader.take_if((headers & kHasXrcEth) != 0, packet.xrc) &&
                        reader.take_if((headers & kHasReth) != 0, packet.reth) &&
                        reader.take_if((headers & kHasAtomicEth) != 0, packet.atomic) &&
                        reader.take_if((headers & kHasAeth) != 0, packet.aeth) &&
                        reader.take_if((headers & kHasAtomicAck) != 0, packet.atomic_ack) &&
                        reader.take_if((headers & kHasImmediate) != 0, packet.immediate) &&
                        reader.take_if((headers & kHasInvalidate) != 0, packet.invalidate);
  if (!complete) return std::nullopt;
  const Bytes padded = reader.rest();
  if (padded.size() % 4 != 0 || packet.bth.pad_count > padded.size()) return std::nullopt;
  packet.payload = padded.first(padded.size() - packet.bth.pad_count);
  return packet;
}

MutableBytes PacketWriter::payload(std::size_t length) {
  const MutableBytes data = out_.subspan(size_, length);
  const std::size_t pad = pad_of(length);
  std::memset(out_.data() + size_ + length, 0, pad);
  size_ += length + pad;
  return data;
}

}  // namespace ucm::roce
