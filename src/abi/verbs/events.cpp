// Completion channels and asynchronous events. Every event is one token of an eventfd semaphore that the program may
// poll, make non-blocking, or block on: one token read entitles to look for one event.
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

#include "abi/verbs/objects.h"
#include "base/check.h"

namespace ucm::abi::verbs {

namespace {

void put_token(int fd) {
  const std::uint64_t one = 1;
  // Cannot fail: the counter of a semaphore holds 2^64 - 2 tokens and the descriptor is ours.
  UCM_CHECK(write(fd, &one, sizeof one) == sizeof one);
}

// Waits for a token as the descriptor's mode says. False with errno set when there is none or a signal came.
// A cancellation point: no lock is held here.
bool take_token(int fd) {
  std::uint64_t token = 0;
  return read(fd, &token, sizeof token) == sizeof token;
}

// Takes the tokens of events that were withdrawn, without ever waiting: another thread may have taken one already, and
// then finds no event for it.
void withdraw_tokens(int fd, std::size_t count) {
  std::uint64_t token = 0;
  iovec space{.iov_base = &token, .iov_len = sizeof token};
  while (count-- > 0 && preadv2(fd, &space, 1, -1, RWF_NOWAIT) == sizeof token) {
  }
}

// Counts that an object's events were acknowledged, and wakes the thread that destroys the object.
void acknowledge(pthread_mutex_t& mutex, pthread_cond_t& condition, std::uint32_t& completed, unsigned count) {
  pthread_mutex_lock(&mutex);
  completed += count;
  pthread_cond_signal(&condition);
  pthread_mutex_unlock(&mutex);
}

void await_acknowledged(pthread_mutex_t& mutex, pthread_cond_t& condition, const std::uint32_t& completed,
                        std::uint32_t reported) {
  pthread_mutex_lock(&mutex);
  while (completed != reported) pthread_cond_wait(&condition, &mutex);
  pthread_mutex_unlock(&mutex);
}

void deliver_completion(Cq& cq) {
  if (cq.channel == nullptr) return;
  CompletionChannel& channel = *CompletionChannel::from(cq.channel);
  {
    const std::lock_guard lock(channel.mutex);
    channel.pending.push_back(&cq);
  }
  put_token(channel.fd);
}

void deliver_async(ibv_context* to, const ibv_async_event& event) {
  Context& context = *Context::from(to);
  const std::lock_guard lock(context.mutex);
  if (context.closed) return;
  context.pending.push_back(event);
  put_token(to->async_fd);
}

void deliver_async_of(Cq& cq, ibv_event_type type) {
  deliver_async(cq.context, {.element = {.cq = cq.plain()}, .event_type = type});
}
void deliver_async_of(SharedQp& qp, ibv_event_type type) {
  const std::lock_guard lock(qp.mutex);
  for (Qp* const handle : qp.handles) {
    deliver_async(handle->qp_base.context, {.element = {.qp = &handle->qp_base}, .event_type = type});
  }
}
void deliver_async_of(Srq& srq, ibv_event_type type) {
  deliver_async(srq.context, {.element = {.srq = &srq}, .event_type = type});
}

template <class Object>
Object& user_as(const roce::Event& event) {
  return *reinterpret_cast<Object*>(event.user);
}

// The completion queue, if it is one that `event` is about; else null. Likewise the others.
enum class Subject { kCq, kQp, kSrq, kPort };

Subject subject_of(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR:
      return Subject::kCq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return Subject::kQp;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return Subject::kSrq;
    default:
      return Subject::kPort;
  }
}

// The counter of the object's events that the program has taken; null for events of the port.
std::uint32_t* reported_of(const ibv_async_event& event) {
  switch (subject_of(event.event_type)) {
    case Subject::kCq:
      return &Cq::from(event.element.cq)->async_reported;
    case Subject::kQp:
      return &Qp::from(event.element.qp)->async_reported;
    case Subject::kSrq:
      return &Srq::from(event.element.srq)->async_reported;
    case Subject::kPort:
      return nullptr;
  }
  return nullptr;
}

// Withdraws the events of `subject` that the program has not read.
void withdraw_async(ibv_context* of, Subject kind, const void* subject) {
  Context& context = *Context::from(of);
  const std::lock_guard lock(context.mutex);
  const std::size_t withdrawn = std::erase_if(context.pending, [&](const ibv_async_event& event) {
    return subject_of(event.event_type) == kind && event.element.cq == subject;
  });
  if (!context.closed) withdraw_tokens(of->async_fd, withdrawn);
}

}  // namespace

