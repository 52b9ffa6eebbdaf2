#include "roce/memory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "roce/limits.h"

namespace ucm::roce {
namespace {

constexpr std::uint32_t kRemoteRights = kAccessRemoteRead | kAccessRemoteWrite | kAccessRemoteAtomic;

// Calls visit(sge, offset_in_sge, position, length) for each piece of [offset, offset + length) of the list, until one
// returns false. Returns how many bytes were visited.
template <class Visit>
std::uint64_t visit_pieces(std::span<const Sge> sges, std::uint64_t offset, std::uint64_t length, Visit visit) {
  std::uint64_t position = 0;
  for (const Sge& sge : sges) {
    if (position == length) break;
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    const std::uint64_t piece = std::min<std::uint64_t>(sge.length - offset, length - position);
    if (!visit(sge, offset, position, piece)) break;
    position += piece;
    offset = 0;
  }
  return position;
}

Result<void> check(const MrParams& params) {
  const bool remote_changes = (params.access & (kAccessRemoteWrite | kAccessRemoteAtomic)) != 0;
  if (remote_changes && (params.access & kAccessLocalWrite) == 0) {
    return fail(EINVAL, "a memory region with remote write or atomic access needs local write access");
  }
  const auto address = reinterpret_cast<std::uintptr_t>(params.address);
  if (params.length != 0 && address == 0) return fail(EINVAL, "a memory region needs an address");
  if (params.length > UINT64_MAX - address || params.length > UINT64_MAX - params.iova) {
    return fail(EINVAL, "a memory region must not wrap round the end of the address space");
  }
  return {};
}

}  // namespace

Result<MrKeys> MemoryTable::add(const MrParams& params) {
  if (Result<void> valid = check(params); !valid) return tl::unexpected(valid.error());
  if (regions_.size() >= kObjectsMax) return fail(ENOMEM, "too many memory regions");

  // Keys 0 and ~0 stay unused: programs take them for "none".
  std::uint32_t key = 0;
  while (key == 0 || key == UINT32_MAX || regions_.contains(key)) key = random_.next_u32();
  regions_.emplace(key, Region{.params = params});
  return MrKeys{.lkey = key, .rkey = key};
}

Result<PdId> MemoryTable::change(std::uint32_t key, const MrParams& params) {
  const auto found = regions_.find(key);
  if (found == regions_.end()) return fail(EINVAL, "no memory region has this key");
  if (Result<void> valid = check(params); !valid) return tl::unexpected(valid.error());
  const PdId before = found->second.params.pd;
  found->second = Region{.params = params};
  return before;
}

Result<PdId> MemoryTable::remove(std::uint32_t key) {
  const auto found = regions_.find(key);
  if (found == regions_.end()) return fail(EINVAL, "no memory region has this key");
  const PdId pd = found->second.params.pd;
  regions_.erase(found);
  return pd;
}

std::uint8_t* MemoryTable::find(PdId pd, std::uint32_t key, std::uint64_t address, std::uint64_t length,
                                std::uint32_t access) const {
  const auto found = regions_.find(key);
  if (found == regions_.end() || !found->second.valid) return nullptr;
  const MrParams& region = found->second.params;
  if (region.pd != pd || (region.access & access) != access) return nullptr;
  if (address < region.iova || length > region.length || address - region.iova > region.length - length) return nullptr;
  return static_cast<std::uint8_t*>(region.address) + (address - region.iova);
}

bool MemoryTable::invalidate_local(PdId pd, std::uint32_t key) {
  const auto found = regions_.find(key);
  if (found == regions_.end() || !found->second.valid || found->second.params.pd != pd) return false;
  found->second.valid = false;
  return true;
}

bool MemoryTable::invalidate_remote(PdId pd, std::uint32_t key) {
  const auto found = regions_.find(key);
  if (found == regions_.end() || (found->second.params.access & kRemoteRights) == 0) return false;
  return invalidate_local(pd, key);
}

bool MemoryTable::allows(PdId pd, std::span<const Sge> sges, std::uint32_t access) const {
  return std::ranges::all_of(sges, [&](const Sge& sge) {
    return sge.length == 0 || find(pd, sge.lkey, sge.address, sge.length, access) != nullptr;
  });
}

bool MemoryTable::gather(PdId pd, std::span<const Sge> sges, std::uint64_t offset, MutableBytes out) const {
  const std::uint64_t copied = visit_pieces(
      sges, offset, out.size(), [&](const Sge& sge, std::uint64_t start, std::uint64_t at, std::uint64_t n) {
        const std::uint8_t* from = find(pd, sge.lkey, sge.address, sge.length, 0);
        if (from == nullptr) return false;
        std::memcpy(out.data() + at, from + start, n);
        return true;
      });
  return copied == out.size();
}

ScatterResult MemoryTable::scatter(PdId pd, std::span<const Sge> sges, std::uint64_t offset, Bytes bytes) const {
  bool allowed = true;
  const std::uint64_t copied = visit_pieces(
      sges, offset, bytes.size(), [&](const Sge& sge, std::uint64_t start, std::uint64_t at, std::uint64_t n) {
        std::uint8_t* to = find(pd, sge.lkey, sge.address, sge.length, kAccessLocalWrite);
        allowed = to != nullptr;
        if (allowed) std::memcpy(to + start, bytes.data() + at, n);
        return allowed;
      });
  if (!allowed) return ScatterResult::kProtection;
  return copied == bytes.size() ? ScatterResult::kDone : ScatterResult::kTooLong;
}

}  // namespace ucm::roce
