// What the ways that make QPs share: RAII for verbs, and the QPs and buffers of one thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/result.h"

namespace ucm::bench {

template <auto Function>
struct Call {
  template <class T>
  void operator()(T* object) const {
    Function(object);
  }
};
using OwnedContext = std::unique_ptr<ibv_context, Call<ibv_close_device>>;
using OwnedPd = std::unique_ptr<ibv_pd, Call<ibv_dealloc_pd>>;
using OwnedCq = std::unique_ptr<ibv_cq, Call<ibv_destroy_cq>>;
using OwnedCompletionChannel = std::unique_ptr<ibv_comp_channel, Call<ibv_destroy_comp_channel>>;
using OwnedMr = std::unique_ptr<ibv_mr, Call<ibv_dereg_mr>>;
using OwnedQp = std::unique_ptr<ibv_qp, Call<ibv_destroy_qp>>;

// The last call's errno as an Error that names the call.
tl::unexpected<Error> failed(const char* call);

// A PD, a CQ and a buffer with a slot per connection for the QPs of one thread.
class QpKit {
 public:
  // Messages of `data_bytes` in each of `slots` slots; none when it is 0.
  static Result<QpKit> make(ibv_context* context, std::uint32_t slots, std::uint32_t data_bytes);

  ibv_qp_init_attr qp_attributes() const;
  Result<OwnedQp> make_qp() const;
  ibv_pd* pd() const { return pd_.get(); }
  // A receive of the slot's message, and a send of it; wr_id is the slot.
  Result<void> post_receive(ibv_qp* qp, std::uint32_t slot);
  Result<void> post_send(ibv_qp* qp, std::uint32_t slot);
  // Readable when a message has come; -1 without data.
  int completion_fd() const { return completions_ != nullptr ? completions_->fd : -1; }
  // Then: the slot of each.
  Result<void> take_receives(const std::function<Result<void>(std::uint32_t slot)>& handler);

 private:
  ibv_sge slot_of(std::uint32_t slot) const;

  OwnedPd pd_;
  OwnedCompletionChannel completions_;
  OwnedCq cq_;
  std::vector<std::uint8_t> buffer_;
  OwnedMr mr_;
  std::uint32_t data_bytes_ = 0;
};

}  // namespace ucm::bench
