// Memory windows: rights to a part of a region that are given and taken by work requests.
#include "abi/verbs/objects.h"

namespace ucm::abi::verbs {

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) return null_with_errno(EINVAL);
  const auto kind = static_cast<roce::WindowType>(type);
  const auto rkey =
      software_of(pd->context).inspect([&](roce::Engine& engine) { return engine.alloc_mw(Pd::from(pd)->id, kind); });
  if (!rkey) return null_with_errno(rkey.error().code);
  return new ibv_mw{.context = pd->context, .pd = pd, .rkey = *rkey, .handle = *rkey, .type = type};
}

// Of type 1. The library makes the new key, and the program finds it in the window at once.
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  if (mw->type != IBV_MW_TYPE_1) return EINVAL;
  ibv_send_wr request{};
  request.wr_id = bind->wr_id;
  request.opcode = IBV_WR_BIND_MW;
  request.send_flags = bind->send_flags;
  request.bind_mw = {.mw = mw, .rkey = ibv_inc_rkey(mw->rkey), .bind_info = bind->bind_info};
  ibv_send_wr* bad = nullptr;
  const int error = post_send(qp, &request, &bad);
  if (error == 0) mw->rkey = request.bind_mw.rkey;
  return error;
}

int dealloc_mw(ibv_mw* mw) {
  const auto done = software_of(mw->context).inspect([&](roce::Engine& engine) { return engine.dealloc_mw(mw->rkey); });
  if (!done) return done.error().code;
  delete mw;
  return 0;
}

}  // namespace ucm::abi::verbs
