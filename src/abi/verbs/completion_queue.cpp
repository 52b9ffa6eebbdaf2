// Completion queues: both polling interfaces and notification.
#include <algorithm>
#include <array>

#include "abi/verbs/objects.h"

namespace ucm::abi::verbs {

namespace {

unsigned flags_of(const roce::Completion& completion) {
  unsigned flags = 0;
  if (completion.has_grh) flags |= IBV_WC_GRH;
  if (completion.has_immediate) flags |= IBV_WC_WITH_IMM;
  if (completion.has_invalidated_rkey) flags |= IBV_WC_WITH_INV;
  return flags;
}

void put_completion(ibv_wc& to, const roce::Completion& from) {
  to.wr_id = from.wr_id;
  to.status = static_cast<ibv_wc_status>(from.status);
  to.opcode = static_cast<ibv_wc_opcode>(from.opcode);
  to.vendor_err = 0;
  to.byte_len = from.byte_count;
  to.imm_data = from.immediate;
  to.qp_num = from.qpn;
  to.src_qp = from.source_qpn;
  to.wc_flags = flags_of(from);
  to.pkey_index = 0;
  to.slid = 0;
  to.sl = 0;
  to.dlid_path_bits = 0;
}

// Up to out.size() completions, or a negative value when the queue has overrun. A queue that was empty and cannot
// have got anything since costs no lock, and the thread that finds it empty takes packets in itself.
int take_completions(Cq& cq, std::span<roce::Completion> out) {
  client::SoftwareDevice& software = software_of(cq.context);
  if (cq.empty_at.load(std::memory_order_relaxed) == software.progress()) {
    software.serve();
    if (cq.empty_at.load(std::memory_order_relaxed) == software.progress()) return 0;
  }
  // Read first: what is added after this is seen by the next call.
  const std::uint64_t progress = software.progress();
  const auto taken = software.inspect([&](roce::Engine& engine) { return engine.poll_cq(cq.id, out); });
  if (!taken) return -1;
  if (*taken < out.size()) cq.empty_at.store(progress, std::memory_order_relaxed);
  return static_cast<int>(*taken);
}

// The start_poll/next_poll interface shows one completion at a time.
int advance(Cq& cq) {
  const int taken = take_completions(cq, std::span(&cq.current, 1));
  if (taken < 0) return EINVAL;
  if (taken == 0) return ENOENT;
  cq.status = static_cast<ibv_wc_status>(cq.current.status);
  cq.wr_id = cq.current.wr_id;
  return 0;
}

int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attributes) {
  return attributes->comp_mask != 0 ? EINVAL : advance(*Cq::from(cq));
}
int next_poll(ibv_cq_ex* cq) { return advance(*Cq::from(cq)); }
void end_poll(ibv_cq_ex* /*cq*/) {}

void install_readers(ibv_cq_ex& cq) {
  cq.start_poll = start_poll;
  cq.next_poll = next_poll;
  cq.end_poll = end_poll;
  cq.read_opcode = [](ibv_cq_ex* of) { return static_cast<ibv_wc_opcode>(Cq::from(of)->current.opcode); };
  cq.read_vendor_err = [](ibv_cq_ex*) { return std::uint32_t{0}; };
  cq.read_byte_len = [](ibv_cq_ex* of) { return Cq::from(of)->current.byte_count; };
  cq.read_imm_data = [](ibv_cq_ex* of) { return Cq::from(of)->current.immediate; };
  cq.read_qp_num = [](ibv_cq_ex* of) { return Cq::from(of)->current.qpn; };
  cq.read_src_qp = [](ibv_cq_ex* of) { return Cq::from(of)->current.source_qpn; };
  cq.read_wc_flags = [](ibv_cq_ex* of) { return flags_of(Cq::from(of)->current); };
  cq.read_slid = [](ibv_cq_ex*) { return std::uint32_t{0}; };
  cq.read_sl = [](ibv_cq_ex*) { return std::uint8_t{0}; };
  cq.read_dlid_path_bits = [](ibv_cq_ex*) { return std::uint8_t{0}; };
}

// A queue has room for a few more completions than were asked for. perftest's ib_send_lat asks for one and, with -e,
// has two under way when an answer overtakes the acknowledgement of what it answers.
std::uint32_t with_room(std::uint32_t entries) {
  constexpr std::uint32_t kEntriesMin = 16;
  return std::max(entries, kEntriesMin);
}

Cq* create(ibv_context* context, std::uint32_t entries, void* cq_context, ibv_comp_channel* channel,
           std::uint32_t vector) {
  if (entries == 0 || entries > roce::kCqeMax || vector >= static_cast<unsigned>(context->num_comp_vectors)) {
    return null_with_errno(EINVAL);
  }
  auto cq = std::make_unique<Cq>();
  client::SoftwareDevice& software = software_of(context);
  const auto id = software.inspect([&](roce::Engine& engine) {
    return engine.create_cq(with_room(entries), reinterpret_cast<std::uintptr_t>(cq.get()));
  });
  if (!id) return null_with_errno(id.error().code);
  cq->id = *id;
  cq->context = context;
  cq->channel = channel;
  cq->cq_context = cq_context;
  cq->handle = static_cast<std::uint32_t>(*id);
  cq->cqe = static_cast<int>(software.inspect([&](roce::Engine& engine) { return engine.cq_capacity(*id); }));
  pthread_mutex_init(&cq->mutex, nullptr);
  pthread_cond_init(&cq->cond, nullptr);
  if (channel != nullptr) {
    CompletionChannel& ours = *CompletionChannel::from(channel);
    const std::lock_guard lock(ours.mutex);
    ++ours.refcnt;
  }
  ++Context::from(context)->objects;
  return cq.release();
}

}  // namespace

