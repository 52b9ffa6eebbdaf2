// The layout that compiled programs rely on (x86-64, arm64 and other LP64 machines), checked against the headers this
// library is built with. Programs reach these members without calling a function of ours.
#pragma once

#include <infiniband/verbs.h>
#include <pthread.h>

#include <cstddef>

namespace ucm::abi::verbs::layout {

// Where libraries of hardware vendors look for the operations behind an ibv_device.
inline constexpr std::size_t kProviderOps = 664;

static_assert(sizeof(void*) == 8, "the layouts below are those of LP64 machines");

// What lies behind a mutex lies by so much farther than on x86-64: 8 on arm64.
inline constexpr std::size_t kMutexGrowth = sizeof(pthread_mutex_t) - 40;

#define UCM_SIZE(type, size) static_assert(sizeof(type) == (size))
#define UCM_OFFSET(type, member, offset) static_assert(offsetof(type, member) == (offset))

UCM_SIZE(ibv_device, kProviderOps);
UCM_OFFSET(ibv_device, node_type, 16);
UCM_OFFSET(ibv_device, transport_type, 20);
UCM_OFFSET(ibv_device, name, 24);
UCM_OFFSET(ibv_device, dev_name, 88);
UCM_OFFSET(ibv_device, dev_path, 152);
UCM_OFFSET(ibv_device, ibdev_path, 408);

UCM_SIZE(ibv_context, 328 + kMutexGrowth);
UCM_OFFSET(ibv_context, ops.alloc_mw, 64);
UCM_OFFSET(ibv_context, ops.bind_mw, 72);
UCM_OFFSET(ibv_context, ops.dealloc_mw, 80);
UCM_OFFSET(ibv_context, ops.poll_cq, 96);
UCM_OFFSET(ibv_context, ops.req_notify_cq, 104);
UCM_OFFSET(ibv_context, ops.post_srq_recv, 168);
UCM_OFFSET(ibv_context, ops.post_send, 208);
UCM_OFFSET(ibv_context, ops.post_recv, 216);
UCM_OFFSET(ibv_context, cmd_fd, 264);
UCM_OFFSET(ibv_context, async_fd, 268);
UCM_OFFSET(ibv_context, num_comp_vectors, 272);
UCM_OFFSET(ibv_context, mutex, 280);
UCM_OFFSET(ibv_context, abi_compat, 320 + kMutexGrowth);

// Grows at its front, so what counts is the distance from the ibv_context at its end.
UCM_OFFSET(verbs_context, context, sizeof(verbs_context) - sizeof(ibv_context));
UCM_OFFSET(verbs_context, sz, offsetof(verbs_context, context) - 8);
UCM_OFFSET(verbs_context, close_xrcd, offsetof(verbs_context, context) - 24);
UCM_OFFSET(verbs_context, open_xrcd, offsetof(verbs_context, context) - 32);
UCM_OFFSET(verbs_context, create_srq_ex, offsetof(verbs_context, context) - 40);
UCM_OFFSET(verbs_context, get_srq_num, offsetof(verbs_context, context) - 48);
UCM_OFFSET(verbs_context, create_qp_ex, offsetof(verbs_context, context) - 56);
UCM_OFFSET(verbs_context, open_qp, offsetof(verbs_context, context) - 64);
UCM_OFFSET(verbs_context, query_device_ex, offsetof(verbs_context, context) - 104);
UCM_OFFSET(verbs_context, create_cq_ex, offsetof(verbs_context, context) - 120);
UCM_OFFSET(verbs_context, query_port, offsetof(verbs_context, context) - 320);

UCM_SIZE(ibv_comp_channel, 16);
UCM_OFFSET(ibv_comp_channel, fd, 8);
UCM_OFFSET(ibv_comp_channel, refcnt, 12);

UCM_SIZE(ibv_cq, 128 + kMutexGrowth);
UCM_OFFSET(ibv_cq, cqe, 28);
UCM_OFFSET(ibv_cq, mutex, 32);
UCM_OFFSET(ibv_cq, comp_events_completed, 120 + kMutexGrowth);
UCM_SIZE(ibv_cq_ex, 288 + kMutexGrowth);
UCM_OFFSET(ibv_cq_ex, comp_mask, 128 + kMutexGrowth);
UCM_OFFSET(ibv_cq_ex, status, 132 + kMutexGrowth);
UCM_OFFSET(ibv_cq_ex, start_poll, 144 + kMutexGrowth);
UCM_OFFSET(ibv_cq_ex, read_completion_wallclock_ns, 280 + kMutexGrowth);

UCM_SIZE(ibv_qp, 160 + kMutexGrowth);
UCM_OFFSET(ibv_qp, qp_num, 52);
UCM_OFFSET(ibv_qp, state, 56);
UCM_OFFSET(ibv_qp, events_completed, 152 + kMutexGrowth);
UCM_OFFSET(ibv_qp_ex, comp_mask, 160 + kMutexGrowth);
UCM_OFFSET(ibv_qp_ex, wr_atomic_cmp_swp, 184 + kMutexGrowth);
UCM_OFFSET(ibv_qp_ex, wr_start, 320 + kMutexGrowth);
UCM_OFFSET(ibv_qp_ex, wr_atomic_write, 344 + kMutexGrowth);

UCM_SIZE(ibv_srq, 128 + kMutexGrowth);
UCM_OFFSET(ibv_srq, events_completed, 120 + kMutexGrowth);
UCM_SIZE(ibv_mr, 48);
UCM_OFFSET(ibv_mr, lkey, 36);
UCM_OFFSET(ibv_mr, rkey, 40);
UCM_SIZE(ibv_pd, 16);
UCM_SIZE(ibv_ah, 24);

UCM_SIZE(ibv_wc, 48);
UCM_OFFSET(ibv_wc, qp_num, 28);
UCM_OFFSET(ibv_wc, wc_flags, 36);
UCM_SIZE(ibv_sge, 16);
UCM_SIZE(ibv_recv_wr, 32);
UCM_SIZE(ibv_send_wr, 128);
UCM_OFFSET(ibv_send_wr, wr, 40);
UCM_OFFSET(ibv_send_wr, qp_type.xrc.remote_srqn, 72);
UCM_OFFSET(ibv_send_wr, bind_mw, 80);
UCM_SIZE(ibv_ah_attr, 32);
UCM_SIZE(ibv_qp_init_attr, 64);
UCM_OFFSET(ibv_qp_init_attr_ex, comp_mask, 60);
UCM_OFFSET(ibv_qp_init_attr_ex, xrcd, 72);
UCM_OFFSET(ibv_qp_init_attr_ex, send_ops_flags, 128);
UCM_SIZE(ibv_qp_open_attr, 32);
UCM_SIZE(ibv_xrcd_init_attr, 12);
UCM_OFFSET(ibv_srq_init_attr_ex, xrcd, 40);
UCM_OFFSET(ibv_srq_init_attr_ex, cq, 48);
UCM_SIZE(ibv_qp_attr, 144);
UCM_SIZE(ibv_async_event, 16);
UCM_SIZE(ibv_device_attr, 232);
UCM_OFFSET(ibv_port_attr, port_cap_flags2, 48);
UCM_SIZE(ibv_gid_entry, 32);

#undef UCM_SIZE
#undef UCM_OFFSET

}  // namespace ucm::abi::verbs::layout
