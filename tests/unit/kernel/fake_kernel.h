// The kernel's rdma_cm in the test's hands: it keeps what is written, byte by byte, answers as told and has the events
// that are pushed. Linking it replaces kernel::open_rdma_cm().
#pragma once

#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "kernel/descriptor.h"

namespace ucm::test {

// An IPv4 address as the kernel's structures keep it.
sockaddr_in6 stored_address(const char* address, std::uint16_t port);

class FakeKernel {
 public:
  static FakeKernel& instance();
  static void reset();

  // What was written, without those that ask for events: header and body.
  struct Written {
    std::size_t file = 0;
    std::vector<std::uint8_t> bytes;
  };
  std::vector<Written> written();
  // The last command of a number; fails the test when there is none.
  Written last(std::uint32_t command);
  template <class Body>
  Body last_body(std::uint32_t command) {
    const Written found = last(command);
    Body body{};
    if (found.bytes.size() == sizeof(rdma_ucm_cmd_hdr) + sizeof body) {
      std::copy_n(found.bytes.data() + sizeof(rdma_ucm_cmd_hdr), sizeof body, reinterpret_cast<std::uint8_t*>(&body));
    }
    return body;
  }
  std::size_t count(std::uint32_t command);

  // Puts an event into a file's queue.
  void push(std::size_t file, const rdma_ucm_event_resp& event);
  std::size_t files_open();

  // Answers: an error by command, and what is told.
  std::map<std::uint32_t, int> errors;
  rdma_ucm_query_route_resp route{};
  std::size_t route_size = sizeof(rdma_ucm_query_route_resp);  // an older kernel's is shorter
  ib_uverbs_qp_attr qp_attributes{};
  std::uint32_t next_id = 0;
  // Files opened with others are refused to the caller.
  int credentials = 0;
  bool present = true;

 private:
  friend class FakeDescriptor;
  struct File {
    int fd = -1;
    int credentials = 0;
    std::deque<rdma_ucm_event_resp> events;
  };
  int execute(std::size_t file, Bytes command);
  int answer(std::size_t file, std::uint32_t command, Bytes body);
  void move_events(std::size_t file, const rdma_ucm_migrate_id& wanted);
  int next_event(File& file, Bytes body);

  std::mutex mutex_;
  std::map<std::uint32_t, std::uint64_t> labels_;  // of IDs made by CREATE_ID
  std::vector<File> files_;
  std::vector<Written> written_;
};

}  // namespace ucm::test
