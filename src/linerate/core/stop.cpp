#include "linerate/core/stop.hpp"

#include <utility>

namespace linerate {
namespace {

std::stop_token& stop_of_this_thread() {
  thread_local std::stop_token stop;
  return stop;
}

}  // namespace

std::stop_token current_stop() { return stop_of_this_thread(); }

void throw_if_stopped() {
  if (stop_of_this_thread().stop_requested()) throw Stopped();
}

StopScope::StopScope(std::stop_token stop)
    : before_(std::exchange(stop_of_this_thread(), std::move(stop))) {}
StopScope::~StopScope() { stop_of_this_thread() = std::move(before_); }

}  // namespace linerate
