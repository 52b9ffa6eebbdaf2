// A peer under the fuzzer's control talks to an engine with an RC, a UC, a UD and two XRC queue pairs at work. Every
// packet gets a right ICRC, so that it reaches the protocol. Memory next to the regions must stay as it was (and ASan
// watches the rest).
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "roce/engine.h"
#include "roce/packet.h"
#include "wire/icrc.h"

namespace {

using namespace ucm;
using namespace ucm::roce;

constexpr std::uint64_t kIova = 0x1000;
constexpr std::size_t kRegionSize = 4096;
constexpr std::size_t kGuardSize = 512;
constexpr std::uint8_t kGuard = 0x5A;
constexpr Qpn kRcQpn = 0x11;
constexpr Qpn kUdQpn = 0x12;
constexpr Qpn kUcQpn = 0x13;
constexpr Qpn kXrcSendQpn = 0x14;
constexpr Qpn kXrcRecvQpn = 0x15;
constexpr std::uint32_t kFirstPsn = 0xFFFFFE;
constexpr std::uint32_t kQkey = 1;
constexpr std::uint32_t kAllAccess = 15;

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}
  bool empty() const { return rest_.empty(); }
  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const std::uint8_t value = rest_[0];
    rest_ = rest_.subspan(1);
    return value;
  }
  Bytes bytes(std::size_t count) {
    const Bytes taken = rest_.first(std::min(count, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }

 private:
  Bytes rest_;
};

class Victim {
 public:
  Victim() : engine_(RandomKey{1, 2}), storage_((kRegionSize + 2 * kGuardSize) / sizeof(std::uint64_t)) {
    std::fill_n(bytes(), storage_.size() * sizeof(std::uint64_t), kGuard);
    pd_ = *engine_.alloc_pd();
    cq_ = *engine_.create_cq(64, 0);
    keys_ = *engine_.reg_mr(
        {.pd = pd_, .address = bytes() + kGuardSize, .length = kRegionSize, .iova = kIova, .access = kAllAccess});
    xrcd_ = *engine_.alloc_xrcd();
    create_srq();
    for (const Qpn qpn : {kRcQpn, kUdQpn, kUcQpn, kXrcSendQpn, kXrcRecvQpn}) create(qpn);
    ah_ = *engine_.create_ah(pd_, kAddress);
    connect();
  }

  void step(Input& input) {
    switch (input.byte() % 8) {
      case 0:
      case 1:
      case 2:
        return packet(input);
      case 3:
        return post_send(input);
      case 4:
        return post_recv(input);
      case 5:
        now_ += TimeNs{1} << (input.byte() % 34);
        return engine_.on_deadline(now_);
      case 6:
        return drain();
      default:
        return control(input);
    }
  }

  void finish() {
    drain();
    const auto untouched = [this](std::size_t at) {
      return std::all_of(bytes() + at, bytes() + at + kGuardSize, [](std::uint8_t byte) { return byte == kGuard; });
    };
    UCM_CHECK(untouched(0) && untouched(kGuardSize + kRegionSize));
  }

 private:
  static constexpr AddressVector kAddress{.local = wire::IpAddress::ipv4(0x0A000001),
                                          .remote = wire::IpAddress::ipv4(0x0A000002)};

  std::uint8_t* bytes() { return reinterpret_cast<std::uint8_t*>(storage_.data()); }

  static QpType type_of(Qpn qpn) {
    switch (qpn) {
      case kUdQpn:
        return QpType::kUd;
      case kUcQpn:
        return QpType::kUc;
      case kXrcSendQpn:
        return QpType::kXrcSend;
      case kXrcRecvQpn:
        return QpType::kXrcRecv;
      default:
        return QpType::kRc;
    }
  }

  // Each is a bit of `choice`.
  static Qpn qpn_of(std::uint8_t choice, std::uint8_t datagrams, std::uint8_t unreliable, std::uint8_t xrc) {
    if ((choice & datagrams) != 0) return (choice & xrc) != 0 ? kXrcRecvQpn : kUdQpn;
    if ((choice & xrc) != 0) return kXrcSendQpn;
    return (choice & unreliable) != 0 ? kUcQpn : kRcQpn;
  }

  void create_srq() {
    srq_ = *engine_.create_srq({.pd = pd_, .wr_max = 8, .sge_max = 2, .xrc = SrqParams::Xrc{.xrcd = xrcd_, .cq = cq_}});
  }

  void create(Qpn qpn) {
    QpParams params{.qpn = qpn,
                    .type = type_of(qpn),
                    .pd = pd_,
                    .send_cq = cq_,
                    .recv_cq = cq_,
                    .xrcd = xrcd_,
                    .capacity = {.send_wr_max = 8, .recv_wr_max = 8, .send_sge_max = 2, .recv_sge_max = 2}};
    UCM_CHECK(engine_.create_qp(params).has_value());
  }

  // Refusals are fine: the QP may be in any state.
  void connect() {
    QpAttributes attributes{.access = kAllAccess,
                            .qkey = kQkey,
                            .address = kAddress,
                            .path_mtu = 1,
                            .timeout = 10,
                            .retry_count = 2,
                            .rnr_retry = 2,
                            .rq_psn = kFirstPsn,
                            .sq_psn = kFirstPsn,
                            .max_rd_atomic = 2,
                            .max_dest_rd_atomic = 2,
                            .min_rnr_timer = 1,
                            .dest_qpn = 0x99};
    const auto modify = [&](Qpn qpn, QpState state, std::uint32_t mask) {
      attributes.state = state;
      (void)engine_.modify_qp(now_, qpn, attributes, mask | kQpState);
    };
    modify(kRcQpn, QpState::kInit, kQpAccess);
    modify(kRcQpn, QpState::kRtr,
           kQpAddress | kQpPathMtu | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer | kQpDestQpn);
    modify(kRcQpn, QpState::kRts, kQpTimeout | kQpRetryCount | kQpRnrRetry | kQpSqPsn | kQpMaxRdAtomic);
    modify(kUcQpn, QpState::kInit, kQpAccess);
    modify(kUcQpn, QpState::kRtr, kQpAddress | kQpPathMtu | kQpRqPsn | kQpDestQpn);
    modify(kUcQpn, QpState::kRts, kQpSqPsn);
    modify(kXrcSendQpn, QpState::kInit, kQpAccess);
    modify(kXrcSendQpn, QpState::kRtr, kQpAddress | kQpPathMtu | kQpRqPsn | kQpDestQpn);
    modify(kXrcSendQpn, QpState::kRts, kQpTimeout | kQpRetryCount | kQpRnrRetry | kQpSqPsn | kQpMaxRdAtomic);
    modify(kXrcRecvQpn, QpState::kInit, kQpAccess);
    modify(kXrcRecvQpn, QpState::kRtr,
           kQpAddress | kQpPathMtu | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer | kQpDestQpn);
    modify(kXrcRecvQpn, QpState::kRts, kQpTimeout | kQpSqPsn);
    modify(kUdQpn, QpState::kInit, kQpQkey);
    modify(kUdQpn, QpState::kRtr, 0);
    modify(kUdQpn, QpState::kRts, kQpSqPsn);
  }

  // Opcode, PSN and lengths come from the input; the key is right when the input asks for it.
  void packet(Input& input) {
    std::array<std::uint8_t, 600> buffer{};
    const std::uint8_t opcode = input.byte();
    const std::uint8_t flags = input.byte();
    const Qpn qpn = qpn_of(flags, 2, 16, 32);
    const bool xrc = is_xrc(type_of(qpn));
    wire::Bth bth{.opcode = xrc ? wire::in_service(wire::Service::kXrc, wire::as_rc(wire::Opcode{opcode}))
                                : static_cast<wire::Opcode>(opcode % 0x68),
                  .solicited_event = (flags & 1) != 0,
                  .pad_count = static_cast<std::uint8_t>(flags >> 6),
                  .destination_qpn = qpn,
                  .ack_request = (flags & 4) != 0,
                  .psn = (kFirstPsn + input.byte() - 4) & wire::kMask24};
    bth.emit(buffer);
    const Bytes body = input.bytes(input.byte() * 2u);
    std::ranges::copy(body, buffer.begin() + wire::Bth::kSize);
    std::size_t size = wire::Bth::kSize + body.size();
    std::size_t memory_at = wire::Bth::kSize;  // RETH or AtomicETH
    if (xrc) memory_at += wire::XrcEth::kSize;
    if ((flags & 8) != 0 && xrc && size >= memory_at) {
      store_be32(&buffer[wire::Bth::kSize], engine_.srq_number(srq_).value_or(0));
    }
    const std::size_t rkey_at = memory_at + 8;
    if ((flags & 8) != 0 && size >= rkey_at + 4) {
      store_be64(&buffer[memory_at], kIova + load_be16(&buffer[memory_at + 6]) % (kRegionSize + 64));
      store_be32(&buffer[rkey_at], keys_.rkey);
    }
    size = size / 4 * 4;
    const wire::DatagramInfo info{.source = kAddress.remote, .destination = kAddress.local};
    wire::store_icrc(MutableBytes(buffer).subspan(size), wire::icrc(info, Bytes(buffer).first(size)));
    engine_.on_packet(now_, info, Bytes(buffer).first(size + wire::kIcrcSize));
  }

  std::array<Sge, 2> sges(Input& input) {
    std::array<Sge, 2> list;
    for (Sge& sge : list) {
      sge.address = kIova + input.byte() * 16u;
      sge.length = input.byte() * 4u;
      sge.lkey = keys_.lkey;
    }
    return list;
  }

  void post_send(Input& input) {
    const std::uint8_t flags = input.byte();
    const auto list = sges(input);
    const auto opcode = static_cast<SendOpcode>(input.byte() % 8);
    const bool atomic = opcode == SendOpcode::kCompareSwap || opcode == SendOpcode::kFetchAdd;
    const Sge word{kIova, 8, keys_.lkey};
    (void)engine_.post_send(now_, qpn_of(flags, 1, 8, 16),
                            {.opcode = opcode,
                             .signaled = (flags & 2) != 0,
                             .fence = (flags & 4) != 0,
                             .ah = ah_,
                             .remote_qpn = 0x99,
                             .remote_srq = 1,
                             .sges = atomic ? std::span(&word, 1) : std::span(list)});
  }

  void post_recv(Input& input) {
    const std::uint8_t choice = input.byte();
    const Qpn qpn = qpn_of(choice, 1, 2, 4);
    const auto list = sges(input);
    if (qpn == kXrcRecvQpn) return (void)engine_.post_srq_recv(now_, srq_, {.sges = list});
    (void)engine_.post_recv(now_, qpn, {.sges = list});
  }

  void control(Input& input) {
    const std::uint8_t choice = input.byte();
    const Qpn qpn = qpn_of(choice, 1, 16, 8);
    constexpr std::array kStates{QpState::kReset, QpState::kErr, QpState::kSqd, QpState::kRts};
    switch (choice >> 5) {
      case 0:
        (void)engine_.destroy_qp(now_, qpn);
        return create(qpn);
      case 1:
        return engine_.fail_all(now_);
      case 2:
        return engine_.request_notify(cq_, NotifyKind::kNextCompletion);
      case 3:
        return (void)engine_.modify_qp(now_, qpn, {.state = kStates[choice / 2 % kStates.size()]}, kQpState);
      case 4:
        UCM_CHECK(engine_.destroy_srq(srq_).has_value());
        return create_srq();
      default:
        return connect();
    }
  }

  void drain() {
    std::array<std::uint8_t, kPacketSizeMax> out;
    wire::DatagramInfo info;
    std::size_t packets = 0;
    while (const std::size_t size = engine_.poll_packet(now_, 0xC000, info, out)) {
      UCM_CHECK(wire::verify_icrc(info, Bytes(out).first(size)) == wire::IcrcCheck::kGood);
      constexpr std::size_t kPacketsMax = 100'000;
      UCM_CHECK(++packets < kPacketsMax);
    }
    while (engine_.poll_event()) {
    }
    std::array<Completion, 16> completions;
    for (;;) {
      const Result<std::size_t> count = engine_.poll_cq(cq_, completions);
      if (!count || *count == 0) break;
    }
  }

  Engine engine_;
  std::vector<std::uint64_t> storage_;
  PdId pd_{};
  CqId cq_{};
  XrcdId xrcd_{};
  SrqId srq_{};
  AhId ah_{};
  MrKeys keys_;
  TimeNs now_ = 1;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kInputSizeMax = 4096;
  if (size > kInputSizeMax) return 0;
  Victim victim;
  Input input(data, size);
  while (!input.empty()) victim.step(input);
  victim.finish();
  return 0;
}
