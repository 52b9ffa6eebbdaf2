#include "cli/system_devices.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "ipc/file_descriptor.h"

namespace ucm::cli {
namespace {

namespace fs = std::filesystem;

std::optional<Error> try_to_open(const std::string& path) {
  const ipc::FileDescriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (file) return std::nullopt;
  const int error = errno;
  return Error{error, path + ": " + std::generic_category().message(error)};
}

std::optional<Error> try_verbs_library() {
  void* const library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return Error{ENOENT, "the system has no libibverbs.so.1"};
  dlclose(library);
  return std::nullopt;
}

}  // namespace

SystemDevices look_at_system_devices() {
  SystemDevices devices;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator("/sys/class/infiniband_verbs", none)) {
    std::string name;
    if (!(std::ifstream(entry.path() / "ibdev") >> name)) continue;  // not a device
    if (const auto error = try_to_open("/dev/infiniband/" + entry.path().filename().string())) {
      devices.refused.push_back({error->code, "the RDMA device " + name + " cannot be opened: " + error->message});
    } else {
      devices.usable.push_back(name);
    }
  }
  std::ranges::sort(devices.usable);
  if (devices.usable.empty()) return devices;
  devices.no_verbs_library = try_verbs_library();
  devices.no_rdma_cm = try_to_open("/dev/infiniband/rdma_cm");
  return devices;
}

Result<void> judge_usable(const SystemDevices& devices) {
  if (devices.usable.empty() && !devices.refused.empty()) return tl::unexpected(devices.refused.front());
  if (devices.usable.empty()) return fail(ENODEV, "the system has no RDMA device");
  if (devices.no_verbs_library) return tl::unexpected(*devices.no_verbs_library);
  if (devices.no_rdma_cm) {
    return fail(devices.no_rdma_cm->code, devices.no_rdma_cm->message + " (the kernel module rdma_ucm makes it)");
  }
  return {};
}

std::string joined(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

}  // namespace ucm::cli
