#include "net/event_loop.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "net/owned_fd.h"

namespace ucm::net {
namespace {

OwnedFd signalled_fd() { return OwnedFd(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)); }

TEST(EventLoop, ServesAReadableDescriptorAndStops) {
  auto loop = EventLoop::create().value();
  const OwnedFd fd = signalled_fd();
  int served = 0;
  ASSERT_TRUE(loop->add(fd.get(), [&](std::uint32_t) {
    ++served;
    loop->stop();
  }));
  loop->run();
  EXPECT_EQ(served, 1);
}

TEST(EventLoop, AnEdgeIsServedOncePerWriteThoughNobodyReads) {
  auto loop = EventLoop::create().value();
  const OwnedFd fd = signalled_fd();
  int served = 0, turns = 0;
  ASSERT_TRUE(loop->add(fd.get(), [&](std::uint32_t) { ++served; }, EventLoop::Trigger::kEdge));
  loop->add_hook([&](TimeNs now) {
    ++turns;
    if (turns == 5) {
      EXPECT_EQ(served, 1);
      eventfd_write(fd.get(), 1);
    }
    if (turns == 10) loop->stop();
    return now;
  });
  loop->run();
  EXPECT_EQ(served, 2);
}

TEST(EventLoop, ACallbackMayRemoveItsOwnDescriptor) {
  auto loop = EventLoop::create().value();
  const OwnedFd fd = signalled_fd();
  int served = 0, turns = 0;
  ASSERT_TRUE(loop->add(fd.get(), [&](std::uint32_t) {
    ++served;
    loop->remove(fd.get());
  }));
  loop->add_hook([&](TimeNs now) {
    if (++turns == 5) loop->stop();
    return now;
  });
  loop->run();
  EXPECT_EQ(served, 1);
}

TEST(EventLoop, AnEventOfADescriptorRemovedInTheSameTurnIsNotServed) {
  auto loop = EventLoop::create().value();
  const OwnedFd a = signalled_fd(), b = signalled_fd();
  int served = 0, turns = 0;
  const auto serve_one_and_remove_both = [&](std::uint32_t) {
    ++served;
    loop->remove(a.get());
    loop->remove(b.get());
  };
  ASSERT_TRUE(loop->add(a.get(), serve_one_and_remove_both));
  ASSERT_TRUE(loop->add(b.get(), serve_one_and_remove_both));
  loop->add_hook([&](TimeNs now) {
    if (++turns == 5) loop->stop();
    return now;
  });
  loop->run();
  EXPECT_EQ(served, 1);
}

TEST(EventLoop, WakesAtTheDeadlineOfAHookAndNotBefore) {
  auto loop = EventLoop::create().value();
  const TimeNs due = loop->now() + 2 * kNanosecondsPerMillisecond;
  loop->add_hook([&](TimeNs now) {
    if (now >= due) loop->stop();
    return due;
  });
  loop->run();
  EXPECT_GE(loop->now(), due);
}

TEST(EventLoop, DoesNotSleepWhileAPrepareFindsWorkAndTellsOnlyPreparedOnesOfTheWakeUp) {
  auto loop = EventLoop::create().value();
  int refused = 0, after_refusal = 0, not_prepared = 0;
  loop->add_before_sleep(
      [&] {
        if (++refused == 3) loop->stop();
        return false;
      },
      [&] { ++after_refusal; });
  loop->add_before_sleep([&] { return ++not_prepared, true; }, [&] { ++not_prepared; });
  loop->run();  // would sleep for ever if a refusal did not count
  EXPECT_EQ(refused, 3);
  EXPECT_EQ(after_refusal, 3);
  EXPECT_EQ(not_prepared, 0);
}

}  // namespace
}  // namespace ucm::net