int poll_cq(ibv_cq* cq, int entries, ibv_wc* completions) {
  constexpr int kAtOnce = 16;
  std::array<roce::Completion, kAtOnce> taken;
  int total = 0;
  while (total < entries) {
    const int wanted = std::min(entries - total, kAtOnce);
    const int got = take_completions(*Cq::from(cq), std::span(taken).first(static_cast<std::size_t>(wanted)));
    if (got < 0) return total > 0 ? total : -1;
    for (int i = 0; i < got; ++i) put_completion(completions[total + i], taken[static_cast<std::size_t>(i)]);
    total += got;
    if (got < wanted) break;
  }
  return total;
}

int request_notify(ibv_cq* cq, int solicited_only) {
  const auto kind = solicited_only != 0 ? roce::NotifyKind::kNextSolicited : roce::NotifyKind::kNextCompletion;
  client::SoftwareDevice& software = software_of(cq->context);
  software.inspect([&](roce::Engine& engine) { engine.request_notify(Cq::from(cq)->id, kind); });
  software.stop_serving();
  return 0;
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes) {
  constexpr std::uint32_t kFlags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  if ((attributes->comp_mask & ~std::uint32_t{IBV_CQ_INIT_ATTR_MASK_FLAGS}) != 0) return null_with_errno(EOPNOTSUPP);
  if ((attributes->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 && (attributes->flags & ~kFlags) != 0) {
    return null_with_errno(EOPNOTSUPP);
  }
  if ((attributes->wc_flags & ~std::uint64_t{IBV_WC_STANDARD_FLAGS}) != 0) return null_with_errno(EOPNOTSUPP);
  Cq* const cq = create(context, attributes->cqe, attributes->cq_context, attributes->channel, attributes->comp_vector);
  if (cq != nullptr) install_readers(*cq);
  return cq;
}

}  // namespace ucm::abi::verbs

using namespace ucm::abi::verbs;

extern "C" {

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* cq_context, ibv_comp_channel* channel, int vector) {
  if (entries <= 0 || vector < 0) return null_with_errno(EINVAL);
  Cq* const cq =
      create(context, static_cast<std::uint32_t>(entries), cq_context, channel, static_cast<std::uint32_t>(vector));
  return cq != nullptr ? cq->plain() : nullptr;
}

int ibv_resize_cq(ibv_cq* cq, int entries) {
  if (entries <= 0 || static_cast<std::uint32_t>(entries) > ucm::roce::kCqeMax) return EINVAL;
  ucm::client::SoftwareDevice& software = software_of(cq->context);
  const ucm::roce::CqId id = Cq::from(cq)->id;
  const auto asked = static_cast<std::uint32_t>(entries);
  // In two steps, so that more completions than were asked room for are refused.
  const auto done = software.inspect([&](ucm::roce::Engine& engine) {
    return engine.resize_cq(id, asked).and_then([&] { return engine.resize_cq(id, with_room(asked)); });
  });
  if (!done) return done.error().code;
  cq->cqe = static_cast<int>(software.inspect([&](ucm::roce::Engine& engine) { return engine.cq_capacity(id); }));
  return 0;
}

int ibv_destroy_cq(ibv_cq* cq) {
  Cq* const ours = Cq::from(cq);
  const auto done =
      software_of(cq->context).inspect([&](ucm::roce::Engine& engine) { return engine.destroy_cq(ours->id); });
  if (!done) return done.error().code;
  retire_cq_events(*ours);
  if (cq->channel != nullptr) {
    CompletionChannel& channel = *CompletionChannel::from(cq->channel);
    const std::lock_guard lock(channel.mutex);
    --channel.refcnt;
  }
  --Context::from(cq->context)->objects;
  delete ours;
  return 0;
}

}  // extern "C"
