// Posted receives in order: of one QP, or shared by several (SRQ).
#pragma once

#include <cstdint>
#include <vector>

#include "base/ring_queue.h"
#include "roce/engine.h"

namespace ucm::roce {

struct Receive {
  std::uint64_t wr_id = 0;
  std::vector<Sge> sges;
};

class ReceiveQueue {
 public:
  ReceiveQueue(std::uint32_t wr_max, std::uint32_t sge_max) : wr_max_(wr_max), sge_max_(sge_max) {}

  bool empty() const { return receives_.empty(); }
  std::size_t size() const { return receives_.size(); }
  std::uint32_t capacity() const { return wr_max_; }
  void clear() { receives_.clear(); }

  // EINVAL: too many elements. ENOMEM: full.
  Result<void> post(const RecvRequest& request);
  // nullptr when there is none.
  const Receive* oldest() const { return receives_.empty() ? nullptr : &receives_.front(); }
  // Moves the oldest out by exchanging vectors, so that nothing is allocated. False when there is none.
  bool take(Receive& receive);

 private:
  RingQueue<Receive> receives_;
  std::uint32_t wr_max_;
  std::uint32_t sge_max_;
};

struct SharedReceiveQueue {
  SharedReceiveQueue(PdId domain, std::uint32_t wr_max, std::uint32_t sge_max, std::uint64_t owner)
      : pd(domain), queue(wr_max, sge_max), user(owner) {}

  PdId pd;
  ReceiveQueue queue;
  std::uint64_t user;
  std::uint32_t limit = 0;  // an event is due when fewer receives than this are left; 0 = off
  std::uint32_t users = 0;  // QPs attached
};

}  // namespace ucm::roce
