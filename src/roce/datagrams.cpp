#include "roce/datagrams.h"

#include <algorithm>
#include <array>

#include "roce/limits.h"
#include "roce/psn.h"
#include "roce/queue_pair.h"

namespace ucm::roce {
namespace {

using GrhArea = std::array<std::uint8_t, kGrhSize>;

constexpr std::uint8_t kProtocolUdp = 17;
constexpr std::size_t kUdpHeaderSize = 8;
constexpr std::size_t kIpv4HeaderSize = 20;
constexpr std::uint32_t kQkeyOfQp = 0x80000000;  // IBTA 10.2.5: the top bit selects the QP's own Q_Key

std::uint16_t ipv4_header_checksum(Bytes header) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < header.size(); i += 2) sum += load_be16(&header[i]);
  sum = (sum & 0xFFFF) + (sum >> 16);
  sum += sum >> 16;
  return static_cast<std::uint16_t>(~sum);
}

void write_ipv6_header(const wire::DatagramInfo& info, std::size_t udp_size, GrhArea& area) {
  store_be32(&area[0], std::uint32_t{6} << 28 | std::uint32_t{info.traffic_class} << 20);
  store_be16(&area[4], static_cast<std::uint16_t>(udp_size));
  area[6] = kProtocolUdp;
  area[7] = info.hop_limit;
  std::ranges::copy(info.source.bytes, &area[8]);
  std::ranges::copy(info.destination.bytes, &area[24]);
}

// An IPv4 header fills the last 20 bytes of the area. IBTA A17.4.5.2.
void write_ipv4_header(const wire::DatagramInfo& info, std::size_t udp_size, GrhArea& area) {
  std::uint8_t* header = &area[kGrhSize - kIpv4HeaderSize];
  header[0] = 0x45;
  header[1] = info.traffic_class;
  store_be16(header + 2, static_cast<std::uint16_t>(kIpv4HeaderSize + udp_size));
  store_be16(header + 4, info.ipv4_id);
  store_be16(header + 6, 0x4000);  // do not fragment
  header[8] = info.hop_limit;
  header[9] = kProtocolUdp;
  store_be32(header + 12, info.source.ipv4_value());
  store_be32(header + 16, info.destination.ipv4_value());
  store_be16(header + 10, ipv4_header_checksum({header, kIpv4HeaderSize}));
}

GrhArea make_grh_area(const wire::DatagramInfo& info, std::size_t udp_payload_size) {
  GrhArea area{};
  const std::size_t udp_size = kUdpHeaderSize + udp_payload_size;
  if (info.destination.is_ipv4()) {
    write_ipv4_header(info, udp_size, area);
  } else {
    write_ipv6_header(info, udp_size, area);
  }
  return area;
}

std::size_t udp_payload_size(const Packet& packet) {
  const bool immediate = (packet.traits.headers & kHasImmediate) != 0;
  return wire::Bth::kSize + wire::Deth::kSize + (immediate ? wire::ImmDt::kSize : 0) + packet.payload.size() +
         packet.bth.pad_count + wire::kIcrcSize;
}

std::uint64_t capacity_of(const Receive& receive) {
  std::uint64_t capacity = 0;
  for (const Sge& sge : receive.sges) capacity += sge.length;
  return capacity;
}

}  // namespace

bool Datagrams::has_output() const { return qp_.state() == QpState::kRts && !qp_.send_queue().sends().empty(); }

// IBTA C10-93.1.1: a message that does not fit the port's MTU emits no packet, and that is no error.
void Datagrams::skip_what_does_not_fit() {
  while (has_output() && qp_.send_queue().sends().front().length > qp_.mtu()) {
    ++core_.counters.datagrams_too_long;
    qp_.complete_send(CompletionStatus::kSuccess);
  }
}

std::size_t Datagrams::build_packet(wire::DatagramInfo& info, MutableBytes out) {
  skip_what_does_not_fit();
  if (!has_output()) return 0;
  const Send& send = qp_.send_queue().sends().front();
  const bool immediate = send.opcode == SendOpcode::kSendImm;
  PacketWriter writer(out);
  writer.add(wire::Bth{.opcode = immediate ? wire::Opcode::kUdSendOnlyImm : wire::Opcode::kUdSendOnly,
                       .solicited_event = send.solicited,
                       .pad_count = pad_of(send.length),
                       .destination_qpn = send.remote_qpn,
                       .psn = psn_});
  const bool own_qkey = (send.remote_qkey & kQkeyOfQp) != 0;
  writer.add(wire::Deth{.qkey = own_qkey ? qp_.attributes().qkey : send.remote_qkey, .source_qpn = qp_.params().qpn});
  if (immediate) writer.add(wire::ImmDt{.immediate = send.immediate});
  const MutableBytes payload = writer.payload(send.length);
  if (send.inline_data) {
    std::ranges::copy(send.inline_bytes, payload.begin());
  } else if (!core_.memory.gather(qp_.params().pd, send.sges, 0, payload)) {
    qp_.flush_sends(qp_.send_queue().sends().begin_index(), CompletionStatus::kLocalProtection);
    qp_.enter_send_error();
    return 0;
  }
  fill_addresses(send.address, info);
  psn_ = psn_add(psn_, 1);
  qp_.complete_send(CompletionStatus::kSuccess);
  return writer.size();
}

void Datagrams::on_packet(const wire::DatagramInfo& info, const Packet& packet) {
  if (packet.deth.qkey != qp_.attributes().qkey) {
    ++core_.counters.qkey_violations;
    return;
  }
  const std::size_t size = kGrhSize + packet.payload.size();
  const ReceiveTarget target = qp_.own_target();
  const Receive* next = qp_.oldest_receive(target);
  if (next == nullptr || capacity_of(*next) < size) {
    ++core_.counters.no_receive;
    return;
  }
  qp_.take_receive(target, receive_);
  const GrhArea area = make_grh_area(info, udp_payload_size(packet));
  const bool stored = core_.memory.scatter(target.pd, receive_.sges, 0, area) == ScatterResult::kDone &&
                      core_.memory.scatter(target.pd, receive_.sges, kGrhSize, packet.payload) == ScatterResult::kDone;
  const bool immediate = (packet.traits.headers & kHasImmediate) != 0;
  qp_.complete_receive(target,
                       {.wr_id = receive_.wr_id,
                        .status = stored ? CompletionStatus::kSuccess : CompletionStatus::kLocalProtection,
                        .opcode = CompletionOpcode::kRecv,
                        .byte_count = static_cast<std::uint32_t>(size),
                        .immediate = packet.immediate.immediate,
                        .has_immediate = immediate,
                        .has_grh = true,
                        .source_qpn = packet.deth.source_qpn},
                       packet.bth.solicited_event);
  if (!stored) qp_.enter_error();
}

}  // namespace ucm::roce
