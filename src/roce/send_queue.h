// Posted sends in order, from post_send() to their completion.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ring_queue.h"
#include "roce/engine.h"

namespace ucm::roce {

struct Send {
  std::uint64_t wr_id = 0;
  SendOpcode opcode = SendOpcode::kSend;
  bool signaled = false;
  bool solicited = false;
  bool fence = false;
  bool inline_data = false;
  std::uint32_t immediate = 0;  // wire order, or the rkey to invalidate
  std::uint64_t remote_address = 0;
  std::uint32_t rkey = 0;
  std::uint64_t compare_or_add = 0;
  std::uint64_t swap = 0;
  WindowBinding binding;          // kBindWindow
  AddressVector address;          // UD
  Qpn remote_qpn = 0;             // UD
  std::uint32_t remote_srq = 0;   // XRC
  std::uint32_t remote_qkey = 0;  // UD
  std::uint32_t length = 0;       // bytes
  std::vector<Sge> sges;
  std::vector<std::uint8_t> inline_bytes;

  // Set by the requester when it starts on this one.
  std::uint32_t first_psn = 0;
  std::uint32_t packet_count = 0;  // PSNs it takes; 0 for a local operation
  bool executed = false;           // a local operation: it has been done
  // A local error found while sending: completes with this once everything before has completed.
  CompletionStatus failure = CompletionStatus::kSuccess;
};

constexpr bool is_read(const Send& send) { return send.opcode == SendOpcode::kRead; }
constexpr bool is_atomic(const Send& send) {
  return send.opcode == SendOpcode::kCompareSwap || send.opcode == SendOpcode::kFetchAdd;
}
// Whether it is done without a packet.
constexpr bool is_local(const Send& send) {
  return send.opcode == SendOpcode::kLocalInvalidate || send.opcode == SendOpcode::kBindWindow;
}
// Whether data comes back into the request's scatter list.
constexpr bool returns_data(const Send& send) { return is_read(send) || is_atomic(send); }

class SendQueue {
 public:
  explicit SendQueue(const QpCapacity& capacity) : capacity_(capacity) {}

  RingQueue<Send>& sends() { return sends_; }
  const RingQueue<Send>& sends() const { return sends_; }

  // EINVAL: what `type` cannot send, too many elements, too long (more than `length_max` for a datagram).
  // ENOMEM: full. The address of a datagram is filled in by the caller afterwards.
  Result<Send*> post(QpType type, const SendRequest& request, std::uint32_t length_max);

 private:
  Result<std::uint32_t> check(QpType type, const SendRequest& request, std::uint32_t length_max) const;

  RingQueue<Send> sends_;
  QpCapacity capacity_;
};

}  // namespace ucm::roce
