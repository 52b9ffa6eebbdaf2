// A stream's data.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "rsocket/stream_socket.h"

namespace ucm::rsocket {
namespace {

MutableBytes bytes_of(const iovec& part) { return {static_cast<std::uint8_t*>(part.iov_base), part.iov_len}; }

// Walks along what a call was given.
class Cursor {
 public:
  explicit Cursor(std::span<const iovec> parts) : parts_(parts) { skip_empty(); }

  bool at_end() const { return parts_.empty(); }
  MutableBytes rest_of_part() const { return bytes_of(parts_.front()).subspan(offset_); }
  void advance(std::size_t bytes) {
    offset_ += bytes;
    total_ += bytes;
    if (offset_ != parts_.front().iov_len) return;
    offset_ = 0;
    parts_ = parts_.subspan(1);
    skip_empty();
  }
  std::size_t total() const { return total_; }

 private:
  void skip_empty() {
    while (!parts_.empty() && parts_.front().iov_len == 0) parts_ = parts_.subspan(1);
  }

  std::span<const iovec> parts_;
  std::size_t offset_ = 0;
  std::size_t total_ = 0;
};

}  // namespace

// Until the connection is there.
Result<void> StreamSocket::await_stream(std::unique_lock<std::mutex>& lock, int flags) {
  if (auto can = usable(); !can) return can;
  if (opening()) {
    if (auto done = wait(lock, patience(flags), [this] { return !opening(); }); !done) return done;
  }
  if (state_ == State::kFailed) return fail(error_ != 0 ? take_error() : ENOTCONN, "cannot connect");
  if (!has_stream()) return fail(ENOTCONN, "not connected");
  return {};
}

Result<std::size_t> StreamSocket::receive(std::span<const iovec> into, int flags, const AddressOut& from) {
  std::unique_lock lock(mutex_);
  if (auto ready = await_stream(lock, flags); !ready) return tl::unexpected(ready.error());
  const ReceiveMode mode = (flags & MSG_PEEK) != 0 ? ReceiveMode::kPeek : ReceiveMode::kTake;
  // Who peeks may look until there is more.
  if (mode == ReceiveMode::kPeek) progress();
  Cursor cursor(into);
  Result<void> come;
  while (!cursor.at_end()) {
    if (!stream_->readable()) {
      come = wait(lock, patience(flags), [this] { return stream_->receive_returns(); });
      if (!come || !stream_->readable()) break;
    }
    while (!cursor.at_end() && stream_->readable()) {
      cursor.advance(stream_->receive(cursor.rest_of_part(), mode));
      if (mode == ReceiveMode::kPeek) break;
    }
    post_writes();
    if (mode == ReceiveMode::kPeek || (flags & MSG_WAITALL) == 0) break;
  }
  if (cursor.total() == 0) {
    if (!come) return tl::unexpected(come.error());
    if (!cursor.at_end() && stream_->error() != 0) return fail(ECONNRESET, "connection lost");
  }
  if (from.address != nullptr) from.store(id_->route.addr.dst_storage);
  return cursor.total();
}

// Moves `size` bytes with `move(done)`, which moves some once `ready()`.
template <class Ready, class Move>
Result<std::size_t> StreamSocket::send_all(std::unique_lock<std::mutex>& lock, std::size_t size, int flags, Ready ready,
                                           Move move) {
  std::size_t done = 0;
  while (done != size) {
    if (state_ != State::kConnected || !ready()) {
      auto free =
          wait(lock, patience(flags), [&] { return !stream_->sending() || (state_ == State::kConnected && ready()); });
      if (!free && done == 0) return tl::unexpected(free.error());
      if (!free) break;
    }
    if (!stream_->sending()) {
      if (done != 0) break;
      return stream_->connected() ? fail(EPIPE, "shut down") : fail(ECONNRESET, "connection lost");
    }
    const std::size_t moved = move(done);
    post_writes();
    if (moved == 0) break;
    done += moved;
  }
  return done;
}

Result<std::size_t> StreamSocket::send(std::span<const iovec> data, int flags, const sockaddr* to, socklen_t size) {
  std::unique_lock lock(mutex_);
  if (to != nullptr || size != 0) return fail(EISCONN, "a stream has one peer");
  if (auto ready = await_stream(lock, flags); !ready) return tl::unexpected(ready.error());
  std::size_t total = 0;
  for (const iovec& part : data) total += part.iov_len;
  Cursor cursor(data);
  return send_all(
      lock, total, flags, [this] { return stream_->may_send(); },
      [&](std::size_t) {
        const std::size_t sent = stream_->send(cursor.rest_of_part());
        cursor.advance(sent);
        return sent;
      });
}

// --- Mapped memory --------------------------------------------------------------------------------------------------

Result<off_t> StreamSocket::map_memory(void* memory, std::size_t size, int protection, off_t offset) {
  std::unique_lock lock(mutex_);
  if (auto ready = await_stream(lock, 0); !ready) return tl::unexpected(ready.error());
  if ((protection & ~(PROT_WRITE | PROT_NONE)) != 0) return fail(EINVAL, "only PROT_WRITE and PROT_NONE");
  if (size > UINT32_MAX) return fail(EINVAL, "too long for an entry of the I/O map");
  const bool for_peer = (protection & PROT_WRITE) != 0;
  errno = 0;
  ibv_mr* const region = ibv_reg_mr(queue_->protection_domain(), memory, size,
                                    IBV_ACCESS_LOCAL_WRITE | (for_peer ? IBV_ACCESS_REMOTE_WRITE : 0));
  if (region == nullptr) return fail(errno != 0 ? errno : ENOMEM, "the memory cannot be registered");
  if (offset == -1) offset = static_cast<off_t>(reinterpret_cast<std::uintptr_t>(memory));
  Mapping mapping{.region = region, .index = std::nullopt};
  if (for_peer) {
    mapping.index =
        stream_->map(static_cast<std::uint64_t>(offset), {.address = reinterpret_cast<std::uintptr_t>(memory),
                                                          .key = region->rkey,
                                                          .length = static_cast<std::uint32_t>(size)});
    if (!mapping.index) {
      ibv_dereg_mr(region);
      return fail(ENOMEM, "the peer's I/O map has no free entry");
    }
  }
  mappings_.push_back(mapping);
  post_writes();
  return offset;
}

Result<void> StreamSocket::unmap_memory(void* memory, std::size_t size) {
  const std::lock_guard lock(mutex_);
  if (auto can = usable(); !can) return can;
  const auto found = std::find_if(mappings_.begin(), mappings_.end(), [&](const Mapping& mapping) {
    return mapping.region->addr == memory && mapping.region->length == size;
  });
  if (found == mappings_.end()) return fail(EINVAL, "not mapped");
  ibv_dereg_mr(found->region);
  if (found->index) stream_->unmap(*found->index);
  mappings_.erase(found);
  return {};
}

Result<std::size_t> StreamSocket::write_mapped(const void* data, std::size_t size, off_t offset, int flags) {
  std::unique_lock lock(mutex_);
  if (auto ready = await_stream(lock, flags); !ready) return tl::unexpected(ready.error());
  progress();
  const auto* bytes = static_cast<const std::uint8_t*>(data);
  const auto start = static_cast<std::uint64_t>(offset);
  // What the peer has not mapped ends the call.
  return send_all(
      lock, size, flags, [this] { return stream_->may_write(); },
      [&](std::size_t done) { return stream_->write_mapped(start + done, {bytes + done, size - done}); });
}

}  // namespace ucm::rsocket
