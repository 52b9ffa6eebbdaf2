// XRC domains and the second handles of queue pairs that receive for them.
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "abi/verbs/objects.h"

namespace ucm::abi::verbs {

struct XrcDomain {
  using File = std::pair<dev_t, ino_t>;

  roce::XrcdId id{};
  const client::SoftwareDevice* software = nullptr;  // a child of fork() has another one
  const Device* device = nullptr;
  std::optional<File> file;  // without one nobody else finds it
  std::uint32_t handles = 0;
  std::map<std::uint32_t, std::shared_ptr<SharedQp>> queue_pairs;  // receiving ones, by number
};

namespace {

// The domains of this process that have a file, and one lock for what is in any domain.
struct Domains {
  std::mutex mutex;
  std::vector<std::shared_ptr<XrcDomain>> with_file;
};
Domains& domains() {
  static auto* const instance = new Domains;
  return *instance;
}

// A child begins with none, and with a lock that no thread of its parent holds.
[[gnu::constructor]] void forget_in_children() {
  static_cast<void>(domains());
  pthread_atfork(nullptr, nullptr, [] { std::construct_at(&domains()); });
}

std::shared_ptr<XrcDomain> find(const XrcDomain& wanted) {
  const auto& known = domains().with_file;
  const auto found = std::ranges::find_if(known, [&](const auto& domain) {
    return domain->software == wanted.software && domain->device == wanted.device && domain->file == wanted.file;
  });
  return found == known.end() ? nullptr : *found;
}

// 0, or the errno value the kernel gives.
int check_flags(bool exists, int flags) {
  if (!exists && (flags & O_CREAT) == 0) return EAGAIN;
  return exists && (flags & O_EXCL) != 0 ? EINVAL : 0;
}

Xrcd* add_handle(ibv_context* context, std::shared_ptr<XrcDomain> domain) {
  auto xrcd = std::make_unique<Xrcd>();
  xrcd->context = context;
  ++domain->handles;
  xrcd->domain = std::move(domain);
  return xrcd.release();
}

}  // namespace

// The domain of another process with the same file is another domain: its queues are in that process.
ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attributes) {
  constexpr std::uint32_t kNeeded = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  if ((attributes->comp_mask & ~kNeeded) != 0) return null_with_errno(EOPNOTSUPP);
  if (attributes->comp_mask != kNeeded) return null_with_errno(EINVAL);
  client::SoftwareDevice& software = software_of(context);
  XrcDomain wanted;
  wanted.software = &software;
  wanted.device = Context::from(context)->owner;
  if (attributes->fd != -1) {
    struct stat status{};
    if (fstat(attributes->fd, &status) != 0) return null_with_errno(EBADF);
    wanted.file = XrcDomain::File(status.st_dev, status.st_ino);
  }
  const std::lock_guard lock(domains().mutex);
  if (wanted.file) {
    auto existing = find(wanted);
    if (const int error = check_flags(existing != nullptr, attributes->oflags); error != 0) {
      return null_with_errno(error);
    }
    if (existing != nullptr) return add_handle(context, std::move(existing));
  }
  const auto id = software.inspect([](roce::Engine& engine) { return engine.alloc_xrcd(); });
  if (!id) return null_with_errno(id.error().code);
  wanted.id = *id;
  auto domain = std::make_shared<XrcDomain>(std::move(wanted));
  if (domain->file) domains().with_file.push_back(domain);
  return add_handle(context, std::move(domain));
}

int close_xrcd(ibv_xrcd* xrcd) {
  Xrcd* const ours = Xrcd::from(xrcd);
  const std::lock_guard lock(domains().mutex);
  XrcDomain& domain = *ours->domain;
  if (domain.handles == 1) {
    const auto done =
        software_of(xrcd->context).inspect([&](roce::Engine& engine) { return engine.dealloc_xrcd(domain.id); });
    if (!done) return done.error().code;
    std::erase(domains().with_file, ours->domain);
  }
  --domain.handles;
  delete ours;
  return 0;
}

roce::XrcdId id_of(const Xrcd& xrcd) { return xrcd.domain->id; }

void enter_domain(Qp& qp, const Xrcd& xrcd) {
  const std::lock_guard lock(domains().mutex);
  qp.domain = xrcd.domain;
  qp.domain->queue_pairs[qp.qp_base.qp_num] = qp.shared;
}

bool leave_to_others(Qp& qp) {
  if (qp.domain == nullptr) return false;
  const std::lock_guard lock(domains().mutex);
  const std::lock_guard handles_lock(qp.shared->mutex);
  if (qp.shared->handles.size() == 1) {
    qp.domain->queue_pairs.erase(qp.qp_base.qp_num);
    return false;
  }
  std::erase(qp.shared->handles, &qp);
  return true;
}

ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attributes) {
  constexpr std::uint32_t kNeeded = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  const std::uint32_t mask = attributes->comp_mask;
  if ((mask & ~(kNeeded | IBV_QP_OPEN_ATTR_CONTEXT)) != 0) return null_with_errno(EOPNOTSUPP);
  if ((mask & kNeeded) != kNeeded || attributes->qp_type != IBV_QPT_XRC_RECV) return null_with_errno(EINVAL);
  const std::lock_guard lock(domains().mutex);
  const std::shared_ptr<XrcDomain> domain = Xrcd::from(attributes->xrcd)->domain;
  const auto found = domain->queue_pairs.find(attributes->qp_num);
  if (found == domain->queue_pairs.end()) return null_with_errno(EINVAL);
  auto qp = std::make_unique<Qp>();
  qp->shared = found->second;
  qp->domain = domain;
  ibv_qp& base = qp->qp_base;
  base.context = context;
  if ((mask & IBV_QP_OPEN_ATTR_CONTEXT) != 0) base.qp_context = attributes->qp_context;
  base.handle = attributes->qp_num;
  base.qp_num = attributes->qp_num;
  base.qp_type = IBV_QPT_XRC_RECV;
  finish_handle(*qp);
  return &qp.release()->qp_base;
}

}  // namespace ucm::abi::verbs
