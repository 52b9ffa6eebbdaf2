#include "pair.h"

#include <algorithm>
#include <array>

namespace ucm::roce::test {

std::vector<Completion> End::poll(CqId cq) {
  std::vector<Completion> all;
  std::array<Completion, 16> some;
  for (;;) {
    const Result<std::size_t> count = engine().poll_cq(cq, some);
    if (!count || *count == 0) return all;
    all.insert(all.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(*count));
  }
}

std::size_t End::count_events(EventType type) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(host->events, [type](const Event& event) { return event.type == type; }));
}

Pair::Pair(std::uint64_t seed, Faults faults, PairOptions pair_options) : network(seed, faults), options(pair_options) {
  open(a, network.add_host(0x0A000001), 0x11, options.type);
  open(b, network.add_host(0x0A000002), 0x22, options.type == QpType::kXrcSend ? QpType::kXrcRecv : options.type);
}

void Pair::open(End& end, Host& host, Qpn qpn, QpType type) {
  end.host = &host;
  end.qp_type = type;
  Engine& engine = host.engine;
  end.pd = *engine.alloc_pd();
  end.send_cq = *engine.create_cq(options.completions, 100 + qpn);
  end.recv_cq = *engine.create_cq(options.completions, 200 + qpn);
  SrqParams srq{.pd = end.pd, .wr_max = options.work_requests, .sge_max = 4, .user = 300 + qpn};
  if (type == QpType::kXrcRecv) {
    end.xrcd = *engine.alloc_xrcd();
    srq.xrc = {.xrcd = *end.xrcd, .cq = end.recv_cq};
  }
  if (options.with_srq || srq.xrc) end.srq = *engine.create_srq(srq);
  if (srq.xrc) end.srq_number = *engine.srq_number(*end.srq);
  QpParams params{.qpn = qpn,
                  .type = type,
                  .pd = end.pd,
                  .send_cq = end.send_cq,
                  .recv_cq = end.recv_cq,
                  .srq = srq.xrc ? std::nullopt : end.srq,
                  .xrcd = end.xrcd.value_or(XrcdId{}),
                  .capacity = {.send_wr_max = options.work_requests,
                               .recv_wr_max = options.work_requests,
                               .send_sge_max = 8,
                               .recv_sge_max = 8,
                               .inline_max = 256},
                  .signal_all = options.signal_all,
                  .user = qpn};
  ASSERT_TRUE(engine.create_qp(params));
  end.qpn = qpn;
  end.storage.assign(options.memory_size / sizeof(std::uint64_t), 0);
  end.keys = *engine.reg_mr({.pd = end.pd,
                             .address = end.memory(),
                             .length = end.memory_size(),
                             .iova = end.address(),
                             .access = kAllAccess});
}

Result<void> Pair::to_init(End& end) {
  return end.engine().modify_qp(network.now(), end.qpn, {.state = QpState::kInit, .access = options.access},
                                kQpState | kQpAccess);
}

Result<void> Pair::to_rtr(End& end, const End& peer) {
  const bool reliable = end.qp_type == QpType::kRc || end.qp_type == QpType::kXrcRecv;
  const std::uint32_t more = reliable ? kQpMaxDestRdAtomic | kQpMinRnrTimer : 0;
  return end.engine().modify_qp(network.now(), end.qpn,
                                {.state = QpState::kRtr,
                                 .address = {.local = end.host->address, .remote = peer.host->address},
                                 .path_mtu = options.path_mtu,
                                 .rq_psn = options.first_psn,
                                 .max_dest_rd_atomic = options.max_dest_rd_atomic,
                                 .min_rnr_timer = options.min_rnr_timer,
                                 .dest_qpn = peer.qpn},
                                kQpState | kQpAddress | kQpPathMtu | kQpRqPsn | kQpDestQpn | more);
}

Result<void> Pair::to_rts(End& end) {
  std::uint32_t more = end.qp_type == QpType::kUc ? 0 : kQpTimeout | kQpRetryCount | kQpRnrRetry | kQpMaxRdAtomic;
  if (end.qp_type == QpType::kXrcRecv) more = kQpTimeout;
  return end.engine().modify_qp(network.now(), end.qpn,
                                {.state = QpState::kRts,
                                 .timeout = options.timeout,
                                 .retry_count = options.retry_count,
                                 .rnr_retry = options.rnr_retry,
                                 .sq_psn = options.first_psn,
                                 .max_rd_atomic = options.max_rd_atomic},
                                kQpState | kQpSqPsn | more);
}

void Pair::connect() {
  for (End* end : {&a, &b}) {
    ASSERT_TRUE(to_init(*end));
    ASSERT_TRUE(to_rtr(*end, end == &a ? b : a));
    ASSERT_TRUE(to_rts(*end));
  }
}

Result<void> Pair::send(End& end, SendRequest request, std::vector<Sge> sges) {
  request.sges = sges;
  return end.engine().post_send(network.now(), end.qpn, request);
}

Result<void> Pair::recv(End& end, std::uint64_t wr_id, std::vector<Sge> sges) {
  if (end.srq) return end.engine().post_srq_recv(network.now(), *end.srq, {.wr_id = wr_id, .sges = sges});
  return end.engine().post_recv(network.now(), end.qpn, {.wr_id = wr_id, .sges = sges});
}

std::vector<Completion> Pair::wait(End& end, CqId cq, std::size_t count, TimeNs limit) {
  std::vector<Completion> all;
  network.run_until(
      [&] {
        for (const Completion& completion : end.poll(cq)) all.push_back(completion);
        return all.size() >= count;
      },
      limit);
  return all;
}

void fill(End& end, std::size_t offset, std::size_t length, std::uint64_t seed) {
  Random random(seed);
  for (std::size_t i = 0; i < length; ++i) end.memory()[offset + i] = static_cast<std::uint8_t>(random.next());
}

}  // namespace ucm::roce::test
