// A completion queue: a bounded FIFO that can be armed for one notification.
#pragma once

#include <cstdint>
#include <span>

#include "base/ring_queue.h"
#include "roce/engine.h"

namespace ucm::roce {

using EventQueue = RingQueue<Event>;

class CompletionQueue {
 public:
  CompletionQueue(std::uint32_t capacity, std::uint64_t user) : capacity_(capacity), user_(user) {}

  std::uint32_t capacity() const { return capacity_; }
  std::uint64_t user() const { return user_; }
  bool overrun() const { return overrun_; }
  std::size_t size() const { return entries_.size(); }
  void set_capacity(std::uint32_t capacity) { capacity_ = capacity; }

  // Appends, and an event too when the queue is armed for it. False when the queue is full: the completion is lost and
  // the queue unusable from now on (IBTA 11.6.3.1), which the first such call reports as an event.
  bool push(const Completion& completion, bool solicited, EventQueue& events);
  // Moves out up to out.size() completions; returns how many.
  std::size_t poll(std::span<Completion> out);
  // The stronger of two requests stands until an event is delivered.
  void request_notify(NotifyKind kind);
  void remove_completions_of(Qpn qpn);

  std::uint32_t users = 0;  // queue references of QPs

 private:
  enum class Armed : std::uint8_t { kNo, kSolicited, kNext };

  RingQueue<Completion> entries_;
  std::uint32_t capacity_;
  std::uint64_t user_;
  Armed armed_ = Armed::kNo;
  bool overrun_ = false;
};

}  // namespace ucm::roce
