// Devices and contexts: finding the node's interfaces, opening them, and what can be asked of them.
#include <endian.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "abi/verbs/objects.h"

namespace ucm::abi::verbs {

namespace {

// Programs ask for many GIDs in a row; one answer of the node serves them all.
constexpr TimeNs kSnapshotAgeMax = 100 * kNanosecondsPerMillisecond;
constexpr std::uint16_t kDefaultPkey = 0xffff;

TimeNs monotonic_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kNanosecondsPerSecond + now.tv_nsec;
}

template <std::size_t N>
void copy_text(char (&to)[N], const std::string& from) {
  std::snprintf(to, N, "%s", from.c_str());
}

// Every device ever found, in the order found.
struct Registry {
  std::mutex mutex;
  std::vector<std::unique_ptr<Device>> devices;
};
Registry& registry() {
  static auto* const instance = new Registry;  // never destroyed: programs close devices in their own destructors
  return *instance;
}

// Contexts that want to hear of the node's loss.
struct OpenContexts {
  std::mutex mutex;
  std::vector<Context*> contexts;
};
OpenContexts& open_contexts() {
  static auto* const instance = new OpenContexts;
  return *instance;
}

// A child may use contexts opened before the fork, and so finds both lists and every device unlocked and whole. What a
// context's lock guards, events of the parent, is forgotten with it.
void before_fork() {
  open_contexts().mutex.lock();
  registry().mutex.lock();
  for (const auto& device : registry().devices) device->lock();
}
void after_fork_in_parent() {
  for (const auto& device : registry().devices) device->unlock();
  registry().mutex.unlock();
  open_contexts().mutex.unlock();
}
void after_fork_in_child() {
  for (Context* const context : open_contexts().contexts) {
    std::construct_at(&context->mutex);
    std::construct_at(&context->pending);
  }
  after_fork_in_parent();
}

// As the library is loaded: a child of a fork in the middle of it would wait for its end for ever.
[[gnu::constructor]] void handle_forks() {
  static_cast<void>(registry());
  static_cast<void>(open_contexts());
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

// The node's devices as ours, new ones added to the registry.
Result<std::vector<Device*>> find_devices() {
  const auto session = client::Session::get();
  if (!session) return tl::unexpected(session.error());
  const auto found = (*session)->devices();
  if (!found) return tl::unexpected(found.error());

  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  std::vector<Device*> devices;
  for (const host::Device& interface : *found) {
    const std::string name = "ucm_" + interface.interface_name;
    const auto same =
        std::ranges::find_if(known.devices, [&](const auto& device) { return device->device.name == name; });
    if (same != known.devices.end()) {
      (*same)->update(interface);
      devices.push_back(same->get());
    } else {
      devices.push_back(known.devices.emplace_back(std::make_unique<Device>(interface)).get());
    }
  }
  return devices;
}

// A person has to learn why there is no device; once is enough.
void explain_once(const Error& error) {
  static std::atomic<bool> explained{false};
  if (!explained.exchange(true)) std::fprintf(stderr, "ucm: %s\n", error.message.c_str());
}

void on_node_lost() {
  OpenContexts& open = open_contexts();
  const std::lock_guard lock(open.mutex);
  for (Context* const context : open.contexts) deliver_port_event(*context, IBV_EVENT_DEVICE_FATAL);
}

void on_devices_changed() {
  if (!find_devices()) return;  // the node is gone, which is told elsewhere
  OpenContexts& open = open_contexts();
  const std::lock_guard lock(open.mutex);
  for (Context* const context : open.contexts) {
    const host::Device now = context->owner->snapshot();
    const host::Device before = std::exchange(context->told, now);
    if (now.running != before.running) {
      deliver_port_event(*context, now.running ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
    }
    if (now.addresses != before.addresses) deliver_port_event(*context, IBV_EVENT_GID_CHANGE);
  }
}

constexpr client::SoftwareDevice::Sinks kSinks{
    .event = deliver_event, .lost = on_node_lost, .devices_changed = on_devices_changed};

bool is_port(std::uint32_t port) { return port == kDevicePort; }

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes, std::size_t size) {
  if (!is_port(port)) return EINVAL;
  const ibv_port_attr all = port_attributes(Context::from(context)->owner->snapshot());
  std::memset(attributes, 0, size);
  std::memcpy(attributes, &all, std::min(size, sizeof all));
  return 0;
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attributes,
                    std::size_t size) {
  if (input != nullptr && input->comp_mask != 0) return EINVAL;
  if (size < sizeof attributes->orig_attr) return EINVAL;
  ibv_device_attr_ex all{};
  all.orig_attr = device_attributes(Context::from(context)->owner->snapshot());
  all.device_cap_flags_ex = all.orig_attr.device_cap_flags;
  all.phys_port_cnt_ex = 1;
  std::memset(attributes, 0, size);
  std::memcpy(attributes, &all, std::min(size, sizeof all));
  return 0;
}

// Slots left null answer EOPNOTSUPP in the header's inline functions.
void install_operations(Context& context) {
  context.query_port = query_port;
  context.query_device_ex = query_device_ex;
  context.create_cq_ex = create_cq_ex;
  context.create_qp_ex = create_qp_ex;
  context.create_srq_ex = create_srq_ex;
  context.get_srq_num = get_srq_number;
  context.open_xrcd = open_xrcd;
  context.close_xrcd = close_xrcd;
  context.open_qp = open_qp;
  context.sz = sizeof(verbs_context);
  ibv_context_ops& operations = context.context.ops;
  operations.alloc_mw = alloc_mw;
  operations.bind_mw = bind_mw;
  operations.dealloc_mw = dealloc_mw;
  operations.poll_cq = poll_cq;
  operations.req_notify_cq = request_notify;
  operations.post_send = post_send;
  operations.post_recv = post_recv;
  operations.post_srq_recv = post_srq_recv;
  context.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
}

void put_gid(ibv_gid& gid, const wire::IpAddress& address) {
  std::copy(address.bytes.begin(), address.bytes.end(), gid.raw);
}

// Fills what of the entry the caller's version of the structure has.
void put_gid_entry(void* to, std::size_t size, const wire::IpAddress& address, std::uint32_t index,
                   std::uint32_t ifindex) {
  ibv_gid_entry entry{};
  put_gid(entry.gid, address);
  entry.gid_index = index;
  entry.port_num = kDevicePort;
  entry.gid_type = IBV_GID_TYPE_ROCE_V2;
  entry.ndev_ifindex = ifindex;
  std::memset(to, 0, size);
  std::memcpy(to, &entry, std::min(size, sizeof entry));
}

}  // namespace

Device::Device(const host::Device& found) : DeviceHead{}, found_(found), found_at_(monotonic_now()) {
  const std::string name = "ucm_" + found.interface_name;
  device.node_type = IBV_NODE_CA;
  device.transport_type = IBV_TRANSPORT_IB;
  copy_text(device.name, name);
  copy_text(device.dev_name, name);
  copy_text(device.dev_path, "/sys/class/infiniband_verbs/" + name);
  copy_text(device.ibdev_path, "/sys/class/infiniband/" + name);
  static constexpr char kOurs = 0;
  provider_ops = &kOurs;
}

void Device::update(const host::Device& found) {
  const std::lock_guard lock(mutex_);
  found_ = found;
  found_at_ = monotonic_now();
}

host::Device Device::snapshot() {
  {
    const std::lock_guard lock(mutex_);
    if (monotonic_now() - found_at_ < kSnapshotAgeMax) return found_;
  }
  // When the node is gone, what was last known has to do; its loss is told elsewhere.
  (void)find_devices();
  const std::lock_guard lock(mutex_);
  found_at_ = monotonic_now();
  return found_;
}

Result<wire::IpAddress> Device::gid(std::uint32_t index) {
  const host::Device now = snapshot();
  if (index >= now.addresses.size()) return fail(EINVAL, "no GID at this index");
  return now.addresses[index].address;
}

int Device::gid_index(const wire::IpAddress& address) {
  const host::Device now = snapshot();
  const auto found = std::ranges::find_if(
      now.addresses, [&](const host::DeviceAddress& own) { return own.address.is_same_host(address); });
  return found == now.addresses.end() ? -1 : static_cast<int>(found - now.addresses.begin());
}

std::uint32_t Device::ifindex() {
  const std::lock_guard lock(mutex_);
  return found_.ifindex;
}

const client::SoftwareDevice::Sinks& event_sinks() { return kSinks; }

client::SoftwareDevice& attach_again(Context& context) {
  const auto software = client::SoftwareDevice::get(kSinks);
  // Without a node nothing works; the parent's device then answers with the errors of one that is lost.
  if (!software) return *context.software;
  const std::lock_guard lock(context.mutex);
  if (context.software.exchange(*software) != *software) {
    // The number stays, since the program may wait on it; the descriptor behind it must not be the parent's.
    const int fresh = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
    if (fresh >= 0) {
      dup3(fresh, context.context.async_fd, O_CLOEXEC);
      close(fresh);
    }
    context.pending.clear();
  }
  return **software;
}

void register_context(Context& context) {
  OpenContexts& open = open_contexts();
  const std::lock_guard lock(open.mutex);
  open.contexts.push_back(&context);
}

bool unregister_context(Context& context) {
  {
    OpenContexts& open = open_contexts();
    const std::lock_guard lock(open.mutex);
    std::erase(open.contexts, &context);
  }
  const std::lock_guard lock(context.mutex);
  context.closed = true;
  context.pending.clear();
  return context.objects.load() == 0;
}

ibv_device* device_of_command_file(dev_t device, ino_t number) {
  OpenContexts& open = open_contexts();
  const std::lock_guard lock(open.mutex);
  for (Context* const context : open.contexts) {
    struct stat file{};
    if (fstat(context->context.cmd_fd, &file) == 0 && file.st_dev == device && file.st_ino == number) {
      return context->context.device;
    }
  }
  return nullptr;
}

ibv_context* open_context(ibv_device* device, int command_fd) {
  const auto software = client::SoftwareDevice::get(event_sinks());
  if (!software) {
    explain_once(software.error());
    return null_with_errno(software.error().code);
  }
  auto context = std::make_unique<Context>();
  install_operations(*context);
  context->owner = Device::from(device);
  context->told = context->owner->snapshot();
  context->software = *software;
  ibv_context& opened = context->context;
  opened.device = device;
  opened.cmd_fd = command_fd;
  opened.num_comp_vectors = 1;
  pthread_mutex_init(&opened.mutex, nullptr);
  opened.async_fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
  if (opened.async_fd < 0) return nullptr;
  register_context(*context);
  return &context.release()->context;
}

}  // namespace ucm::abi::verbs

