// Events: order, tokens, acknowledgement, migration, threads that wait, loss of the node.
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <thread>

#include "rdma/phase.h"
#include "support/sanitizer.h"
#include "unit/rdma/rdma_fixture.h"

namespace ucm::test {
namespace {

using ipc::CmCall;
using ipc::CmEventType;

class EventChannelTest : public RdmaTest {};

TEST_F(EventChannelTest, WithoutNodeCreationFailsWithEnodevAndSaysWhatToDo) {
  node().present = false;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(rdma_create_event_channel(), nullptr);
  EXPECT_EQ(errno, ENODEV);
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), -1);
  EXPECT_EQ(errno, ENODEV);
  // Once, however often it fails.
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "ucm: no UCM node answers; start ucmd or use `ucm run`\n");
}

TEST_F(EventChannelTest, EventsComeInOrderOverAllIds) {
  rdma_cm_id* first = make_id();
  rdma_cm_id* second = make_id();
  const std::uint32_t one = handle_of(first);
  const std::uint32_t two = handle_of(second);
  link().push(make_event(CmEventType::kAddrError, one, -ETIMEDOUT));
  link().push(make_event(CmEventType::kAddrError, two, -ENODEV));
  link().push(make_event(CmEventType::kTimewaitExit, one));
  expect_event(RDMA_CM_EVENT_ADDR_ERROR, first, -ETIMEDOUT);
  expect_event(RDMA_CM_EVENT_ADDR_ERROR, second, -ENODEV);
  expect_event(RDMA_CM_EVENT_TIMEWAIT_EXIT, first);
  rdma_destroy_id(first);
  rdma_destroy_id(second);
}

