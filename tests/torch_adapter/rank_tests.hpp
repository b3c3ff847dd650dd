// Tests whose body is what each rank does.
#pragma once

#include <gtest/gtest.h>

#include "linerate/comm/communicator.hpp"

/// TEST, TEST_F, TEST_P on ranks that start(..., f) has call f, whose body follows.
#define TEST_ON(suite, name, ...) LINERATE_TEST_ON(TEST, suite, name, __VA_ARGS__)
#define TEST_F_ON(suite, name, ...) LINERATE_TEST_ON(TEST_F, suite, name, __VA_ARGS__)
#define TEST_P_ON(suite, name, ...) LINERATE_TEST_ON(TEST_P, suite, name, __VA_ARGS__, GetParam())

#define LINERATE_TEST_ON(kind, suite, name, start, ...)     \
  void suite##_##name(::linerate::comm::Communicator&);     \
  kind(suite, name) { start(__VA_ARGS__, suite##_##name); } \
  void suite##_##name(::linerate::comm::Communicator& communicator)

/// The same of with_pair(n, f), and of with_pair_step_by_step(n, steps, f).
#define TEST_WITH_PAIR(suite, name, n)                \
  void suite##_##name(PairedMlp&, DataParallel&);     \
  TEST(suite, name) { with_pair(n, suite##_##name); } \
  void suite##_##name(PairedMlp& pair, DataParallel& parallel)
#define TEST_BY_STEPS(suite, name, n, steps)                              \
  void suite##_##name(PairedMlp&, DataParallel&, int);                    \
  TEST(suite, name) { with_pair_step_by_step(n, steps, suite##_##name); } \
  void suite##_##name(PairedMlp& pair, DataParallel& parallel, [[maybe_unused]] int step)
