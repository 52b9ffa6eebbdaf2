// What programs hold pointers to: each verbs object is the public structure with our part behind it.
//
// Locks, in the order they are taken: that of the XRC domains, SoftwareDevice's own, a queue pair's, a channel's or a
// context's, the pthread mutex inside an object. No lock is held where a program may block or be cancelled.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "abi/verbs/layout.h"
#include "base/result.h"
#include "client/software_device.h"
#include "host/device.h"
#include "roce/engine.h"

// These are macros over the functions of the same name that this library defines.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace ucm::abi::verbs {

inline constexpr std::uint8_t kDevicePort = 1;  // the only one

// How libraries of hardware vendors see a device: they compare `provider_ops` with their own to ask "is it mine?".
struct DeviceHead {
  ibv_device device;
  const void* provider_ops;
};
static_assert(offsetof(DeviceHead, provider_ops) == layout::kProviderOps);

// One network interface. Kept until the process ends, because programs compare and use device pointers after freeing
// the list they came from.
class Device : public DeviceHead {
 public:
  explicit Device(const host::Device& found);

  // What is known of the interface; asked for again when it is older than a moment.
  host::Device snapshot();
  void update(const host::Device& found);
  // The GID at `index` as an address; EINVAL outside the table or where there is none.
  Result<wire::IpAddress> gid(std::uint32_t index);
  // -1 when the device does not have the address. The loopback device lists one of 127.0.0.0/8 and has them all.
  int gid_index(const wire::IpAddress& address);
  std::uint32_t ifindex();

  // Around a fork: a child finds the device whole, and unlocked.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

  static Device* from(ibv_device* device) { return static_cast<Device*>(reinterpret_cast<DeviceHead*>(device)); }

 private:
  std::mutex mutex_;
  host::Device found_;
  TimeNs found_at_ = 0;
};

struct Context : verbs_context {
  Device* owner = nullptr;
  std::atomic<client::SoftwareDevice*> software{nullptr};
  std::mutex mutex;  // guards pending, and the `async_reported` of every object of this context
  std::deque<ibv_async_event> pending;
  bool closed = false;
  host::Device told;  // what the events of the port have said; guarded by the registry of contexts
  // Objects that events may still name: while there are any, the memory of a closed context stays.
  std::atomic<std::uint32_t> objects{0};

  static Context* from(ibv_context* context) { return static_cast<Context*>(verbs_get_ctx(context)); }
};

// One domain; what opens the same file in this process shares it.
struct XrcDomain;

struct Xrcd : ibv_xrcd {
  std::shared_ptr<XrcDomain> domain;

  static Xrcd* from(ibv_xrcd* xrcd) { return static_cast<Xrcd*>(xrcd); }
};

struct Pd : ibv_pd {
  roce::PdId id{};

  static Pd* from(ibv_pd* pd) { return static_cast<Pd*>(pd); }
};

struct Mr : ibv_mr {
  std::uint64_t iova = 0;
  std::uint32_t access = 0;

  static Mr* from(ibv_mr* mr) { return static_cast<Mr*>(mr); }
};

struct Ah : ibv_ah {
  roce::AhId id{};

  static Ah* from(ibv_ah* ah) { return static_cast<Ah*>(ah); }
};

struct Cq;

struct CompletionChannel : ibv_comp_channel {
  std::mutex mutex;  // guards pending, refcnt, and `reported` of every CQ of this channel
  std::deque<Cq*> pending;

  static CompletionChannel* from(ibv_comp_channel* channel) { return static_cast<CompletionChannel*>(channel); }
};

struct Cq : ibv_cq_ex {
  roce::CqId id{};
  std::uint32_t reported = 0;        // completion events that the program has taken
  std::uint32_t async_reported = 0;  // asynchronous events that the program has taken
  // SoftwareDevice::progress() when the queue was last seen empty.
  std::atomic<std::uint64_t> empty_at{0};
  roce::Completion current{};  // of the start_poll/next_poll interface

  ibv_cq* plain() { return reinterpret_cast<ibv_cq*>(static_cast<ibv_cq_ex*>(this)); }
  static Cq* from(ibv_cq_ex* cq) { return static_cast<Cq*>(cq); }
  static Cq* from(ibv_cq* cq) { return from(reinterpret_cast<ibv_cq_ex*>(cq)); }
};

struct Srq : ibv_srq {
  roce::SrqId id{};
  std::uint32_t async_reported = 0;
  ibv_srq_attr attributes{};

  static Srq* from(ibv_srq* srq) { return static_cast<Srq*>(srq); }
};

