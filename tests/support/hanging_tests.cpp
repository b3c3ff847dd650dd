// Tests that hang or die: what watchdog_test.py runs to see how they are reported.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

// With names that the program exports, since stacks show no others.
__attribute__((noinline)) void waits_for_ever() {
  std::mutex mutex;
  std::condition_variable wake;
  std::unique_lock lock(mutex);
  wake.wait(lock, [] { return false; });
}

std::atomic<bool> never{false};
__attribute__((noinline)) void spins_for_ever() {
  while (!never.load(std::memory_order_relaxed)) {
  }
}

TEST(Hangs, WhileAnotherThreadSpins) {
  std::thread spinning(spins_for_ever);
  waits_for_ever();
  spinning.join();
}

TEST(Dies, ByAnAbort) { std::abort(); }

TEST(Ends, InTime) {}
