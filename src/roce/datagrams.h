// What a UD queue pair does: each send is one packet and done when it leaves; each packet received fills one receive.
// IBTA 9.8.3.
#pragma once

#include <cstdint>

#include "roce/core.h"
#include "roce/engine.h"
#include "roce/packet.h"
#include "roce/receive_queue.h"
#include "wire/datagram.h"

namespace ucm::roce {

class QueuePair;

class Datagrams {
 public:
  Datagrams(Core& core, QueuePair& qp) : core_(core), qp_(qp) {}

  void start(std::uint32_t sq_psn) { psn_ = sq_psn; }

  bool has_output() const;
  // Writes the oldest send that fits the path MTU as a packet, BTH to pad, with its addresses; 0 when there is none, or
  // it failed locally.
  std::size_t build_packet(wire::DatagramInfo& info, MutableBytes out);
  // What cannot be received (wrong Q_Key, no receive posted, too long for it) is dropped and counted.
  void on_packet(const wire::DatagramInfo& info, const Packet& packet);

 private:
  void skip_what_does_not_fit();

  Core& core_;
  QueuePair& qp_;
  std::uint32_t psn_ = 0;
  Receive receive_;  // keeps its capacity from packet to packet
};

}  // namespace ucm::roce