void deliver_event(const roce::Event& event) {
  switch (event.type) {
    case roce::EventType::kCompletion:
      return deliver_completion(user_as<Cq>(event));
    case roce::EventType::kCqOverrun:
      return deliver_async_of(user_as<Cq>(event), IBV_EVENT_CQ_ERR);
    case roce::EventType::kQpEstablished:
      return deliver_async_of(user_as<SharedQp>(event), IBV_EVENT_COMM_EST);
    case roce::EventType::kQpFatal:
      return deliver_async_of(user_as<SharedQp>(event), IBV_EVENT_QP_FATAL);
    case roce::EventType::kQpRequestError:
      return deliver_async_of(user_as<SharedQp>(event), IBV_EVENT_QP_REQ_ERR);
    case roce::EventType::kQpAccessError:
      return deliver_async_of(user_as<SharedQp>(event), IBV_EVENT_QP_ACCESS_ERR);
    case roce::EventType::kQpLastWqe:
      return deliver_async_of(user_as<SharedQp>(event), IBV_EVENT_QP_LAST_WQE_REACHED);
    case roce::EventType::kSrqLimit:
      return deliver_async_of(user_as<Srq>(event), IBV_EVENT_SRQ_LIMIT_REACHED);
  }
}

void deliver_port_event(Context& context, ibv_event_type type) {
  ibv_async_event event{};
  event.element.port_num = kDevicePort;
  event.event_type = type;
  deliver_async(&context.context, event);
}

void retire_cq_events(Cq& cq) {
  if (cq.channel != nullptr) {
    CompletionChannel& channel = *CompletionChannel::from(cq.channel);
    const std::lock_guard lock(channel.mutex);
    withdraw_tokens(channel.fd, std::erase(channel.pending, &cq));
  }
  withdraw_async(cq.context, Subject::kCq, &cq);
  await_acknowledged(cq.mutex, cq.cond, cq.comp_events_completed, cq.reported);
  await_acknowledged(cq.mutex, cq.cond, cq.async_events_completed, cq.async_reported);
}

void retire_srq_events(Srq& srq) {
  withdraw_async(srq.context, Subject::kSrq, static_cast<ibv_srq*>(&srq));
  await_acknowledged(srq.mutex, srq.cond, srq.events_completed, srq.async_reported);
}

void retire_qp_events(Qp& qp) {
  withdraw_async(qp.qp_base.context, Subject::kQp, &qp.qp_base);
  await_acknowledged(qp.qp_base.mutex, qp.qp_base.cond, qp.qp_base.events_completed, qp.async_reported);
}

}  // namespace ucm::abi::verbs

using namespace ucm::abi::verbs;

extern "C" {

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  auto channel = std::make_unique<CompletionChannel>();
  channel->context = context;
  channel->fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
  if (channel->fd < 0) return nullptr;
  return channel.release();
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  CompletionChannel* const ours = CompletionChannel::from(channel);
  {
    const std::lock_guard lock(ours->mutex);
    if (ours->refcnt > 0) return EBUSY;
  }
  close(ours->fd);
  delete ours;
  return 0;
}

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  CompletionChannel& ours = *CompletionChannel::from(channel);
  for (;;) {
    if (!take_token(ours.fd)) return -1;
    const std::lock_guard lock(ours.mutex);
    if (ours.pending.empty()) continue;  // its queue was destroyed meanwhile
    Cq& ready = *ours.pending.front();
    ours.pending.pop_front();
    ++ready.reported;
    *cq = ready.plain();
    *cq_context = ready.cq_context;
    return 0;
  }
}

void ibv_ack_cq_events(ibv_cq* cq, unsigned count) {
  acknowledge(cq->mutex, cq->cond, cq->comp_events_completed, count);
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  Context& ours = *Context::from(context);
  for (;;) {
    if (!take_token(context->async_fd)) return -1;
    const std::lock_guard lock(ours.mutex);
    if (ours.pending.empty()) continue;  // its object was destroyed meanwhile
    *event = ours.pending.front();
    ours.pending.pop_front();
    if (std::uint32_t* const reported = reported_of(*event)) ++*reported;
    return 0;
  }
}

void ibv_ack_async_event(ibv_async_event* event) {
  switch (subject_of(event->event_type)) {
    case Subject::kCq: {
      ibv_cq& cq = *event->element.cq;
      return acknowledge(cq.mutex, cq.cond, cq.async_events_completed, 1);
    }
    case Subject::kQp: {
      ibv_qp& qp = *event->element.qp;
      return acknowledge(qp.mutex, qp.cond, qp.events_completed, 1);
    }
    case Subject::kSrq: {
      ibv_srq& srq = *event->element.srq;
      return acknowledge(srq.mutex, srq.cond, srq.events_completed, 1);
    }
    case Subject::kPort:
      return;
  }
}

}  // extern "C"
