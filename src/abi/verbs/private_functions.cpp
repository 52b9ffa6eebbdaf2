// Functions that libraries of hardware vendors import from a libibverbs of rdma-core 34 to 56. Programs load those
// libraries whether or not such hardware exists, so the names must resolve; their code never runs, because none of
// our devices is theirs. Every one of these refuses.
#include <cerrno>
#include <cstddef>
#include <cstdint>

extern "C" {

// A constructor of every vendor library calls it to offer its hardware; there is none.
void verbs_register_driver_34(const void* /*operations*/) {}

bool verbs_allow_disassociate_destroy = false;

// Names of rdma-core's.
// NOLINTBEGIN(bugprone-reserved-identifier)
void __verbs_log(void* /*context*/, std::uint32_t /*level*/, const char* /*format*/, ...) {}

unsigned __ioctl_final_num_attrs(unsigned attributes) { return attributes; }
// NOLINTEND(bugprone-reserved-identifier)

void* _verbs_init_and_alloc_context(void* /*device*/, int /*command_fd*/, std::size_t /*size*/, void* /*embedded*/,
                                    std::uint32_t /*driver_id*/) {
  errno = ENOSYS;
  return nullptr;
}

void* verbs_open_device(void* /*device*/, void* /*private_data*/) {
  errno = ENOSYS;
  return nullptr;
}

void verbs_init_cq(void* /*cq*/, void* /*context*/, void* /*channel*/, void* /*cq_context*/) {}
void verbs_set_ops(void* /*context*/, const void* /*operations*/) {}
void verbs_uninit_context(void* /*context*/) {}

int ibv_read_ibdev_sysfs_file(char* /*buffer*/, std::size_t /*size*/, void* /*device*/, const char* /*format*/, ...) {
  errno = ENOSYS;
  return -1;
}

#define UCM_REFUSE(name) \
  int name() { return ENOSYS; }

UCM_REFUSE(execute_ioctl)
UCM_REFUSE(ibv_cmd_advise_mr)
UCM_REFUSE(ibv_cmd_alloc_dm)
UCM_REFUSE(ibv_cmd_alloc_mw)
UCM_REFUSE(ibv_cmd_alloc_pd)
UCM_REFUSE(ibv_cmd_attach_mcast)
UCM_REFUSE(ibv_cmd_close_xrcd)
UCM_REFUSE(ibv_cmd_create_ah)
UCM_REFUSE(ibv_cmd_create_counters)
UCM_REFUSE(ibv_cmd_create_cq)
UCM_REFUSE(ibv_cmd_create_cq_ex)
UCM_REFUSE(ibv_cmd_create_flow)
UCM_REFUSE(ibv_cmd_create_flow_action_esp)
UCM_REFUSE(ibv_cmd_create_qp)
UCM_REFUSE(ibv_cmd_create_qp_ex)
UCM_REFUSE(ibv_cmd_create_qp_ex2)
UCM_REFUSE(ibv_cmd_create_rwq_ind_table)
UCM_REFUSE(ibv_cmd_create_srq)
UCM_REFUSE(ibv_cmd_create_srq_ex)
UCM_REFUSE(ibv_cmd_create_wq)
UCM_REFUSE(ibv_cmd_dealloc_mw)
UCM_REFUSE(ibv_cmd_dealloc_pd)
UCM_REFUSE(ibv_cmd_dereg_mr)
UCM_REFUSE(ibv_cmd_destroy_ah)
UCM_REFUSE(ibv_cmd_destroy_counters)
UCM_REFUSE(ibv_cmd_destroy_cq)
UCM_REFUSE(ibv_cmd_destroy_flow)
UCM_REFUSE(ibv_cmd_destroy_flow_action)
UCM_REFUSE(ibv_cmd_destroy_qp)
UCM_REFUSE(ibv_cmd_destroy_rwq_ind_table)
UCM_REFUSE(ibv_cmd_destroy_srq)
UCM_REFUSE(ibv_cmd_destroy_wq)
UCM_REFUSE(ibv_cmd_detach_mcast)
UCM_REFUSE(ibv_cmd_free_dm)
UCM_REFUSE(ibv_cmd_get_context)
UCM_REFUSE(ibv_cmd_modify_cq)
UCM_REFUSE(ibv_cmd_modify_flow_action_esp)
UCM_REFUSE(ibv_cmd_modify_qp)
UCM_REFUSE(ibv_cmd_modify_qp_ex)
UCM_REFUSE(ibv_cmd_modify_srq)
UCM_REFUSE(ibv_cmd_modify_wq)
UCM_REFUSE(ibv_cmd_open_qp)
UCM_REFUSE(ibv_cmd_open_xrcd)
UCM_REFUSE(ibv_cmd_poll_cq)
UCM_REFUSE(ibv_cmd_post_recv)
UCM_REFUSE(ibv_cmd_post_send)
UCM_REFUSE(ibv_cmd_post_srq_recv)
UCM_REFUSE(ibv_cmd_query_context)
UCM_REFUSE(ibv_cmd_query_device_any)
UCM_REFUSE(ibv_cmd_query_mr)
UCM_REFUSE(ibv_cmd_query_port)
UCM_REFUSE(ibv_cmd_query_qp)
UCM_REFUSE(ibv_cmd_query_srq)
UCM_REFUSE(ibv_cmd_read_counters)
UCM_REFUSE(ibv_cmd_reg_dmabuf_mr)
UCM_REFUSE(ibv_cmd_reg_dm_mr)
UCM_REFUSE(ibv_cmd_reg_mr)
UCM_REFUSE(ibv_cmd_req_notify_cq)
UCM_REFUSE(ibv_cmd_rereg_mr)
UCM_REFUSE(ibv_cmd_resize_cq)

#undef UCM_REFUSE

}  // extern "C"
