// What a stream has of the device: an RC QP on an ID, its completion queue, and the registered memory of the stream.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <span>

#include "base/result.h"
#include "rdma/id.h"
#include "rsocket/memory_block.h"
#include "rsocket/protocol/stream.h"

namespace ucm::rsocket {

class ReliableQueue {
 public:
  // The QP of an ID that has a device, with all receives posted.
  static Result<std::unique_ptr<ReliableQueue>> create(rdma::Id& id, const StreamSizes& sizes,
                                                       std::uint32_t inline_size);
  ~ReliableQueue();
  ReliableQueue(const ReliableQueue&) = delete;
  ReliableQueue& operator=(const ReliableQueue&) = delete;
  // Leaves everything to the process that forked this one.
  void abandon() { abandoned_ = true; }

  MutableBytes remote_block() const { return remote_block_.bytes(); }
  MutableBytes local_block() const { return local_block_.bytes(); }
  std::uint32_t remote_key() const { return remote_region_->rkey; }
  std::uint32_t inline_size() const { return inline_size_; }
  ibv_pd* protection_domain() const { return id_.pd; }

  Result<void> post(const Stream::Write& write);
  Result<void> post_receives(std::size_t count);
  // How many; negative when the queue is broken.
  int poll(std::span<ibv_wc> completions);
  static bool is_receive(const ibv_wc& completion);
  static Stream::Write::Kind kind_of(const ibv_wc& completion);
  static std::uint32_t held_of(const ibv_wc& completion);

  // Readable after the next completion. Completions that are there already must be polled for after arm().
  int event_fd() const { return channel_->fd; }
  void arm();
  void take_events();

 private:
  explicit ReliableQueue(rdma::Id& id) : id_(id) {}
  Result<void> create_queues(const StreamSizes& sizes, std::uint32_t inline_size);
  Result<void> register_memory(const StreamSizes& sizes);

  rdma::Id& id_;
  MemoryBlock remote_block_;
  MemoryBlock local_block_;
  ibv_mr* remote_region_ = nullptr;
  ibv_mr* local_region_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  std::uint32_t inline_size_ = 0;
  bool armed_ = false;
  bool abandoned_ = false;
};

}  // namespace ucm::rsocket
