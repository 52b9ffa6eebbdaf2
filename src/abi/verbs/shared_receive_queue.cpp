// Shared receive queues.
#include <optional>

#include "abi/verbs/objects.h"

namespace ucm::abi::verbs {

namespace {

bool within_limits(const ibv_srq_attr& attributes) {
  return attributes.max_wr > 0 && attributes.max_wr <= roce::kWorkRequestsMax && attributes.max_sge <= roce::kSgeMax;
}

Srq* create(ibv_pd* pd, void* srq_context, const ibv_srq_attr& attributes,
            std::optional<roce::SrqParams::Xrc> xrc = std::nullopt) {
  if (!within_limits(attributes)) return null_with_errno(EINVAL);
  auto srq = std::make_unique<Srq>();
  const auto id = software_of(pd->context).inspect([&](roce::Engine& engine) {
    return engine.create_srq({.pd = Pd::from(pd)->id,
                              .wr_max = attributes.max_wr,
                              .sge_max = attributes.max_sge,
                              .xrc = xrc,
                              .user = reinterpret_cast<std::uintptr_t>(srq.get())});
  });
  if (!id) return null_with_errno(id.error().code);
  srq->id = *id;
  srq->context = pd->context;
  srq->srq_context = srq_context;
  srq->pd = pd;
  srq->handle = static_cast<std::uint32_t>(*id);
  srq->attributes = attributes;
  pthread_mutex_init(&srq->mutex, nullptr);
  pthread_cond_init(&srq->cond, nullptr);
  ++Context::from(pd->context)->objects;
  return srq.release();
}

}  // namespace

ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attributes) {
  constexpr std::uint32_t kForXrc = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  constexpr std::uint32_t kKnown = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | kForXrc;
  const std::uint32_t mask = attributes->comp_mask;
  const ibv_srq_type type = (mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 ? attributes->srq_type : IBV_SRQT_BASIC;
  if ((mask & ~kKnown) != 0 || (type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC)) return null_with_errno(EOPNOTSUPP);
  if ((mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attributes->pd->context != context) return null_with_errno(EINVAL);
  if (type == IBV_SRQT_BASIC) return create(attributes->pd, attributes->srq_context, attributes->attr);
  if ((mask & kForXrc) != kForXrc) return null_with_errno(EINVAL);
  return create(attributes->pd, attributes->srq_context, attributes->attr,
                roce::SrqParams::Xrc{.xrcd = id_of(*Xrcd::from(attributes->xrcd)), .cq = Cq::from(attributes->cq)->id});
}

// EINVAL: not of XRC, so that nobody can name it.
int get_srq_number(ibv_srq* srq, std::uint32_t* number) {
  const auto found =
      software_of(srq->context).inspect([&](roce::Engine& engine) { return engine.srq_number(Srq::from(srq)->id); });
  if (!found) return found.error().code;
  *number = *found;
  return 0;
}

}  // namespace ucm::abi::verbs

using namespace ucm::abi::verbs;

extern "C" {

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* init) { return create(pd, init->srq_context, init->attr); }

// The size is fixed: devices without IBV_DEVICE_SRQ_RESIZE refuse IBV_SRQ_MAX_WR.
int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attributes, int mask) {
  if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) return EINVAL;
  if ((mask & IBV_SRQ_MAX_WR) != 0) return EOPNOTSUPP;
  if ((mask & IBV_SRQ_LIMIT) == 0) return 0;
  const auto done = software_of(srq->context).execute([&](ucm::roce::Engine& engine, ucm::TimeNs /*now*/) {
    return engine.set_srq_limit(Srq::from(srq)->id, attributes->srq_limit);
  });
  return done ? 0 : done.error().code;
}

int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attributes) {
  const Srq& ours = *Srq::from(srq);
  *attributes = ours.attributes;
  attributes->srq_limit =
      software_of(srq->context).inspect([&](ucm::roce::Engine& engine) { return engine.srq_limit(ours.id); });
  return 0;
}

int ibv_destroy_srq(ibv_srq* srq) {
  Srq* const ours = Srq::from(srq);
  const auto done =
      software_of(srq->context).inspect([&](ucm::roce::Engine& engine) { return engine.destroy_srq(ours->id); });
  if (!done) return done.error().code;
  retire_srq_events(*ours);
  --Context::from(srq->context)->objects;
  delete ours;
  return 0;
}

}  // extern "C"
