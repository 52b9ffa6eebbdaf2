// What a kernel tells of one ID that connects, listens or joins a group, on top of FakeKernel. Apart from the tests of
// rdma_cma.h, which cannot be included beside the kernel's ABI.
#pragma once

#include <cstdint>

namespace ucm::test {

enum KernelEvent {
  kAddressResolved,
  kRouteResolved,
  kConnectResponse,
  kConnectRequest,
  kDatagramAnswer,
  kGroupJoined,
  kGroupRefused,
  kTimewaitExit,
};

class ScriptedKernel {
 public:
  // A device of index 1 and port 2, and a path between GIDs that end with 1 and 2.
  void reset();
  void set_device_index(std::uint32_t index);
  // An event of the last ID made, for the first file.
  void tell(KernelEvent event);
  bool established();  // by an accept without parameters
  bool left_group();
};

}  // namespace ucm::test
