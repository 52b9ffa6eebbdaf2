#include "roce/memory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "roce/limits.h"

namespace ucm::roce {
namespace {

constexpr std::uint32_t kRemoteRights = kAccessRemoteRead | kAccessRemoteWrite | kAccessRemoteAtomic;
constexpr std::uint32_t kRemoteChanges = kAccessRemoteWrite | kAccessRemoteAtomic;
constexpr int kWindowTagBits = 8;
constexpr std::uint32_t window_of(std::uint32_t rkey) { return rkey >> kWindowTagBits; }

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
  const bool remote_changes = (params.access & kRemoteChanges) != 0;
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

// Keys 0 and ~0 stay unused: programs take them for "none".
std::uint32_t MemoryTable::make_key() {
  std::uint32_t key = 0;
  while (key == 0 || key == UINT32_MAX || regions_.contains(key) || windows_.contains(window_of(key))) {
    key = random_.next_u32();
  }
  return key;
}

Result<MrKeys> MemoryTable::add(const MrParams& params) {
  if (Result<void> valid = check(params); !valid) return tl::unexpected(valid.error());
  if (regions_.size() >= kObjectsMax) return fail(ENOMEM, "too many memory regions");

  const std::uint32_t key = make_key();
  regions_.emplace(key, Region{.params = params});
  return MrKeys{.lkey = key, .rkey = key};
}

Result<PdId> MemoryTable::change(std::uint32_t key, const MrParams& params) {
  const auto found = regions_.find(key);
  if (found == regions_.end()) return fail(EINVAL, "no memory region has this key");
  if (is_bound_to(key)) return fail(EBUSY, "a memory window is bound to the region");
  if (Result<void> valid = check(params); !valid) return tl::unexpected(valid.error());
  const PdId before = found->second.params.pd;
  found->second = Region{.params = params};
  return before;
}

Result<MrParams> MemoryTable::params_of(std::uint32_t key) const {
  const auto it = regions_.find(key);
  if (it == regions_.end()) return fail(EINVAL, "no memory region with this key");
  return it->second.params;
}

Result<PdId> MemoryTable::remove(std::uint32_t key) {
  const auto found = regions_.find(key);
  if (found == regions_.end()) return fail(EINVAL, "no memory region has this key");
  if (is_bound_to(key)) return fail(EBUSY, "a memory window is bound to the region");
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

std::uint8_t* MemoryTable::find_remote(PdId pd, Qpn qpn, std::uint32_t rkey, std::uint64_t address,
                                       std::uint64_t length, std::uint32_t access) const {
  const Window* window = find_window(pd, rkey);
  if (window == nullptr) return find(pd, rkey, address, length, access);
  const WindowBinding& bound = window->binding;
  if (window->type == WindowType::kType2 && window->qpn != qpn) return nullptr;
  if ((bound.access & access) != access) return nullptr;
  if (address < bound.address || length > bound.length || address - bound.address > bound.length - length)
    return nullptr;
  return find(pd, bound.lkey, address, length, 0);
}

// ------------------------------------------------------------------------------------------------ windows

Result<std::uint32_t> MemoryTable::add_window(PdId pd, WindowType type) {
  if (windows_.size() >= kObjectsMax) return fail(ENOMEM, "too many memory windows");
  const auto taken = [this](std::uint32_t key) {
    for (std::uint32_t tag = 0; tag < 1u << kWindowTagBits; ++tag) {
      if (regions_.contains(window_of(key) << kWindowTagBits | tag)) return true;
    }
    return false;
  };
  std::uint32_t key = make_key();
  while (window_of(key) == 0 || window_of(key) == window_of(UINT32_MAX) || taken(key)) key = make_key();
  windows_.emplace(window_of(key), Window{.pd = pd, .type = type, .binding = {.rkey = key}});
  return key;
}

Result<PdId> MemoryTable::remove_window(std::uint32_t rkey) {
  const auto found = windows_.find(window_of(rkey));
  if (found == windows_.end()) return fail(EINVAL, "no memory window has this key");
  const PdId pd = found->second.pd;
  windows_.erase(found);
  return pd;
}

bool MemoryTable::bind(PdId pd, Qpn qpn, const WindowBinding& binding) {
  const auto found = windows_.find(window_of(binding.rkey));
  if (found == windows_.end() || found->second.pd != pd) return false;
  Window& window = found->second;
  if (window.type == WindowType::kType2 && (window.binding.length != 0 || binding.length == 0)) return false;
  if (binding.length != 0) {
    const std::uint32_t changes = (binding.access & kRemoteChanges) != 0 ? kAccessLocalWrite : 0;
    if (find(pd, binding.lkey, binding.address, binding.length, kAccessWindowBind | changes) == nullptr) return false;
  }
  window.qpn = qpn;
  window.binding = binding;
  return true;
}

// A bound window of this domain under exactly this key.
const MemoryTable::Window* MemoryTable::find_window(PdId pd, std::uint32_t rkey) const {
  const auto found = windows_.find(window_of(rkey));
  if (found == windows_.end()) return nullptr;
  const Window& window = found->second;
  return window.pd == pd && window.binding.rkey == rkey && window.binding.length != 0 ? &window : nullptr;
}

bool MemoryTable::is_bound_to(std::uint32_t lkey) const {
  return std::ranges::any_of(windows_, [lkey](const auto& entry) {
    return entry.second.binding.length != 0 && entry.second.binding.lkey == lkey;
  });
}

bool MemoryTable::unbind(PdId pd, std::uint32_t rkey) {
  const Window* window = find_window(pd, rkey);
  if (window == nullptr || window->type != WindowType::kType2) return false;
  windows_.at(window_of(rkey)).binding.length = 0;
  return true;
}

bool MemoryTable::invalidate_local(PdId pd, std::uint32_t key) {
  if (unbind(pd, key)) return true;
  const auto found = regions_.find(key);
  if (found == regions_.end() || !found->second.valid || found->second.params.pd != pd) return false;
  found->second.valid = false;
  return true;
}

bool MemoryTable::invalidate_remote(PdId pd, std::uint32_t key) {
  if (unbind(pd, key)) return true;
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
