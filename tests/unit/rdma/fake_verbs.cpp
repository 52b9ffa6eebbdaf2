#include "unit/rdma/fake_verbs.h"

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#undef ibv_query_port

namespace ucm::test {

FakeVerbs& FakeVerbs::instance() {
  static FakeVerbs verbs;
  return verbs;
}

void FakeVerbs::reset() {
  const std::lock_guard lock(mutex);
  on_modify = nullptr;
  log.clear();
  gids.clear();
  attachments.clear();
  attach_error = 0;
}

std::vector<Transition> FakeVerbs::transitions() {
  const std::lock_guard lock(mutex);
  return log;
}

std::vector<ibv_qp_state> FakeVerbs::states() {
  std::vector<ibv_qp_state> states;
  for (const Transition& transition : transitions()) states.push_back(transition.attributes.qp_state);
  return states;
}

namespace {

FakeVerbs& verbs() { return FakeVerbs::instance(); }

template <class Object>
Object* made(int& count) {
  const std::lock_guard lock(verbs().mutex);
  ++count;
  return new Object{};
}

template <class Object>
int unmade(Object* object, int& count) {
  const std::lock_guard lock(verbs().mutex);
  --count;
  delete object;
  return 0;
}

}  // namespace
}  // namespace ucm::test

using namespace ucm::test;

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  auto** list = new ibv_device* [verbs().device_names.size() + 1] {};
  for (std::size_t i = 0; i < verbs().device_names.size(); ++i) {
    list[i] = new ibv_device{};
    std::snprintf(list[i]->name, sizeof(list[i]->name), "%s", verbs().device_names[i].c_str());
  }
  *count = static_cast<int>(verbs().device_names.size());
  return list;
}

void ibv_free_device_list(ibv_device** list) {
  for (ibv_device** entry = list; *entry != nullptr; ++entry) delete *entry;
  delete[] list;
}

const char* ibv_get_device_name(ibv_device* device) { return device->name; }

int ibv_get_device_index(ibv_device* device) {
  const std::vector<std::string>& names = verbs().device_names;
  return static_cast<int>(std::find(names.begin(), names.end(), device->name) - names.begin());
}

// The index and one in the last byte.
__be64 ibv_get_device_guid(ibv_device* device) {
  return htobe64(static_cast<std::uint64_t>(ibv_get_device_index(device)) + 1);
}

ibv_context* ibv_open_device(ibv_device*) { return new ibv_context{}; }

int ibv_close_device(ibv_context* context) {
  delete context;
  return 0;
}

ibv_pd* ibv_alloc_pd(ibv_context* context) { return new ibv_pd{context, 0}; }

int ibv_dealloc_pd(ibv_pd* pd) {
  delete pd;
  return 0;
}

int ibv_query_device(ibv_context*, ibv_device_attr* attributes) {
  *attributes = ibv_device_attr{};
  attributes->max_qp_rd_atom = verbs().max_qp_rd_atom;
  attributes->max_qp_init_rd_atom = verbs().max_qp_init_rd_atom;
  return 0;
}

int ibv_query_port(ibv_context*, uint8_t, _compat_ibv_port_attr* attributes) {
  reinterpret_cast<ibv_port_attr*>(attributes)->gid_tbl_len = static_cast<int>(verbs().gids.size());
  return 0;
}

int _ibv_query_gid_ex(ibv_context*, uint32_t, uint32_t index, ibv_gid_entry* entry, uint32_t, size_t) {
  if (index >= verbs().gids.size()) return ENODATA;
  *entry = ibv_gid_entry{};
  entry->gid = verbs().gids[index];
  entry->gid_type = IBV_GID_TYPE_ROCE_V2;
  return 0;
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context*) { return made<ibv_comp_channel>(verbs().comp_channels); }

int ibv_destroy_comp_channel(ibv_comp_channel* channel) { return unmade(channel, verbs().comp_channels); }

ibv_cq* ibv_create_cq(ibv_context*, int entries, void* context, ibv_comp_channel* channel, int) {
  ibv_cq* cq = made<ibv_cq>(verbs().cqs);
  cq->cqe = entries;
  cq->cq_context = context;
  cq->channel = channel;
  return cq;
}

int ibv_destroy_cq(ibv_cq* cq) { return unmade(cq, verbs().cqs); }

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
  if (attributes->send_cq == nullptr || attributes->recv_cq == nullptr) {
    errno = EINVAL;
    return nullptr;
  }
  ibv_qp* qp = made<ibv_qp>(verbs().qps);
  qp->pd = pd;
  qp->send_cq = attributes->send_cq;
  qp->recv_cq = attributes->recv_cq;
  qp->srq = attributes->srq;
  qp->qp_num = verbs().next_qpn++;
  attributes->cap.max_inline_data = 64;
  return qp;
}

int ibv_destroy_qp(ibv_qp* qp) { return unmade(qp, verbs().qps); }

int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  const Transition transition{qp->qp_num, *attributes, mask};
  if (verbs().on_modify) {
    if (const int error = verbs().on_modify(transition); error != 0) return error;
  }
  const std::lock_guard lock(verbs().mutex);
  verbs().log.push_back(transition);
  return 0;
}

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr*) {
  ibv_srq* srq = made<ibv_srq>(verbs().srqs);
  srq->pd = pd;
  return srq;
}

int ibv_destroy_srq(ibv_srq* srq) { return unmade(srq, verbs().srqs); }

int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* group, uint16_t) {
  if (verbs().attach_error == 0) verbs().attachments.push_back({qp->qp_num, *group});
  return verbs().attach_error;
}

int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* group, uint16_t) {
  const auto removed = std::erase_if(verbs().attachments, [&](const FakeVerbs::Attachment& known) {
    return known.qp_num == qp->qp_num && std::memcmp(&known.group, group, sizeof *group) == 0;
  });
  return removed != 0 ? 0 : EINVAL;
}

int ibv_query_ece(ibv_qp*, ibv_ece*) { return EOPNOTSUPP; }

int ibv_set_ece(ibv_qp*, ibv_ece*) { return EOPNOTSUPP; }

}  // extern "C"
