#include "cli/privileges.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

namespace ucm::cli {
namespace {

tl::unexpected<Error> system_failure(const char* what) {
  const int code = errno;
  return fail(code, std::string(what) + ": " + std::generic_category().message(code));
}

}  // namespace

Result<void> drop_privileges() {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return system_failure("no new privileges");
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
  if (syscall(SYS_capget, &header, sets.data()) != 0) return system_failure("capabilities cannot be read");
  if (sets[0].permitted == 0 && sets[1].permitted == 0) return {};
  // An exec by root would give the capabilities back; where this is not allowed, no new privileges remains.
  for (unsigned long capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability) {
    prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
  }
  sets = {};
  if (syscall(SYS_capset, &header, sets.data()) != 0) return system_failure("capabilities cannot be given up");
  return {};
}

}  // namespace ucm::cli
