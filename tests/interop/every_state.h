// One call of librdmacm in every state that an ID, or an rsocket, can be in.
#pragma once

#include <string>

namespace ucm::test {

// "0" or the name of errno; "returned N" for other results. Of a call of the -1-and-errno kind.
std::string result_text(int result);

// `call` is a function of librdmacm or of rdma_verbs.h, or "connect null" and the like; `address` is one of this host
// that has a device. Each state is made anew, with a peer in this process where one belongs to it. Returns which states
// have which result: "0: bound, listening; otherwise EINVAL".
std::string in_every_state(const std::string& call, const std::string& address);

}  // namespace ucm::test