// Work requests collected between ibv_wr_start() and ibv_wr_complete().
struct RequestBatch {
  struct Entry {
    roce::SendRequest request;
    std::vector<roce::Sge> sges;
    std::vector<std::uint8_t> inline_bytes;
  };
  std::mutex mutex;  // held by the thread that builds
  std::vector<Entry> entries;
  int error = 0;  // the first one met while building
};

struct Qp;

// What all handles of one queue pair share. There is one handle, unless a receiving queue pair of XRC was opened again.
struct SharedQp {
  std::mutex mutex;  // guards handles
  std::vector<Qp*> handles;
  ibv_qp_attr attributes{};  // as the program set them
  ibv_qp_init_attr init{};
};

struct Qp : ibv_qp_ex {
  std::shared_ptr<SharedQp> shared;
  std::shared_ptr<XrcDomain> domain;  // of a receiving queue pair of XRC
  std::uint32_t async_reported = 0;
  std::unique_ptr<RequestBatch> batch;  // only with send_ops_flags

  static Qp* from(ibv_qp_ex* qp) { return static_cast<Qp*>(qp); }
  static Qp* from(ibv_qp* qp) { return from(reinterpret_cast<ibv_qp_ex*>(qp)); }
};

// Gives a context that was opened before a fork the child's own device and event descriptor.
client::SoftwareDevice& attach_again(Context& context);

inline client::SoftwareDevice& software_of(ibv_context* context) {
  Context& ours = *Context::from(context);
  client::SoftwareDevice* const software = ours.software.load(std::memory_order_relaxed);
  return software->of_this_process() ? *software : attach_again(ours);
}

// The error convention of functions that return a pointer: nullptr and errno.
inline std::nullptr_t null_with_errno(int code) {
  errno = code;
  return nullptr;
}

// device.cpp
const client::SoftwareDevice::Sinks& event_sinks();
void register_context(Context& context);
// True when no object is left and the memory may be freed.
bool unregister_context(Context& context);
// A new context, which closes `command_fd` in the end; null and errno when there is none, and the descriptor stays the
// caller's.
ibv_context* open_context(ibv_device* device, int command_fd);
// The device of the context in this process whose command descriptor is this file; null when there is none.
ibv_device* device_of_command_file(dev_t device, ino_t number);

// memory.cpp
Pd* make_pd(ibv_context* context, roce::PdId id);
Mr* make_mr(ibv_pd* pd, const roce::MrKeys& keys);

// events.cpp
void deliver_event(const roce::Event& event);
void deliver_port_event(Context& context, ibv_event_type type);
// Forgets what the program has not yet read of the object's events, then waits until it has acknowledged what it has
// read. The engine raises no more events for the object.
void retire_cq_events(Cq& cq);
void retire_srq_events(Srq& srq);
void retire_qp_events(Qp& qp);

// address_handle.cpp
wire::IpAddress address_of(const ibv_gid& gid);
Result<roce::AddressVector> address_vector_of(Context& context, const ibv_ah_attr& attributes);

// work_request.cpp
int post_send(ibv_qp* qp, ibv_send_wr* requests, ibv_send_wr** bad_request);
int post_recv(ibv_qp* qp, ibv_recv_wr* requests, ibv_recv_wr** bad_request);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* requests, ibv_recv_wr** bad_request);
roce::WindowBinding window_binding(std::uint32_t rkey, const ibv_mw_bind_info& info);
// request_batch.cpp
bool install_batch_functions(Qp& qp, std::uint64_t send_ops_flags);

// memory_window.cpp
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type);
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);
int dealloc_mw(ibv_mw* mw);

// completion_queue.cpp
int poll_cq(ibv_cq* cq, int entries, ibv_wc* completions);
int request_notify(ibv_cq* cq, int solicited_only);
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes);

// xrc.cpp
ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attributes);
int close_xrcd(ibv_xrcd* xrcd);
roce::XrcdId id_of(const Xrcd& xrcd);
ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attributes);
// The receiving queue pair can be opened again from now on.
void enter_domain(Qp& qp, const Xrcd& xrcd);
// True when other handles of the queue pair remain. Otherwise it cannot be opened again any more.
bool leave_to_others(Qp& qp);

// queue_pair.cpp, shared_receive_queue.cpp
// What every new handle of a queue pair needs; its type, context and number are in place.
void finish_handle(Qp& qp);
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attributes);
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attributes);
int get_srq_number(ibv_srq* srq, std::uint32_t* number);

// attributes.cpp: what ibv_query_device and ibv_query_port tell.
ibv_device_attr device_attributes(const host::Device& device);
ibv_port_attr port_attributes(const host::Device& device);
inline constexpr int kGidTableLengthMin = 64;

}  // namespace ucm::abi::verbs
