#include "wire/ud_packet.h"

#include <algorithm>

#include "base/check.h"

namespace ucm::wire {

std::optional<UdPacket> parse_ud_packet(Bytes datagram) {
  const auto bth = Bth::parse(datagram);
  if (!bth || (bth->opcode != Opcode::kUdSendOnly && bth->opcode != Opcode::kUdSendOnlyImm)) return std::nullopt;
  const bool has_immediate = bth->opcode == Opcode::kUdSendOnlyImm;
  const std::size_t header_size = ud_packet_size(0, has_immediate) - kIcrcSize;
  if (datagram.size() < header_size + bth->pad_count + kIcrcSize) return std::nullopt;

  UdPacket packet;
  packet.bth = *bth;
  packet.deth = *Deth::parse(datagram.subspan(Bth::kSize));
  if (has_immediate) packet.immediate = ImmDt::parse(datagram.subspan(Bth::kSize + Deth::kSize));
  packet.payload = datagram.subspan(header_size, datagram.size() - header_size - bth->pad_count - kIcrcSize);
  return packet;
}

std::size_t emit_ud_packet(const DatagramInfo& info, const UdPacket& packet, MutableBytes out) {
  const std::size_t size = ud_packet_size(packet.payload.size(), packet.immediate.has_value());
  UCM_CHECK(out.size() >= size);
  Bth bth = packet.bth;
  bth.opcode = packet.immediate ? Opcode::kUdSendOnlyImm : Opcode::kUdSendOnly;
  bth.pad_count = static_cast<std::uint8_t>(-packet.payload.size() % 4);

  bth.emit(out);
  packet.deth.emit(out.subspan(Bth::kSize));
  MutableBytes rest = out.subspan(Bth::kSize + Deth::kSize);
  if (packet.immediate) {
    packet.immediate->emit(rest);
    rest = rest.subspan(ImmDt::kSize);
  }
  const auto pad = std::copy(packet.payload.begin(), packet.payload.end(), rest.begin());
  std::fill_n(pad, bth.pad_count, std::uint8_t{0});
  const std::size_t icrc_offset = size - kIcrcSize;
  store_icrc(out.subspan(icrc_offset), icrc(info, out.first(icrc_offset)));
  return size;
}

std::size_t emit_gsi_packet(const DatagramInfo& info, std::uint32_t psn, std::span<const std::uint8_t, kMadSize> mad,
                            MutableBytes out) {
  UdPacket packet;
  packet.bth.destination_qpn = kGsiQpn;
  packet.bth.ack_request = true;  // Linux: rxe asks on QP 1
  packet.bth.psn = psn & kMask24;
  packet.deth = {.qkey = kGsiQkey, .source_qpn = kGsiQpn};
  packet.payload = mad;
  return emit_ud_packet(info, packet, out);
}

std::optional<std::span<const std::uint8_t, kMadSize>> parse_gsi_packet(Bytes datagram) {
  constexpr std::uint16_t kPartitionMask = 0x7FFF;  // without the membership bit; a limited member may reach QP 1
  const auto packet = parse_ud_packet(datagram);
  if (!packet || packet->bth.destination_qpn != kGsiQpn || packet->deth.qkey != kGsiQkey ||
      (packet->bth.pkey & kPartitionMask) != (kDefaultPkey & kPartitionMask) || packet->payload.size() != kMadSize) {
    return std::nullopt;
  }
  return packet->payload.first<kMadSize>();
}

}  // namespace ucm::wire
