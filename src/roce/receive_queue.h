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

class CompletionQueue;

struct SharedReceiveQueue {
  explicit SharedReceiveQueue(const SrqParams& srq_params)
      : params(srq_params), queue(srq_params.wr_max, srq_params.sge_max) {}

  SrqParams params;
  ReceiveQueue queue;
  std::uint32_t number = 0;       // XRC
  CompletionQueue* cq = nullptr;  // XRC
  std::uint32_t limit = 0;        // an event is due when fewer receives than this are left; 0 = off
  std::uint32_t users = 0;        // QPs attached
};

// Whose receives a request of the peer takes, where they complete, and whose memory it may use.
struct ReceiveTarget {
  PdId pd{};
  SharedReceiveQueue* srq = nullptr;  // null: the QP's own receives
  CompletionQueue* cq = nullptr;
};

}  // namespace ucm::roce