using namespace ucm::abi::verbs;

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  if (count != nullptr) *count = 0;
  std::vector<Device*> found;
  const auto devices = find_devices();
  if (devices) {
    found = *devices;
  } else {
    explain_once(devices.error());
  }
  auto* const list = static_cast<ibv_device**>(std::calloc(found.size() + 1, sizeof(ibv_device*)));
  if (list == nullptr) return null_with_errno(ENOMEM);
  std::ranges::transform(found, list, [](Device* device) { return &device->device; });
  if (count != nullptr) *count = static_cast<int>(found.size());
  errno = devices ? 0 : devices.error().code;
  return list;
}

void ibv_free_device_list(ibv_device** list) { std::free(list); }

const char* ibv_get_device_name(ibv_device* device) { return device->name; }

__be64 ibv_get_device_guid(ibv_device* device) { return htobe64(Device::from(device)->snapshot().guid); }

int ibv_get_device_index(ibv_device* device) { return static_cast<int>(Device::from(device)->ifindex()); }

ibv_context* ibv_open_device(ibv_device* device) {
  // A file of its own, by which ibv_import_device() knows the context.
  const int command_fd = memfd_create("ucm-device", MFD_CLOEXEC);
  if (command_fd < 0) return nullptr;
  ibv_context* const opened = open_context(device, command_fd);
  if (opened == nullptr) {
    const int error = errno;
    close(command_fd);
    errno = error;
  }
  return opened;
}

