// The RC part of a recorded connection between two Linux rxe devices, with this engine in the place of either side: it
// understands the other's packets and sends, byte for byte, what the kernel sent.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "pair.h"
#include "roce/packet.h"
#include "support/pcap.h"
#include "wire/icrc.h"

namespace ucm::roce::test {
namespace {

using wire::Opcode;

struct Recorded {
  wire::DatagramInfo info;
  std::vector<std::uint8_t> payload;  // with ICRC
  Packet packet;                      // its spans point into `payload`
};

std::vector<Recorded> recorded_rc_packets(const std::string& file) {
  std::vector<Recorded> packets;
  const auto frames = ucm::test::read_capture(std::string(UCM_TEST_DATA) + "/captures/" + file);
  for (const ucm::test::Frame& frame : *frames) {
    const auto roce = ucm::test::roce_packet_in(frame);
    if (!roce) continue;
    Recorded recorded{roce->info, {roce->payload.begin(), roce->payload.end()}, {}};
    const auto packet = parse_packet(Bytes(recorded.payload).first(recorded.payload.size() - wire::kIcrcSize));
    if (!packet || packet->traits.kind == PacketKind::kDatagram) continue;
    recorded.packet = *packet;
    packets.push_back(std::move(recorded));
  }
  return packets;
}

bool is_request(const Recorded& recorded) {
  const PacketKind kind = recorded.packet.traits.kind;
  return kind == PacketKind::kSend || kind == PacketKind::kWrite || kind == PacketKind::kReadRequest;
}

// The engine as the host `own` of the recording.
class Stand {
 public:
  Stand(const std::vector<Recorded>& packets, const wire::IpAddress& own) : packets_(packets), own_(own) {
    engine_ = std::make_unique<Engine>(RandomKey{1, 2});
    const PdId pd = *engine_->alloc_pd();
    cq_ = *engine_->create_cq(64, 0);
    keys_ = *engine_->reg_mr(
        {.pd = pd, .address = memory_.data(), .length = memory_.size(), .iova = kIova, .access = kAllAccess});
    const auto first_request = [&](bool mine) {
      return *std::ranges::find_if(packets,
                                   [&](const Recorded& p) { return is_request(p) && (p.info.source == own) == mine; });
    };
    const Recorded& sent = first_request(true);
    const Recorded& received = first_request(false);
    qpn_ = received.packet.bth.destination_qpn;
    QpParams params{.qpn = qpn_,
                    .pd = pd,
                    .send_cq = cq_,
                    .recv_cq = cq_,
                    .capacity = {.send_wr_max = 16, .recv_wr_max = 16, .send_sge_max = 1, .recv_sge_max = 1}};
    EXPECT_TRUE(engine_->create_qp(params));
    const QpAttributes attributes{
        .access = kAllAccess,
        .address = {.local = own, .remote = received.info.source},
        .rq_psn = received.packet.bth.psn,
        .sq_psn = sent.packet.bth.psn,
        .max_rd_atomic = 1,
        .max_dest_rd_atomic = 1,
        .dest_qpn = sent.packet.bth.destination_qpn,
    };
    modify(attributes, QpState::kInit, kQpAccess);
    modify(attributes, QpState::kRtr,
           kQpAddress | kQpPathMtu | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer | kQpDestQpn);
    modify(attributes, QpState::kRts, kQpTimeout | kQpRetryCount | kQpRnrRetry | kQpSqPsn | kQpMaxRdAtomic);
  }

  // Plays the recording: what came is fed, what this side sent has to be sent again.
  void play() {
    for (const Recorded& recorded : packets_) {
      SCOPED_TRACE("PSN " + std::to_string(recorded.packet.bth.psn));
      if (recorded.info.source == own_) {
        if (is_request(recorded)) post(recorded);
        expect_sent(recorded);
      } else {
        feed(recorded);
      }
    }
    std::array<Completion, 64> completions;
    const std::size_t count = *engine_->poll_cq(cq_, completions);
    EXPECT_EQ(count, work_posted_);
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(completions[i].status, CompletionStatus::kSuccess);
    EXPECT_EQ(engine_->counters().malformed + engine_->counters().wrong_source + engine_->counters().icrc_errors, 0u);
  }

 private:
  static constexpr std::uint64_t kIova = 0x10000;
  static constexpr std::uint32_t kRkeyOffset = wire::Bth::kSize + 8;

  void modify(QpAttributes attributes, QpState state, std::uint32_t mask) {
    attributes.state = state;
    ASSERT_TRUE(engine_->modify_qp(0, qpn_, attributes, mask | kQpState));
  }

