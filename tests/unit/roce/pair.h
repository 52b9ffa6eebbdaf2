// Two hosts with a connected pair of RC or UC queue pairs and a memory region each: what most tests start from. Of XRC
// one pair is one direction: a sends, b receives into an SRQ.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "network.h"
#include "roce/engine.h"

namespace ucm::roce::test {

inline constexpr std::uint32_t kAllAccess =
    kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic;

struct PairOptions {
  QpType type = QpType::kRc;  // kXrcSend for XRC
  std::uint8_t path_mtu = 3;  // 1024 bytes
  std::uint8_t timeout = 14;
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry = 7;
  std::uint8_t min_rnr_timer = 12;  // 0.64 ms
  std::uint8_t max_rd_atomic = 16;
  std::uint8_t max_dest_rd_atomic = 16;
  std::uint32_t access = kAllAccess;
  std::uint32_t first_psn = 0xFFFFF0;  // so that tests cross the wrap
  std::uint32_t work_requests = 64;
  std::uint32_t completions = 4096;
  bool signal_all = false;
  std::size_t memory_size = 256 * 1024;
  bool with_srq = false;
};

// One side.
struct End {
  Host* host = nullptr;
  PdId pd{};
  CqId send_cq{};
  CqId recv_cq{};
  std::optional<SrqId> srq;
  std::optional<XrcdId> xrcd;
  std::uint32_t srq_number = 0;
  Qpn qpn = 0;
  QpType qp_type = QpType::kRc;
  MrKeys keys;
  std::vector<std::uint64_t> storage;  // 8-aligned, for atomics

  std::uint8_t* memory() { return reinterpret_cast<std::uint8_t*>(storage.data()); }
  std::size_t memory_size() const { return storage.size() * sizeof(std::uint64_t); }
  // As work requests and the peer name it: not where it is in this process, so that every run is the same.
  std::uint64_t address(std::size_t offset = 0) { return 0x7000'0000'0000 + offset; }
  Sge sge(std::size_t offset, std::uint32_t length) { return {address(offset), length, keys.lkey}; }

  Engine& engine() { return host->engine; }
  std::vector<Completion> poll(CqId cq);
  std::vector<Completion> poll_send() { return poll(send_cq); }
  std::vector<Completion> poll_recv() { return poll(recv_cq); }
  std::size_t count_events(EventType type) const;
  QpState state() { return engine().query_qp(qpn)->state; }
};

struct Pair {
  explicit Pair(std::uint64_t seed = 1, Faults faults = {}, PairOptions options = {});

  Network network;
  PairOptions options;
  End a;
  End b;

  void open(End& end, Host& host, Qpn qpn, QpType type = QpType::kRc);
  Result<void> to_init(End& end);
  Result<void> to_rtr(End& end, const End& peer);
  Result<void> to_rts(End& end);
  void connect();

  Result<void> send(End& end, SendRequest request, std::vector<Sge> sges = {});
  Result<void> recv(End& end, std::uint64_t wr_id, std::vector<Sge> sges = {});
  // A request from a's memory at `local` to b's at `remote`, or the other way round for READ and atomics.
  SendRequest request(SendOpcode opcode, End& peer, std::size_t remote) {
    return {.wr_id = 1,
            .opcode = opcode,
            .signaled = true,
            .remote_address = peer.address(remote),
            .rkey = peer.keys.rkey,
            .remote_srq = peer.srq_number};
  }
  bool run_until(const std::function<bool()>& done, TimeNs limit = 1000 * kNanosecondsPerSecond) {
    return network.run_until(done, limit);
  }
  // Runs until `count` completions have come to `cq`; fewer when nothing more happens.
  std::vector<Completion> wait(End& end, CqId cq, std::size_t count, TimeNs limit = 1000 * kNanosecondsPerSecond);
};

void fill(End& end, std::size_t offset, std::size_t length, std::uint64_t seed);

}  // namespace ucm::roce::test
