// Stands in for the runtime in builds without it: every first call says so.
#include "client/session.h"

#include <cerrno>

namespace ucm::client {

Result<std::shared_ptr<Session>> Session::get() { return fail(ENODEV, "built without the UCM runtime"); }

}  // namespace ucm::client
