// Linked into every program of tests. A test that hangs is named with the stacks of all threads,
// and ends its program before ctest would kill it without a word; so is, by name, a test in which
// its program dies, since --gtest_brief=1 does not say which one had begun.
//
// LINERATE_TEST_LIMIT_S=0 waits for ever: for a debugger, or valgrind.
#include <dlfcn.h>
#include <execinfo.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

extern "C" void __sanitizer_set_death_callback(void (*)()) __attribute__((weak));

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kToStderr = 2;
constexpr int kMostFrames = 64;
constexpr std::chrono::seconds kAnswer{2};  // a thread that is stopped never answers
const int kDumpSignal = SIGRTMIN + 7;

// ---- stacks ----

// The C library's own, past a sanitizer's: ThreadSanitizer holds signals back from a thread that
// spins, and it is the spinning one that must answer.
template <typename Function>
Function* of_libc(const char* name, Function* otherwise) {
  void* libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  void* found = libc ? dlsym(libc, name) : nullptr;
  return found ? reinterpret_cast<Function*>(found) : otherwise;
}

decltype(&backtrace) stack_of_caller = nullptr;
std::array<void*, kMostFrames> frames;
int answered = 0;  // by builtins alone: the handler calls nothing that a sanitizer has changed

__attribute__((no_sanitize("thread", "address", "undefined"))) void answer(int) {
  const int depth = stack_of_caller(frames.data(), kMostFrames);
  __atomic_store_n(&answered, depth, __ATOMIC_RELEASE);
}

void listen_for_dumps() {
  stack_of_caller = of_libc("backtrace", &backtrace);
  stack_of_caller(frames.data(), 1);  // the first call loads a library, which no handler may do
  struct sigaction action {};
  action.sa_handler = answer;
  action.sa_flags = SA_RESTART;
  of_libc("sigaction", static_cast<int (*)(int, const struct sigaction*, struct sigaction*)>(
                           &sigaction))(kDumpSignal, &action, nullptr);
}

/// R: running (a spin), S: asleep (a wait), T: stopped.
char state_of(const std::string& thread) {
  std::ifstream file("/proc/self/task/" + thread + "/stat");
  std::string stat;
  std::getline(file, stat);
  const auto name_ends = stat.rfind(") ");
  return name_ends == std::string::npos ? '?' : stat[name_ends + 2];
}

void print_stack_of(const std::string& thread) {
  const char state = state_of(thread);
  __atomic_store_n(&answered, 0, __ATOMIC_RELEASE);
  syscall(SYS_tgkill, getpid(), std::stoi(thread), kDumpSignal);
  const auto until = Clock::now() + kAnswer;
  while (__atomic_load_n(&answered, __ATOMIC_ACQUIRE) == 0 && Clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const int depth = __atomic_load_n(&answered, __ATOMIC_ACQUIRE);
  std::fprintf(stderr, "--- thread %s, state %c%s\n", thread.c_str(), state,
               depth == 0 ? ": no answer" : "");
  backtrace_symbols_fd(frames.data(), depth, kToStderr);
}

void print_stacks() {
  std::vector<std::string> threads;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    threads.push_back(entry.path().filename());
  const std::string own = std::to_string(syscall(SYS_gettid));
  std::sort(threads.begin(), threads.end());
  for (const std::string& thread : threads)
    if (thread != own) print_stack_of(thread);
  std::fprintf(stderr,
               "--- names: pipe this through c++filt; lines: addr2line -Cfpie PROGRAM +0x...\n");
}

// ---- deaths ----

std::array<char, 512> running{};  // the test's name; "" between tests

/// Of a signal handler, so without allocation.
void name_the_test() {
  if (running[0] == 0) return;
  for (const char* text :
       {"\nthe program died in the test ", static_cast<const char*>(running.data()), "\n"})
    if (write(kToStderr, text, std::strlen(text)) < 0) return;
}

void die_by(int signal) {
  name_the_test();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// What a sanitizer reports stays its own.
void name_tests_that_die() {
  if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(name_the_test);
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_DFL) std::signal(signal, die_by);
  }
}

// ---- hangs ----

double limit_s() {
  const char* text = std::getenv("LINERATE_TEST_LIMIT_S");
  return text ? std::strtod(text, nullptr) : LINERATE_TEST_LIMIT_S;
}

class Watchdog : public testing::EmptyTestEventListener {
  void OnTestProgramStart(const testing::UnitTest&) override {
    name_tests_that_die();
    if (limit_s() <= 0) return;
    listen_for_dumps();
    watcher_ = std::thread([this] { watch(); });
  }
  void OnTestStart(const testing::TestInfo& test) override {
    const std::lock_guard lock(mutex_);
    std::snprintf(running.data(), running.size(), "%s.%s", test.test_suite_name(), test.name());
    begun_ = Clock::now();
  }
  void OnTestEnd(const testing::TestInfo&) override {
    const std::lock_guard lock(mutex_);
    running[0] = 0;
  }
  void OnTestProgramEnd(const testing::UnitTest&) override {
    if (!watcher_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    wake_.notify_one();
    watcher_.join();
  }

  void watch() {
    const std::chrono::duration<double> limit(limit_s());
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, std::chrono::milliseconds(200), [this] { return ended_; }))
      if (running[0] != 0 && Clock::now() - begun_ > limit) give_up(limit.count());
  }

  [[noreturn]] void give_up(double limit) {
    std::fflush(stdout);
    std::fprintf(stderr,
                 "\nHUNG: %s has run for more than %g s (LINERATE_TEST_LIMIT_S); its threads:\n",
                 running.data(), limit);
    print_stacks();
    std::fprintf(stderr, "[  FAILED  ] %s (hung)\n", running.data());
    std::fflush(stderr);
    _exit(1);
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  bool ended_ = false;
  Clock::time_point begun_;
  std::thread watcher_;
};

// Before main(), so that programs need not know; googletest owns its listeners.
[[maybe_unused]] const bool appended = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new Watchdog);
  return true;
}();

}  // namespace
