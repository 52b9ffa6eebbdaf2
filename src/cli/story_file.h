// The stories of connections in a file: a capture of `ucm capture`, or a recording of `ucm record`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "cli/diagram.h"
#include "wire/address.h"

namespace ucm::cli {

struct StoryLine {
  std::uint32_t id = 0;  // of rdma_cm; 0: not known
  std::uint32_t local_comm_id = 0;
  wire::IpAddress peer{};
  DiagramRow row{};
};

// All that happens in the file. EPROTO: it is neither of the two, or damaged.
Result<std::vector<StoryLine>> read_story(Bytes file);
// Of the one connection that has this ID or, if none has, this comm ID; without one, of the only one there is. ENOENT:
// there is none; EINVAL: there are several; both say which there are.
Result<Diagram> diagram_of(const std::vector<StoryLine>& story, std::optional<std::uint32_t> id_or_comm_id);

}  // namespace ucm::cli
