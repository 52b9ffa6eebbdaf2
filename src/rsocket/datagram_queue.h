// What a datagram socket has of the device for one local address: a UD QP with slots for what is sent and received.
#pragma once

#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <functional>
#include <memory>
#include <vector>

#include "base/result.h"
#include "rdma/process.h"
#include "rsocket/memory_block.h"
#include "rsocket/protocol/datagrams.h"
#include "rsocket/settings.h"

namespace ucm::rsocket {

class DatagramQueue {
 public:
  // `local` has no port; the header is what its datagrams begin with.
  static Result<std::unique_ptr<DatagramQueue>> create(const sockaddr_storage& local, const DatagramHeader& header,
                                                       const Settings& settings);
  ~DatagramQueue();
  DatagramQueue(const DatagramQueue&) = delete;
  DatagramQueue& operator=(const DatagramQueue&) = delete;
  // Leaves everything to the process that forked this one.
  void abandon() { abandoned_ = true; }

  const sockaddr_storage& local() const { return local_; }
  std::uint32_t qpn() const { return qp_->qp_num; }
  // Of a peer's address; owned by the caller.
  Result<ibv_ah*> address_handle(const sockaddr_storage& peer);

  // Bytes of data that fit into a datagram between QPs.
  std::size_t size_max() const { return size_max_; }
  bool may_send() const { return !free_slots_.empty(); }
  bool idle() const { return free_slots_.size() == send_slots_; }
  // may_send(), at most size_max() bytes.
  Result<void> send(std::span<const iovec> data, ibv_ah* to, std::uint32_t qpn);

  // Takes in completions and calls `receive` with each datagram. Whether there were any.
  bool poll(const std::function<void(Bytes)>& receive);
  int event_fd() const { return channel_->fd; }
  void arm();
  void take_events();

 private:
  DatagramQueue(rdma::Device& device, const sockaddr_storage& local, const DatagramHeader& header)
      : device_(device), local_(local), header_(header) {}
  Result<void> create_queues(const Settings& settings);
  Result<void> ready_qp();
  Result<void> register_memory();
  std::uint8_t* send_slot(std::size_t slot) const;
  std::uint8_t* receive_slot(std::size_t slot) const;
  Result<void> post_receive(std::size_t slot);

  rdma::Device& device_;
  const sockaddr_storage local_;
  const DatagramHeader header_;
  MemoryBlock memory_;
  ibv_mr* region_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  std::size_t send_slots_ = 0;
  std::size_t receive_slots_ = 0;
  std::size_t size_max_ = 0;
  std::vector<std::size_t> free_slots_;
  bool armed_ = false;
  bool abandoned_ = false;
};

}  // namespace ucm::rsocket