int ibv_close_device(ibv_context* opened) {
  Context* const context = Context::from(opened);
  const bool unused = unregister_context(*context);
  close(opened->async_fd);
  close(opened->cmd_fd);
  if (unused) delete context;
  return 0;
}

int ibv_query_device(ibv_context* context, ibv_device_attr* attributes) {
  *attributes = device_attributes(Context::from(context)->owner->snapshot());
  return 0;
}

// The function behind the header's inline one: for programs built before port_cap_flags2 was added.
int ibv_query_port(ibv_context* context, std::uint8_t port, _compat_ibv_port_attr* attributes) {
  return query_port(context, port, reinterpret_cast<ibv_port_attr*>(attributes),
                    offsetof(ibv_port_attr, port_cap_flags2));
}

int ibv_query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid* gid) {
  const ucm::host::Device device = Context::from(context)->owner->snapshot();
  if (!is_port(port) || index < 0 || index >= port_attributes(device).gid_tbl_len) {
    errno = EINVAL;
    return -1;
  }
  *gid = {};  // an entry in use never is all zero
  const auto entry = static_cast<std::size_t>(index);
  if (entry < device.addresses.size()) put_gid(*gid, device.addresses[entry].address);
  return 0;
}

int _ibv_query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry,
                      std::uint32_t flags, std::size_t entry_size) {
  if (flags != 0) return EOPNOTSUPP;
  if (!is_port(port)) return EINVAL;
  Device* const device = Context::from(context)->owner;
  const auto gid = device->gid(index);
  if (!gid) return ENODATA;
  put_gid_entry(entry, entry_size, *gid, index, device->ifindex());
  return 0;
}

ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, std::size_t entries_max, std::uint32_t flags,
                             std::size_t entry_size) {
  if (flags != 0) return -EOPNOTSUPP;
  const ucm::host::Device device = Context::from(context)->owner->snapshot();
  if (entries_max < device.addresses.size()) return -EINVAL;
  auto* const bytes = reinterpret_cast<std::uint8_t*>(entries);
  for (std::size_t i = 0; i < device.addresses.size(); ++i) {
    put_gid_entry(bytes + i * entry_size, entry_size, device.addresses[i].address, static_cast<std::uint32_t>(i),
                  device.ifindex);
  }
  return static_cast<ssize_t>(device.addresses.size());
}

