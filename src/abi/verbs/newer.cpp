// Functions that came after rdma-core 44, for programs built against one of those: their names resolve, and they
// refuse. Debian's headers do not declare them, so their arguments stay what registers make of them.
#include <cerrno>

// NOLINTBEGIN(bugprone-reserved-identifier,bugprone-macro-parentheses)
#define UCM_REFUSE_WITH_ERROR(name) \
  int name() { return EOPNOTSUPP; }
#define UCM_REFUSE_WITH_NULL(name) \
  void* name() {                   \
    errno = EOPNOTSUPP;            \
    return nullptr;                \
  }
#define UCM_REFUSE_WITH_MINUS_ONE(name) \
  int name() {                          \
    errno = EOPNOTSUPP;                 \
    return -1;                          \
  }

extern "C" {

// Hints about the memory of a device's reads and writes.
UCM_REFUSE_WITH_NULL(ibv_alloc_dmah)
UCM_REFUSE_WITH_ERROR(ibv_dealloc_dmah)
UCM_REFUSE_WITH_NULL(ibv_reg_mr_ex)

UCM_REFUSE_WITH_MINUS_ONE(ibv_dm_export_dmabuf_fd)
UCM_REFUSE_WITH_ERROR(ibv_query_port_speed)

// Memory shared by DMA-BUF.
UCM_REFUSE_WITH_NULL(ibv_alloc_buf)
UCM_REFUSE_WITH_ERROR(ibv_free_buf)
UCM_REFUSE_WITH_NULL(ibv_reg_buf_mr)
UCM_REFUSE_WITH_MINUS_ONE(ibv_export_buf_dmabuf_fd)

// Counters of completions.
UCM_REFUSE_WITH_ERROR(_ibv_query_comp_cntr_caps)
UCM_REFUSE_WITH_NULL(ibv_create_comp_cntr)
UCM_REFUSE_WITH_ERROR(ibv_destroy_comp_cntr)
UCM_REFUSE_WITH_ERROR(ibv_inc_comp_cntr)
UCM_REFUSE_WITH_ERROR(ibv_inc_err_comp_cntr)
UCM_REFUSE_WITH_ERROR(ibv_qp_attach_comp_cntr)
UCM_REFUSE_WITH_ERROR(ibv_read_comp_cntr)
UCM_REFUSE_WITH_ERROR(ibv_read_err_comp_cntr)
UCM_REFUSE_WITH_ERROR(ibv_set_comp_cntr)
UCM_REFUSE_WITH_ERROR(ibv_set_err_comp_cntr)

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,bugprone-macro-parentheses)
