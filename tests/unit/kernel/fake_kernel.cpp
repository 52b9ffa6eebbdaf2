#include "unit/kernel/fake_kernel.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ucm::test {
namespace {

std::shared_ptr<FakeKernel> current = std::make_shared<FakeKernel>();

template <class T>
T read_at(Bytes bytes, std::size_t offset = 0) {
  T value{};
  if (bytes.size() >= offset + sizeof value) std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// The first field of a body with an answer says where to write it.
void respond(Bytes body, const void* answer, std::size_t size) {
  std::memcpy(reinterpret_cast<void*>(read_at<std::uint64_t>(body)), answer, size);
}

}  // namespace

class FakeDescriptor : public kernel::Descriptor {
 public:
  explicit FakeDescriptor(std::shared_ptr<FakeKernel> kernel) : kernel_(std::move(kernel)) {
    const std::lock_guard lock(kernel_->mutex_);
    file_ = kernel_->files_.size();
    kernel_->files_.push_back(
        {.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .credentials = kernel_->credentials, .events = {}});
    fd_ = kernel_->files_.back().fd;
  }
  ~FakeDescriptor() override {
    const std::lock_guard lock(kernel_->mutex_);
    kernel_->files_[file_].fd = -1;
    close(fd_);
  }
  int fd() const override { return fd_; }
  int submit(Bytes command) override { return kernel_->execute(file_, command); }

 private:
  const std::shared_ptr<FakeKernel> kernel_;
  std::size_t file_ = 0;
  int fd_ = -1;
};

sockaddr_in6 stored_address(const char* address, std::uint16_t port) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  inet_pton(AF_INET, address, &in.sin_addr);
  sockaddr_in6 out{};
  std::memcpy(&out, &in, sizeof in);
  return out;
}

FakeKernel& FakeKernel::instance() { return *current; }
void FakeKernel::reset() { current = std::make_shared<FakeKernel>(); }

std::vector<FakeKernel::Written> FakeKernel::written() {
  const std::lock_guard lock(mutex_);
  return written_;
}

FakeKernel::Written FakeKernel::last(std::uint32_t command) {
  const auto all = written();
  const auto found = std::find_if(all.rbegin(), all.rend(),
                                  [&](const Written& one) { return read_at<std::uint32_t>(one.bytes) == command; });
  if (found != all.rend()) return *found;
  ADD_FAILURE() << "no command " << command;
  return {};
}

std::size_t FakeKernel::count(std::uint32_t command) {
  const auto all = written();
  return static_cast<std::size_t>(std::count_if(
      all.begin(), all.end(), [&](const Written& one) { return read_at<std::uint32_t>(one.bytes) == command; }));
}

void FakeKernel::push(std::size_t file, const rdma_ucm_event_resp& event) {
  const std::lock_guard lock(mutex_);
  files_[file].events.push_back(event);
  eventfd_write(files_[file].fd, 1);
}

std::size_t FakeKernel::files_open() {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(std::ranges::count_if(files_, [](const File& file) { return file.fd >= 0; }));
}

int FakeKernel::execute(std::size_t file, Bytes command) {
  const std::lock_guard lock(mutex_);
  if (files_[file].credentials != credentials) return EACCES;
  const auto header = read_at<rdma_ucm_cmd_hdr>(command);
  if (command.size() < sizeof header || command.size() != sizeof header + header.in) return EINVAL;
  const Bytes body = command.subspan(sizeof header);
  if (const auto error = errors.find(header.cmd); error != errors.end()) return error->second;
  if (header.cmd == RDMA_USER_CM_CMD_GET_EVENT) return next_event(files_[file], body);
  written_.push_back({file, {command.begin(), command.end()}});
  return answer(file, header.cmd, body);
}

int FakeKernel::answer(std::size_t file, std::uint32_t command, Bytes body) {
  switch (command) {
    case RDMA_USER_CM_CMD_CREATE_ID: {
      const rdma_ucm_create_id_resp made{next_id++};
      // This body begins with the user's label.
      respond(body.subspan(offsetof(rdma_ucm_create_id, response)), &made, sizeof made);
      labels_[made.id] = read_at<std::uint64_t>(body);
      return 0;
    }
    case RDMA_USER_CM_CMD_JOIN_MCAST: {
      const rdma_ucm_create_id_resp made{next_id++};
      respond(body, &made, sizeof made);
      return 0;
    }
    case RDMA_USER_CM_CMD_QUERY_ROUTE:
      respond(body, &route, route_size);
      return 0;
    case RDMA_USER_CM_CMD_MIGRATE_ID:
      move_events(file, read_at<rdma_ucm_migrate_id>(body));
      return 0;
    case RDMA_USER_CM_CMD_INIT_QP_ATTR:
      qp_attributes.qp_state = read_at<rdma_ucm_init_qp_attr>(body).qp_state;
      respond(body, &qp_attributes, sizeof qp_attributes);
      return 0;
    default:
      return 0;
  }
}

// Events that wait go with their ID.
void FakeKernel::move_events(std::size_t file, const rdma_ucm_migrate_id& wanted) {
  const auto from = std::ranges::find(files_, static_cast<int>(wanted.fd), &File::fd);
  if (from == files_.end()) return;
  for (auto event = from->events.begin(); event != from->events.end();) {
    if (event->uid != labels_[wanted.id]) {
      ++event;
      continue;
    }
    files_[file].events.push_back(*event);
    eventfd_write(files_[file].fd, 1);
    event = from->events.erase(event);
  }
  eventfd_t count = 0;
  if (from->events.empty()) eventfd_read(from->fd, &count);
}

int FakeKernel::next_event(File& file, Bytes body) {
  if (file.events.empty()) return EAGAIN;
  respond(body, &file.events.front(), sizeof file.events.front());
  file.events.pop_front();
  eventfd_t count = 0;
  if (file.events.empty()) eventfd_read(file.fd, &count);
  return 0;
}

}  // namespace ucm::test

namespace ucm::kernel {

Result<std::unique_ptr<Descriptor>> open_rdma_cm() {
  if (!test::FakeKernel::instance().present) return fail(ENODEV, "no rdma_cm here");
  return std::make_unique<test::FakeDescriptor>(test::current);
}

}  // namespace ucm::kernel
