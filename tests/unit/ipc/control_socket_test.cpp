#include "ipc/control_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "ipc/memfd.h"

namespace ucm::ipc {
namespace {

std::string unused_name() { return "@ucm-test-" + std::to_string(getpid()); }
Bytes text_bytes(const std::string& text) { return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}; }

TEST(ControlSocket, PassesDescriptorsCloseOnExec) {
  auto pair = connected_pair();
  ASSERT_TRUE(pair.has_value());
  FileDescriptor event(eventfd(0, 0));
  ASSERT_TRUE(send_message(pair->first.get(), text_bytes("hello"), std::array{event.get()}, SendMode::kWait));
  std::array<std::uint8_t, 16> buffer{};
  auto received = receive_message(pair->second.get(), buffer, ReceiveMode::kDontWait);
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(received->size, 5u);
  ASSERT_EQ(received->descriptor_count, 1u);
  EXPECT_EQ(fcntl(received->descriptors[0].get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  ASSERT_EQ(eventfd_write(received->descriptors[0].get(), 3), 0);
  eventfd_t value = 0;
  ASSERT_EQ(eventfd_read(event.get(), &value), 0);
  EXPECT_EQ(value, 3u);
}

TEST(ControlSocket, AMessageLongerThanTheBufferIsRefused) {
  auto pair = connected_pair();
  ASSERT_TRUE(pair.has_value());
  ASSERT_TRUE(send_message(pair->first.get(), text_bytes("too long"), {}, SendMode::kWait));
  std::array<std::uint8_t, 4> buffer{};
  const auto received = receive_message(pair->second.get(), buffer, ReceiveMode::kDontWait);
  ASSERT_FALSE(received.has_value());
  EXPECT_EQ(received.error().code, EMSGSIZE);
}

TEST(ControlSocket, AProcessWithoutFreeDescriptorsSaysSo) {
  auto pair = connected_pair();
  ASSERT_TRUE(pair.has_value());
  const FileDescriptor event(eventfd(0, EFD_CLOEXEC));
  ASSERT_TRUE(send_message(pair->first.get(), text_bytes("hello"), std::array{event.get()}, SendMode::kWait));
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  std::array<std::uint8_t, 16> buffer{};
  const auto received = receive_message(pair->second.get(), buffer, ReceiveMode::kDontWait);
  setrlimit(RLIMIT_NOFILE, &before);
  ASSERT_TRUE(received.has_value());
  EXPECT_TRUE(received->none_left);
  EXPECT_EQ(received->size, 5u) << "the message itself is there";
}

TEST(ControlSocket, AHangUpIsAnEmptyMessageAndSendingThenFailsWithoutASignal) {
  auto pair = connected_pair();
  ASSERT_TRUE(pair.has_value());
  pair->first.reset();
  std::array<std::uint8_t, 4> buffer{};
  const auto received = receive_message(pair->second.get(), buffer, ReceiveMode::kWait);
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(received->size, 0u);
  EXPECT_EQ(send_message(pair->second.get(), text_bytes("x"), {}, SendMode::kWait).error().code, EPIPE);
}

TEST(ControlSocket, NobodyListeningIsConnectionRefused) {
  EXPECT_EQ(connect_to(unused_name(), 100).error().code, ECONNREFUSED);
}

TEST(ControlSocket, ANameHasOneListenerAndTellsWhoItIs) {
  const auto listener = listen_on(unused_name());
  ASSERT_TRUE(listener.has_value());
  EXPECT_EQ(listen_on(unused_name()).error().code, EADDRINUSE);
  const auto client = connect_to(unused_name(), 100);
  ASSERT_TRUE(client.has_value());
  const auto credentials = peer_credentials(client->get());
  ASSERT_TRUE(credentials.has_value());
  EXPECT_EQ(credentials->uid, geteuid());
  EXPECT_EQ(credentials->pid, getpid());
}

TEST(ControlSocket, EmptyAndOverlongNamesAreRefused) {
  EXPECT_EQ(listen_on("@").error().code, EINVAL);
  EXPECT_EQ(listen_on("").error().code, EINVAL);
  EXPECT_EQ(connect_to(std::string(108, 'x'), 100).error().code, EINVAL);
}

TEST(SharedMemory, IsSeenByBothSidesAndCannotShrink) {
  const auto memfd = create_memfd("ucm-test", 4096);
  ASSERT_TRUE(memfd.has_value());
  const auto one = SharedMemory::map(memfd->get(), 4096);
  const auto other = SharedMemory::map(memfd->get(), 4096);
  ASSERT_TRUE(one.has_value() && other.has_value());
  *one->at(100) = 42;
  EXPECT_EQ(*other->at(100), 42);
  EXPECT_NE(ftruncate(memfd->get(), 0), 0);
}

TEST(SharedMemory, AnotherSizeOrMissingSealsAreRefused) {
  const auto memfd = create_memfd("ucm-test", 4096);
  ASSERT_TRUE(memfd.has_value());
  EXPECT_EQ(SharedMemory::map(memfd->get(), 8192).error().code, EPROTO);
  FileDescriptor unsealed(memfd_create("ucm-test", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(unsealed.get(), 4096), 0);
  EXPECT_EQ(SharedMemory::map(unsealed.get(), 4096).error().code, EPROTO);
}

TEST(SharedMemory, ASealedCopyIsReadBackAndKeepsItsLimit) {
  const auto memfd = create_sealed_copy("ucm-test", text_bytes("some text"));
  ASSERT_TRUE(memfd.has_value());
  EXPECT_EQ(read_sealed_copy(memfd->get(), 100).value(), "some text");
  EXPECT_EQ(read_sealed_copy(memfd->get(), 8).error().code, EPROTO);
  EXPECT_LT(pwrite(memfd->get(), "x", 1, 0), 0);
}

}  // namespace
}  // namespace ucm::ipc
