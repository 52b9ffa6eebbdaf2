// Importing what another context of this process has: its device by the command descriptor, its domains and regions by
// their handles. Another process's cannot be had, since each has a software device of its own.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "abi/verbs/objects.h"

using namespace ucm::abi::verbs;

extern "C" {

// The descriptor is the new context's from then on, and closed with it. EOPNOTSUPP: not of this process.
ibv_context* ibv_import_device(int command_fd) {
  struct stat file{};
  if (fstat(command_fd, &file) != 0) return nullptr;
  ibv_device* const device = device_of_command_file(file.st_dev, file.st_ino);
  if (device == nullptr) return null_with_errno(EOPNOTSUPP);
  return open_context(device, command_fd);
}

ibv_pd* ibv_import_pd(ibv_context* context, std::uint32_t handle) {
  const ucm::roce::PdId id{handle};
  if (!software_of(context).inspect([&](ucm::roce::Engine& engine) { return engine.has_pd(id); })) {
    return null_with_errno(ENOENT);
  }
  return make_pd(context, id);
}

void ibv_unimport_pd(ibv_pd* pd) { delete Pd::from(pd); }

// Where the bytes are is the exporting side's to say: the region has its keys only.
ibv_mr* ibv_import_mr(ibv_pd* pd, std::uint32_t handle) {
  const auto params =
      software_of(pd->context).inspect([&](ucm::roce::Engine& engine) { return engine.query_mr(handle); });
  if (!params || params->pd != Pd::from(pd)->id) return null_with_errno(ENOENT);
  Mr* const region = make_mr(pd, {.lkey = handle, .rkey = handle});
  region->iova = params->iova;
  region->access = params->access;
  return region;
}

void ibv_unimport_mr(ibv_mr* mr) { delete Mr::from(mr); }

}  // extern "C"
