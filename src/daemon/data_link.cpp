#include "daemon/data_link.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <system_error>

#include "ipc/control_messages.h"

namespace ucm::daemon {

Result<DataLink> DataLink::create() {
  DataLink link;
  auto memfd = ipc::create_memfd("ucm-data-link", ipc::kDataLinkSize);
  if (!memfd) return tl::unexpected(memfd.error());
  auto memory = ipc::SharedMemory::map(memfd->get(), ipc::kDataLinkSize);
  if (!memory) return tl::unexpected(memory.error());
  link.memfd_ = std::move(*memfd);
  link.memory_ = std::move(*memory);
  link.wake_fd_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!link.wake_fd_) {
    const int code = errno;
    return fail(code, "eventfd: " + std::generic_category().message(code));
  }
  link.packets_ = ipc::RingProducer(link.memory_.data(), ipc::kDataRingSize);
  return link;
}

Result<DataLink> DataLink::resume(ipc::FileDescriptor memory, ipc::FileDescriptor wake) {
  DataLink link;
  if (!memory || !wake) return fail(EPROTO, "a descriptor of a data link is lost");
  auto mapped = ipc::SharedMemory::map(memory.get(), ipc::kDataLinkSize);
  if (!mapped) return tl::unexpected(mapped.error());
  link.memory_ = std::move(*mapped);
  link.wake_fd_ = std::move(wake);
  void* const ring = link.memory_.data();
  link.packets_ = ipc::RingProducer(ring, ipc::kDataRingSize, ipc::RingProducer::published_tail(ring));
  // The program may sleep before a packet that nobody has told it of.
  eventfd_write(link.wake_fd_.get(), 1);
  return link;
}

DataLink::Delivery DataLink::deliver(const wire::DatagramInfo& info, Bytes payload) {
  if (payload.size() > ipc::kDataPayloadMax) return Delivery::kTooLong;
  const ipc::DataRecord record{.source = info.source.bytes,
                               .destination = info.destination.bytes,
                               .ifindex = info.ifindex,
                               .source_port = info.source_port,
                               .destination_port = info.destination_port,
                               .ipv4_id = info.ipv4_id,
                               .traffic_class = info.traffic_class,
                               .hop_limit = info.hop_limit};
  switch (packets_.try_push(ipc::bytes_of(record), payload)) {
    case ipc::RingProducer::Push::kPushed:
      return Delivery::kDelivered;
    case ipc::RingProducer::Push::kPushedWake:
      eventfd_write(wake_fd_.get(), 1);
      return Delivery::kDelivered;
    case ipc::RingProducer::Push::kFull:
      return Delivery::kFull;
    case ipc::RingProducer::Push::kBroken:
      return Delivery::kBroken;
  }
  return Delivery::kBroken;
}

}  // namespace ucm::daemon
