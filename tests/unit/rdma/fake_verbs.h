// A verbs library in the test's hands: devices without hardware whose QPs only remember what was done to them.
#pragma once

#include <infiniband/verbs.h>

#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace ucm::test {

struct Transition {
  std::uint32_t qp_num = 0;
  ibv_qp_attr attributes{};
  int mask = 0;
};

class FakeVerbs {
 public:
  static FakeVerbs& instance();
  // Forgets transitions and hooks; devices stay, as they do in a real process.
  void reset();

  std::vector<std::string> device_names;
  int max_qp_rd_atom = 16;
  int max_qp_init_rd_atom = 32;
  std::vector<ibv_gid> gids;
  // Called without a lock before a transition; its result is ibv_modify_qp's.
  std::function<int(const Transition&)> on_modify;

  std::vector<Transition> transitions();
  std::vector<ibv_qp_state> states();

  // Attachments of QPs to multicast groups; `attach_error` is the next ones' result.
  struct Attachment {
    std::uint32_t qp_num = 0;
    ibv_gid group{};
  };
  std::vector<Attachment> attachments;
  int attach_error = 0;

  // Objects that exist.
  int qps = 0;
  int cqs = 0;
  int comp_channels = 0;
  int srqs = 0;

  std::mutex mutex;
  std::vector<Transition> log;
  std::uint32_t next_qpn = 0x11;
};

}  // namespace ucm::test