// Private to rdma-core, yet ibv_devinfo and pyverbs use it. Its enumeration is the kernel's text for a GID's type,
// in which RoCE v1 shares a value with InfiniBand: 1 is RoCE v2.
int ibv_query_gid_type(ibv_context* context, std::uint8_t port, unsigned index, int* type) {
  constexpr int kSysfsRoceV2 = 1;
  const ucm::host::Device device = Context::from(context)->owner->snapshot();
  if (!is_port(port) || index >= static_cast<unsigned>(port_attributes(device).gid_tbl_len)) {
    errno = EINVAL;
    return -1;
  }
  *type = kSysfsRoceV2;
  return 0;
}

int ibv_query_pkey(ibv_context* /*context*/, std::uint8_t port, int index, __be16* pkey) {
  if (!is_port(port) || index != 0) {
    errno = EINVAL;
    return -1;
  }
  *pkey = htobe16(kDefaultPkey);
  return 0;
}

int ibv_get_pkey_index(ibv_context* /*context*/, std::uint8_t port, __be16 pkey) {
  // Full and limited membership of the default partition are the same table entry.
  constexpr std::uint16_t kPartition = 0x7fff;
  if (is_port(port) && (be16toh(pkey) & kPartition) == (kDefaultPkey & kPartition)) return 0;
  errno = EINVAL;
  return -1;
}

const char* ibv_get_sysfs_path() { return "/sys"; }

int ibv_read_sysfs_file(const char* directory, const char* file, char* buffer, std::size_t size) {
  const std::string path = std::string(directory) + "/" + file;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  const ssize_t length = read(fd, buffer, size);
  close(fd);
  if (length <= 0) return -1;
  if (buffer[length - 1] == '\n') {
    buffer[length - 1] = 0;
    return static_cast<int>(length - 1);
  }
  if (static_cast<std::size_t>(length) < size) buffer[length] = 0;
  return static_cast<int>(length);
}

}  // extern "C"