  void post(const Recorded& recorded) {
    const Packet& packet = recorded.packet;
    std::ranges::copy(packet.payload, memory_.begin());
    const bool reads = packet.traits.kind == PacketKind::kReadRequest;
    const auto length = reads ? packet.reth.dma_length : static_cast<std::uint32_t>(packet.payload.size());
    const Sge sge{kIova, length, keys_.lkey};
    SendRequest request{.opcode = reads ? SendOpcode::kRead : SendOpcode::kSend,
                        .signaled = true,
                        .solicited = packet.bth.solicited_event,
                        .remote_address = packet.reth.virtual_address,
                        .rkey = packet.reth.rkey,
                        .sges = {&sge, 1}};
    if (packet.traits.kind == PacketKind::kWrite) request.opcode = SendOpcode::kWrite;
    ASSERT_TRUE(engine_->post_send(0, qpn_, request));
    ++work_posted_;
  }

  // Keys and addresses of the recorded memory are replaced by this engine's own.
  void feed(const Recorded& recorded) {
    const PacketKind kind = recorded.packet.traits.kind;
    std::vector<std::uint8_t> payload = recorded.payload;
    wire::DatagramInfo info = recorded.info;
    if (kind == PacketKind::kSend) {
      const Sge sge{kIova, 4096, keys_.lkey};
      ASSERT_TRUE(engine_->post_recv(0, qpn_, {.sges = {&sge, 1}}));
      ++work_posted_;
    } else if (kind == PacketKind::kReadRequest || kind == PacketKind::kWrite) {
      store_be64(&payload[wire::Bth::kSize], kIova);
      store_be32(&payload[kRkeyOffset], keys_.rkey);
      const std::size_t size = payload.size() - wire::kIcrcSize;
      wire::store_icrc(MutableBytes(payload).subspan(size), wire::icrc(info, Bytes(payload).first(size)));
    }
    if (kind == PacketKind::kReadRequest) prepare_answer(recorded);
    info.ipv4_id = 0;  // as a UDP socket would say
    engine_->on_packet(0, info, payload);
    if (!recorded.packet.payload.empty()) {
      EXPECT_TRUE(std::equal(recorded.packet.payload.begin(), recorded.packet.payload.end(), memory_.begin()));
    }
  }

  // The memory that is about to be read holds what the recorded response carried.
  void prepare_answer(const Recorded& request) {
    for (const Recorded& recorded : packets_) {
      const bool answer =
          recorded.packet.traits.kind == PacketKind::kReadResponse && recorded.packet.bth.psn == request.packet.bth.psn;
      if (answer) std::ranges::copy(recorded.packet.payload, memory_.begin());
    }
  }

  void expect_sent(const Recorded& recorded) {
    std::array<std::uint8_t, kPacketSizeMax> out;
    wire::DatagramInfo info;
    const std::size_t size = engine_->poll_packet(0, recorded.info.source_port, info, out);
    ASSERT_EQ(size, recorded.payload.size());
    const std::size_t sealed = size - wire::kIcrcSize;  // the ICRC covers the IP identification, which is 0 here
    EXPECT_TRUE(std::equal(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(sealed), recorded.payload.begin()))
        << testing::PrintToString(std::vector<int>(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(sealed)));
    EXPECT_EQ(info.source, recorded.info.source);
    EXPECT_EQ(info.destination, recorded.info.destination);
    EXPECT_EQ(wire::verify_icrc(info, Bytes(out).first(size)), wire::IcrcCheck::kGood);
  }

  const std::vector<Recorded>& packets_;
  wire::IpAddress own_;
  std::unique_ptr<Engine> engine_;
  CqId cq_{};
  Qpn qpn_ = 0;
  MrKeys keys_;
  std::array<std::uint8_t, 4096> memory_{};
  std::size_t work_posted_ = 0;
};

class LinuxPeer : public testing::TestWithParam<const char*> {};

TEST_P(LinuxPeer, SeesWhatAnotherLinuxPeerWouldHaveSent) {
  const std::vector<Recorded> packets = recorded_rc_packets(GetParam());
  ASSERT_GE(packets.size(), 12u);
  Stand(packets, packets[0].info.source).play();
  Stand(packets, packets[0].info.destination).play();
}
INSTANTIATE_TEST_SUITE_P(Captures, LinuxPeer, testing::Values("full.pcap", "full6.pcap"));

}  // namespace
}  // namespace ucm::roce::test
