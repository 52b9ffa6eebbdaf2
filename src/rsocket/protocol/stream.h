// One connected stream as a pure engine: what to write into the peer's memory next, and what its messages mean. The
// shell posts what poll_write() gives, in that order and each as one RDMA write, and reports messages and completions.
//
// After every call but the const ones, poll_write() must be called until it gives nothing.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/ring_queue.h"
#include "rsocket/protocol/incoming.h"
#include "rsocket/protocol/limits.h"
#include "rsocket/protocol/messages.h"
#include "rsocket/protocol/outgoing.h"

namespace ucm::rsocket {

struct StreamSizes {
  std::uint32_t send_buffer = kBufferSizeDefault;
  std::uint32_t receive_buffer = kBufferSizeDefault;
  std::uint16_t send_queue = kQueueSizeDefault;
  std::uint16_t receive_queue = kQueueSizeDefault;
  std::uint16_t iomap = 0;  // entries that the peer may map to us

  // Within the limits, and with a receive buffer of two halves.
  StreamSizes rounded() const;
};

// Which part of a socket call's work is done.
enum class ReceiveMode : std::uint8_t { kTake, kPeek };

class Stream {
 public:
  // Memory of the stream: one block that the peer writes to (target list, I/O map, receive buffer), and one that
  // leaves from here (send buffer, entries of control messages).
  static std::size_t remote_block_size(const StreamSizes& sizes);
  static std::size_t local_block_size(const StreamSizes& sizes);

  // `sizes` are rounded; the blocks are zero and outlive the stream. `key` is that of the remote block.
  Stream(const StreamSizes& sizes, MutableBytes remote_block, MutableBytes local_block, std::uint32_t key);

  // For the private data of the connection.
  ConnectionData connection_data() const;
  void connected(const ConnectionData& peer);

  struct Write {
    enum class Kind : std::uint8_t { kRequest, kControl, kDisconnect };
    Kind kind = Kind::kRequest;
    std::uint32_t offset = 0;  // in the local block
    std::uint32_t length = 0;
    std::uint64_t remote_address = 0;
    std::uint32_t remote_key = 0;
    std::optional<std::uint32_t> immediate;
    std::uint32_t held = 0;  // bytes of the send buffer that come free
  };
  std::optional<Write> poll_write();
  // A write has completed, in the order in which they were polled.
  void on_written(Write::Kind kind, std::uint32_t held);
  // Immediate data of a write of `written` bytes by the peer.
  void on_message(std::uint32_t immediate, std::uint32_t written);
  // The connection is of no use any more; `error` is what calls say, 0 for an end that both sides know of.
  void on_end(int error);

  bool readable() const { return !incoming_.empty(); }
  // There is data, or there will never be any.
  bool receive_returns() const { return readable() || !receiving_; }
  bool may_send() const { return sending_ && maps_to_tell_.empty() && outgoing_.may_send() && outgoing_.room() != 0; }
  bool may_write() const { return sending_ && maps_to_tell_.empty() && outgoing_.may_write(); }
  bool sending() const { return sending_; }
  bool receiving() const { return receiving_; }
  bool connected() const { return connected_; }
  int error() const { return error_; }
  // Nothing is under way or waits for its turn.
  bool idle() const;

  // As much as there is; 0 at the end of the stream too.
  std::size_t receive(MutableBytes out, ReceiveMode mode);
  // As much as goes now in one write; 0 unless may_send().
  std::size_t send(Bytes data);
  void shut_down_sending();
  void shut_down_receiving();
  void send_keepalive();

  // The `length` bytes at `offset` of the peer's are this host's `buffer`. Returns the index of the entry that tells
  // so; nullopt when the peer takes no more.
  std::optional<std::uint16_t> map(std::uint64_t offset, const RemoteBuffer& buffer);
  void unmap(std::uint16_t index);
  // Whether the peer has mapped something at `offset`.
  bool mapped(std::uint64_t offset) const { return find_mapping(offset) != nullptr; }
  // As much as goes now in one write to what is mapped at `offset`; 0 unless may_write() and mapped().
  std::size_t write_mapped(std::uint64_t offset, Bytes data);

 private:
  MutableBytes target_list() const { return remote_block_.first(kTargetEntries * kBufferEntrySize); }
  MutableBytes iomap_entries() const;
  MutableBytes receive_buffer() const { return remote_block_.last(sizes_.receive_buffer); }
  MutableBytes send_buffer() const { return local_block_.first(sizes_.send_buffer); }
  const IoMapEntry* find_mapping(std::uint64_t offset) const;
  void tell_maps();
  void queue_control(Control control);
  std::optional<Write> poll_control();
  Write grant();

  const StreamSizes sizes_;
  const MutableBytes remote_block_;
  const MutableBytes local_block_;
  const std::uint32_t key_;

  Outgoing outgoing_;
  Incoming incoming_;
  RingQueue<Write> writes_;
  std::uint16_t controls_free_ = kControlSlots;
  std::uint16_t next_control_slot_ = 0;
  RingQueue<Control> controls_;  // to be sent

  bool connected_ = false;
  bool sending_ = false;
  bool receiving_ = false;
  int error_ = 0;

  ByteOrder order_ = ByteOrder::kOwn;  // of the peer
  RemoteBuffer peer_list_;
  std::uint32_t peer_entry_ = 1;      // entry 0 went with the connection data
  RemoteBuffer peer_iomap_;           // length counts entries
  std::vector<IoMapEntry> mappings_;  // by the peer
  std::vector<bool> maps_;            // by this side: which entries are in use
  struct Map {
    std::uint16_t index;
    IoMapEntry entry;
  };
  std::deque<Map> maps_to_tell_;
};

}  // namespace ucm::rsocket
