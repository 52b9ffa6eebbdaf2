#include "daemon/data_link.h"

#include <cerrno>

#include "ipc/control_messages.h"

namespace ucm::daemon {

Result<DataLink> DataLink::create(ipc::TokenWriter::Reader reader) {
  DataLink link;
  auto memfd = ipc::create_memfd("ucm-data-link", ipc::kDataLinkSize);
  if (!memfd) return tl::unexpected(memfd.error());
  auto memory = ipc::SharedMemory::map(memfd->get(), ipc::kDataLinkSize);
  if (!memory) return tl::unexpected(memory.error());
  link.memfd_ = std::move(*memfd);
  link.memory_ = std::move(*memory);
  auto tokens = ipc::TokenWriter::create(reader, ipc::TokenWriter::Reading::kReturns);
  if (!tokens) return tl::unexpected(tokens.error());
  link.tokens_ = std::move(*tokens);
  link.packets_ = ipc::RingProducer(link.memory_.data(), ipc::kDataRingSize);
  return link;
}

Result<DataLink> DataLink::resume(ipc::FileDescriptor memory, ipc::TokenWriter tokens) {
  DataLink link;
  if (!memory || !tokens) return fail(EPROTO, "a descriptor of a data link is lost");
  auto mapped = ipc::SharedMemory::map(memory.get(), ipc::kDataLinkSize);
  if (!mapped) return tl::unexpected(mapped.error());
  link.memory_ = std::move(*mapped);
  link.tokens_ = std::move(tokens);
  void* const ring = link.memory_.data();
  link.packets_ = ipc::RingProducer(ring, ipc::kDataRingSize, ipc::RingProducer::published_tail(ring));
  // The program may sleep before a packet that nobody has told it of.
  link.tokens_.put();
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
      tokens_.put();
      return Delivery::kDelivered;
    case ipc::RingProducer::Push::kFull:
      return Delivery::kFull;
    case ipc::RingProducer::Push::kBroken:
      return Delivery::kBroken;
  }
  return Delivery::kBroken;
}

}  // namespace ucm::daemon
