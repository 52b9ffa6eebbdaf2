// Protection domains and memory regions.
#include "abi/verbs/objects.h"
#include "abi/verbs/process_memory.h"

namespace ucm::abi::verbs {

namespace {

constexpr std::uint32_t kRemoteChange = roce::kAccessRemoteWrite | roce::kAccessRemoteAtomic;
constexpr std::uint32_t kRights = roce::kAccessLocalWrite | roce::kAccessRemoteWrite | roce::kAccessRemoteRead |
                                  roce::kAccessRemoteAtomic | roce::kAccessWindowBind;
// Hints that change nothing here.
constexpr std::uint32_t kIgnored = std::uint32_t{IBV_ACCESS_HUGETLB} | std::uint32_t{IBV_ACCESS_OPTIONAL_RANGE};

// 0, or the errno value that says what is wrong with a region.
int check_region(const void* address, std::size_t length, std::uint32_t access) {
  if ((access & ~(kRights | kIgnored | IBV_ACCESS_ZERO_BASED)) != 0) return EOPNOTSUPP;
  // IBTA 10.6.3.2: who may be written to by others may be written to by oneself.
  if ((access & kRemoteChange) != 0 && (access & roce::kAccessLocalWrite) == 0) return EINVAL;
  if (length == 0) return EINVAL;
  return process_memory_allows(address, length, (access & roce::kAccessLocalWrite) != 0) ? 0 : EFAULT;
}

Result<roce::MrParams> region_parameters(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova,
                                         std::uint32_t access) {
  if (const int error = check_region(address, length, access); error != 0) return fail(error, "bad memory region");
  return roce::MrParams{
      .pd = Pd::from(pd)->id, .address = address, .length = length, .iova = iova, .access = access & kRights};
}

std::uint64_t iova_of(const void* address, std::uint32_t access) {
  return (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : reinterpret_cast<std::uintptr_t>(address);
}

ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, std::uint32_t access) {
  const auto params = region_parameters(pd, address, length, iova, access);
  if (!params) return null_with_errno(params.error().code);
  const auto keys = software_of(pd->context).inspect([&](roce::Engine& engine) { return engine.reg_mr(*params); });
  if (!keys) return null_with_errno(keys.error().code);
  Mr* const region = make_mr(pd, *keys);
  region->addr = address;
  region->length = length;
  region->iova = iova;
  region->access = access;
  return region;
}

}  // namespace

Pd* make_pd(ibv_context* context, roce::PdId id) {
  auto* const pd = new Pd;
  pd->context = context;
  pd->handle = static_cast<std::uint32_t>(id);
  pd->id = id;
  return pd;
}

Mr* make_mr(ibv_pd* pd, const roce::MrKeys& keys) {
  auto* const region = new Mr{};
  region->context = pd->context;
  region->pd = pd;
  region->handle = keys.lkey;
  region->lkey = keys.lkey;
  region->rkey = keys.rkey;
  return region;
}

}  // namespace ucm::abi::verbs

using namespace ucm::abi::verbs;

extern "C" {

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  const auto id = software_of(context).inspect([](ucm::roce::Engine& engine) { return engine.alloc_pd(); });
  if (!id) return null_with_errno(id.error().code);
  return make_pd(context, *id);
}

int ibv_dealloc_pd(ibv_pd* pd) {
  Pd* const ours = Pd::from(pd);
  const auto done =
      software_of(pd->context).inspect([&](ucm::roce::Engine& engine) { return engine.dealloc_pd(ours->id); });
  if (!done) return done.error().code;
  delete ours;
  return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, std::size_t length, int access) {
  const auto rights = static_cast<std::uint32_t>(access);
  return reg_mr(pd, address, length, iova_of(address, rights), rights);
}

ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, int access) {
  return reg_mr(pd, address, length, iova, static_cast<std::uint32_t>(access));
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, unsigned access) {
  return reg_mr(pd, address, length, iova, access);
}

int ibv_dereg_mr(ibv_mr* mr) {
  const auto done =
      software_of(mr->context).inspect([&](ucm::roce::Engine& engine) { return engine.dereg_mr(mr->lkey); });
  if (!done) return done.error().code;
  delete Mr::from(mr);
  return 0;
}

// The keys stay, and a failure leaves the region as it was.
int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length, int access) {
  if (flags == 0 || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0) {
    errno = EINVAL;
    return IBV_REREG_MR_ERR_INPUT;
  }
  Mr& region = *Mr::from(mr);
  ibv_pd* const new_pd = (flags & IBV_REREG_MR_CHANGE_PD) != 0 ? pd : region.pd;
  const bool moved = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const std::uint32_t rights =
      (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0 ? static_cast<std::uint32_t>(access) : region.access;
  void* const new_address = moved ? address : region.addr;
  const std::size_t new_length = moved ? length : region.length;
  const std::uint64_t new_iova = moved ? iova_of(address, rights) : region.iova;

  const auto params = region_parameters(new_pd, new_address, new_length, new_iova, rights);
  const auto changed = params.and_then([&](const ucm::roce::MrParams& wanted) {
    return software_of(region.context).inspect([&](ucm::roce::Engine& engine) {
      return engine.rereg_mr(region.lkey, wanted);
    });
  });
  if (!changed) {
    errno = changed.error().code;
    return IBV_REREG_MR_ERR_INPUT;
  }
  region.pd = new_pd;
  region.addr = new_address;
  region.length = new_length;
  region.iova = new_iova;
  region.access = rights;
  return 0;
}

}  // extern "C"
