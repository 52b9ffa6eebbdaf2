#include "roce/completion_queue.h"

#include <algorithm>

namespace ucm::roce {

bool CompletionQueue::push(const Completion& completion, bool solicited, EventQueue& events) {
  if (overrun_) return false;
  if (entries_.size() >= capacity_) {
    overrun_ = true;
    events.push({.type = EventType::kCqOverrun, .user = user_});
    return false;
  }
  entries_.push(completion);
  // An error counts as solicited (IBTA 11.4.2.2).
  const bool wakes = armed_ == Armed::kNext ||
                     (armed_ == Armed::kSolicited && (solicited || completion.status != CompletionStatus::kSuccess));
  if (wakes) {
    armed_ = Armed::kNo;
    events.push({.type = EventType::kCompletion, .user = user_});
  }
  return true;
}

std::size_t CompletionQueue::poll(std::span<Completion> out) {
  const std::size_t count = std::min(out.size(), entries_.size());
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = entries_.front();
    entries_.pop_front();
  }
  return count;
}

void CompletionQueue::request_notify(NotifyKind kind) {
  if (kind == NotifyKind::kNextCompletion) {
    armed_ = Armed::kNext;
  } else if (armed_ == Armed::kNo) {
    armed_ = Armed::kSolicited;
  }
}

void CompletionQueue::remove_completions_of(Qpn qpn) {
  entries_.remove_if([qpn](const Completion& entry) { return entry.qpn == qpn; });
}

}  // namespace ucm::roce
