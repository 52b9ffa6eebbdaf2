#include "roce/receive_queue.h"

#include <cerrno>

namespace ucm::roce {

Result<void> ReceiveQueue::post(const RecvRequest& request) {
  if (request.sges.size() > sge_max_) return fail(EINVAL, "a receive has more scatter elements than the queue allows");
  if (receives_.size() >= wr_max_) return fail(ENOMEM, "the receive queue is full");
  Receive& receive = receives_.push_reused();
  receive.wr_id = request.wr_id;
  receive.sges.assign(request.sges.begin(), request.sges.end());
  return {};
}

bool ReceiveQueue::take(Receive& receive) {
  if (receives_.empty()) return false;
  std::swap(receive, receives_.front());
  receives_.pop_front();
  return true;
}

}  // namespace ucm::roce
