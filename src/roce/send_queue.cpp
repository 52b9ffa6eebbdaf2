#include "roce/send_queue.h"

#include <cerrno>

#include "wire/headers.h"

namespace ucm::roce {
namespace {

constexpr std::uint32_t kAtomicSize = 8;

bool type_supports(QpType type, SendOpcode opcode) {
  switch (opcode) {
    case SendOpcode::kSend:
    case SendOpcode::kSendImm:
      return true;
    case SendOpcode::kWrite:
    case SendOpcode::kWriteImm:
    case SendOpcode::kLocalInvalidate:
    case SendOpcode::kBindWindow:
      return type != QpType::kUd;
    default:
      return type == QpType::kRc || type == QpType::kXrcSend;
  }
}

void copy_inline(const SendRequest& request, std::vector<std::uint8_t>& out) {
  for (const Sge& sge : request.sges) {
    const auto* from = reinterpret_cast<const std::uint8_t*>(static_cast<std::uintptr_t>(sge.address));
    out.insert(out.end(), from, from + sge.length);
  }
}

}  // namespace

Result<std::uint32_t> SendQueue::check(QpType type, const SendRequest& request, std::uint32_t length_max) const {
  if (!type_supports(type, request.opcode)) return fail(EINVAL, "a queue pair of this type does not do that");
  if (request.sges.size() > capacity_.send_sge_max) {
    return fail(EINVAL, "a send has more gather elements than the queue pair allows");
  }
  std::uint64_t length = 0;
  for (const Sge& sge : request.sges) length += sge.length;
  if (length > length_max) return fail(EINVAL, "a send is longer than a message can be");
  const bool atomic = request.opcode == SendOpcode::kCompareSwap || request.opcode == SendOpcode::kFetchAdd;
  if (atomic && length != kAtomicSize) return fail(EINVAL, "an atomic returns exactly 8 bytes");
  if (request.inline_data) {
    if (length > capacity_.inline_max) return fail(EINVAL, "inline data is longer than the queue pair allows");
    if (atomic || request.opcode == SendOpcode::kRead) return fail(EINVAL, "what returns data cannot be inline");
  }
  if (request.remote_qpn > wire::kMask24) return fail(EINVAL, "a queue pair number has 24 bits");
  if (request.remote_srq > wire::kMask24) return fail(EINVAL, "the number of a shared receive queue has 24 bits");
  if (sends_.size() >= capacity_.send_wr_max) return fail(ENOMEM, "the send queue is full");
  return static_cast<std::uint32_t>(length);
}

Result<Send*> SendQueue::post(QpType type, const SendRequest& request, std::uint32_t length_max) {
  const Result<std::uint32_t> length = check(type, request, length_max);
  if (!length) return tl::unexpected(length.error());
  Send& send = sends_.push_reused();
  send.wr_id = request.wr_id;
  send.opcode = request.opcode;
  send.signaled = request.signaled;
  send.solicited = request.solicited;
  send.fence = request.fence;
  send.inline_data = request.inline_data;
  send.immediate = request.immediate;
  send.remote_address = request.remote_address;
  send.rkey = request.rkey;
  send.compare_or_add = request.compare_or_add;
  send.swap = request.swap;
  send.binding = request.binding;
  send.remote_qpn = request.remote_qpn;
  send.remote_srq = request.remote_srq;
  send.remote_qkey = request.remote_qkey;
  send.length = *length;
  send.sges.clear();
  send.inline_bytes.clear();
  if (request.inline_data) {
    copy_inline(request, send.inline_bytes);
  } else {
    send.sges.assign(request.sges.begin(), request.sges.end());
  }
  send.first_psn = 0;
  send.packet_count = 0;
  send.executed = false;
  send.failure = CompletionStatus::kSuccess;
  return &send;
}

}  // namespace ucm::roce