TEST_F(EventChannelTest, NonBlockingChannelGivesEagainWithoutEventAndForTokenWithoutEvent) {
  set_nonblocking();
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(channel_, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
  link().push_token();
  EXPECT_EQ(rdma_get_cm_event(channel_, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(EventChannelTest, BlockedReaderLooksAgainAfterTokenWithoutEvent) {
  rdma_cm_id* id = make_id();
  const std::uint32_t handle = handle_of(id);
  std::thread reader([&] { expect_event(RDMA_CM_EVENT_TIMEWAIT_EXIT, id); });
  link().push_token();
  link().push(make_event(CmEventType::kTimewaitExit, handle));
  reader.join();
  rdma_destroy_id(id);
}

TEST_F(EventChannelTest, DestroyDropsUndeliveredEventsAndTheirTokens) {
  rdma_cm_id* doomed = make_id();
  rdma_cm_id* other = make_id();
  const std::uint32_t doomed_handle = handle_of(doomed);
  const std::uint32_t other_handle = handle_of(other);
  for (int i = 0; i < 3; ++i) link().push(make_event(CmEventType::kTimewaitExit, doomed_handle));
  link().push(make_event(CmEventType::kAddrError, other_handle, -ENODEV));
  link().push(make_event(CmEventType::kTimewaitExit, doomed_handle));
  EXPECT_EQ(rdma_destroy_id(doomed), 0);
  EXPECT_TRUE(readable());
  expect_event(RDMA_CM_EVENT_ADDR_ERROR, other, -ENODEV);
  EXPECT_FALSE(readable());
  rdma_destroy_id(other);
}

TEST_F(EventChannelTest, EventOfAnIdThatReusesTheNumberOfADestroyedOneIsItsOwn) {
  rdma_cm_id* old = make_id();
  const std::uint32_t handle = handle_of(old);
  link().push(make_event(CmEventType::kDisconnected, handle));
  rdma_destroy_id(old);
  node().answer = [&](FakeLink&, const ipc::CmCommand& command) {
    ipc::CmReply reply = node().success(command);
    if (command.call == CmCall::kCreateId) reply.id = handle;
    return reply;
  };
  rdma_cm_id* fresh = make_id();
  link().push(make_event(CmEventType::kAddrError, handle, -ENODEV));
  expect_event(RDMA_CM_EVENT_ADDR_ERROR, fresh, -ENODEV);
  rdma_destroy_id(fresh);
}

TEST_F(EventChannelTest, DestroyWaitsUntilDeliveredEventsAreAcknowledged) {
  rdma_cm_id* id = make_id();
  const std::uint32_t handle = handle_of(id);
  link().push(make_event(CmEventType::kTimewaitExit, handle));
  link().push(make_event(CmEventType::kTimewaitExit, handle));
  expect_event(RDMA_CM_EVENT_TIMEWAIT_EXIT, id);  // acknowledged before: counts as well
  rdma_cm_event* held = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel_, &held), 0);
  std::atomic<bool> acknowledged{false};
  std::atomic<bool> in_time{false};
  std::thread destroyer([&] {
    rdma_destroy_id(id);
    in_time = acknowledged.load();
  });
  while (node().count(CmCall::kDestroyId) == 0) std::this_thread::yield();
  acknowledged = true;
  rdma_ack_cm_event(held);
  destroyer.join();
  EXPECT_TRUE(in_time);
}

TEST_F(EventChannelTest, SignalWithoutRestartInterruptsTheWait) {
  struct sigaction action{};
  action.sa_handler = [](int) {};
  struct sigaction before{};
  sigaction(SIGUSR1, &action, &before);
  std::atomic<bool> done{false};
  int error = 0;
  std::thread reader([&] {
    rdma_cm_event* event = nullptr;
    EXPECT_EQ(rdma_get_cm_event(channel_, &event), -1);
    error = errno;
    done = true;
  });
  while (!done) {
    pthread_kill(reader.native_handle(), SIGUSR1);
    std::this_thread::yield();
  }
  reader.join();
  EXPECT_EQ(error, EINTR);
  sigaction(SIGUSR1, &before, nullptr);
}

TEST_F(EventChannelTest, WaitingThreadSurvivesDestructionOfTheChannelAndCanBeCancelled) {
  if (test::kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer does not know that pthread_cancel() is an order";
  rdma_event_channel* channel = channel_;
  std::atomic<bool> started{false};
  std::thread reader([&] {
    rdma_cm_event* event = nullptr;
    started = true;
    rdma_get_cm_event(channel, &event);
    ADD_FAILURE() << "the wait on a destroyed channel ended";
  });
  while (!started) std::this_thread::yield();
  // The reader is inside read(), or on its way there; a token without an event makes it go round once.
  link().push_token();
  while (readable()) std::this_thread::yield();
  FakeLink& waited_on = link();
  rdma_destroy_event_channel(channel_);
  channel_ = nullptr;
  waited_on.push_token();
  pthread_cancel(reader.native_handle());
  reader.join();
  EXPECT_EQ(node().links_open(), 0U);
}

TEST_F(EventChannelTest, MigrationMovesWaitingEventsInOrder) {
  rdma_cm_id* id = make_id();
  rdma_cm_id* staying = make_id();
  const std::uint32_t handle = handle_of(id);
  const std::uint32_t staying_handle = handle_of(staying);
  rdma_event_channel* to = rdma_create_event_channel();
  link().push(make_event(CmEventType::kAddrError, handle, -ENODEV));
  link().push(make_event(CmEventType::kTimewaitExit, staying_handle));
  link().push(make_event(CmEventType::kAddrError, handle, -ETIMEDOUT));
  node().answer = [&](FakeLink& on, const ipc::CmCommand& command) {
    // Events after the reply come on the new link.
    if (command.call == CmCall::kMigrateId) {
      EXPECT_EQ(&on, &node().link(1));
      on.push(make_event(CmEventType::kTimewaitExit, handle));
    }
    return node().success(command);
  };
  ASSERT_EQ(rdma_migrate_id(id, to), 0);
  EXPECT_EQ(id->channel, to);
  expect_event(RDMA_CM_EVENT_TIMEWAIT_EXIT, staying);
  EXPECT_FALSE(readable());

  rdma_event_channel* from = std::exchange(channel_, to);
  expect_event(RDMA_CM_EVENT_ADDR_ERROR, id, -ENODEV);
  expect_event(RDMA_CM_EVENT_ADDR_ERROR, id, -ETIMEDOUT);
  expect_event(RDMA_CM_EVENT_TIMEWAIT_EXIT, id);
  EXPECT_FALSE(readable());
  rdma_destroy_id(id);
  rdma_destroy_id(staying);
  rdma_destroy_event_channel(from);
}

TEST_F(EventChannelTest, SynchronousIdCannotMigrateToNothing) {
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), 0);
  EXPECT_EQ(rdma_migrate_id(id, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  // It can join a channel; its own one goes.
  EXPECT_EQ(node().links_open(), 2U);
  EXPECT_EQ(rdma_migrate_id(id, channel_), 0);
  EXPECT_EQ(node().links_open(), 1U);
  rdma_destroy_id(id);
}

TEST_F(EventChannelTest, LostNodeTellsEveryIdOnceByWhatItWaitsForAndThenSaysEnotconn) {
  sockaddr_in to = ipv4("10.0.0.2", 7174);
  rdma_cm_id* idle = make_id();
  rdma_cm_id* resolving = make_id();
  ASSERT_EQ(rdma_resolve_addr(resolving, nullptr, generic(to), 1000), 0);
  rdma_cm_id* routed = make_id();
  resolve(routed);
  rdma_cm_id* connecting = make_id();
  resolve(connecting);
  rdma_conn_param param{};
  ASSERT_EQ(rdma_connect(connecting, &param), 0);
  rdma_cm_id* established = make_id();
  resolve(established);
  ASSERT_EQ(rdma_connect(established, &param), 0);
  link().push(response(node().last(CmCall::kConnect).id));
  expect_event(RDMA_CM_EVENT_CONNECT_RESPONSE, established);
  ASSERT_EQ(rdma_establish(established), 0);
  rdma_cm_id* listening = make_id();
  ASSERT_EQ(rdma_listen(listening, 1), 0);

  node().lose();
  std::map<rdma_cm_id*, rdma_cm_event_type> told;
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(readable());
    rdma_cm_event* event = nullptr;
    ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
    EXPECT_EQ(event->status, -ENETDOWN);
    EXPECT_TRUE(told.emplace(event->id, event->event).second);
    rdma_ack_cm_event(event);
  }
  const std::map<rdma_cm_id*, rdma_cm_event_type> expected = {{resolving, RDMA_CM_EVENT_ADDR_ERROR},
                                                              {routed, RDMA_CM_EVENT_DEVICE_REMOVAL},
                                                              {connecting, RDMA_CM_EVENT_UNREACHABLE},
                                                              {established, RDMA_CM_EVENT_DISCONNECTED},
                                                              {listening, RDMA_CM_EVENT_DEVICE_REMOVAL}};
  EXPECT_EQ(told, expected);
  rdma_cm_event* event = nullptr;
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(readable());
    EXPECT_EQ(rdma_get_cm_event(channel_, &event), -1);
    EXPECT_EQ(errno, ENOTCONN);
  }
  EXPECT_EQ(rdma_disconnect(established), -1);
  EXPECT_EQ(errno, ENOTCONN);
  for (rdma_cm_id* id : {idle, resolving, routed, connecting, established, listening}) {
    EXPECT_EQ(rdma_destroy_id(id), 0);
  }
}

TEST_F(EventChannelTest, EventsThatTheNodePushedBeforeItWentAreStillDelivered) {
  rdma_cm_id* id = make_id();
  const std::uint32_t handle = handle_of(id);
  link().push(make_event(CmEventType::kTimewaitExit, handle));
  node().lose();
  expect_event(RDMA_CM_EVENT_TIMEWAIT_EXIT, id);
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(channel_, &event), -1);
  EXPECT_EQ(errno, ENOTCONN);
  rdma_destroy_id(id);
}

TEST_F(EventChannelTest, SynchronousCallEndsWhenTheNodeIsLost) {
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), 0);
  node().answer = [&](FakeLink&, const ipc::CmCommand& command) {
    const ipc::CmReply reply = node().success(command);
    if (command.call == CmCall::kResolveAddr) node().lose();
    return reply;
  };
  sockaddr_in to = ipv4("10.0.0.2", 7174);
  EXPECT_EQ(rdma_resolve_addr(id, nullptr, generic(to), 1000), -1);
  EXPECT_EQ(errno, ENETDOWN);
  rdma_destroy_id(id);
}

TEST(PhaseTest, EveryPhaseHasRulesAndAName) {
  for (std::size_t i = 0; i < rdma::kPhaseCount; ++i) {
    EXPECT_NE(rdma::kPhaseRules[i].name, nullptr) << i;
  }
  EXPECT_EQ(static_cast<std::size_t>(rdma::Phase::kClosed) + 1, rdma::kPhaseCount);
}

}  // namespace
}  // namespace ucm::test
