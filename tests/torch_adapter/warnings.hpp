// What this rank was told: warnings and errors.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/core/error.hpp"

namespace linerate::torch_adapter {

/// The error of this kind that it throws; empty if it throws none.
template <typename Expected = UsageError, typename Action>
std::string thrown_by(Action&& action) {
  try {
    action();
  } catch (const Expected& e) {
    return e.what();
  } catch (const std::exception& e) {
    return std::string("of another kind: ") + e.what();
  }
  return "";
}

/// The same of one that every rank has to throw.
template <typename Expected = UsageError, typename Action>
std::string thrown_on_every_rank(Action&& action) {
  bool is_everywhere = true;
  const std::string message = thrown_by<Expected>([&] {
    try {
      action();
    } catch (const Expected& e) {
      is_everywhere = e.on_every_rank();
      throw;
    }
  });
  return is_everywhere ? message : "of this rank alone: " + message;
}

/// While it lives, warnings of all ranks that are threads of this process end here.
class Warnings {
 public:
  Warnings() {
    log::set_sink([this](log::Level level, const std::string& message) {
      const std::lock_guard lock(mutex_);
      if (level == log::Level::warning) all_.push_back(message);
    });
  }
  ~Warnings() { log::set_sink({}); }

  /// Those that hold this text.
  std::vector<std::string> with(const std::string& text) const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> found;
    for (const std::string& one : all_)
      if (one.find(text) != std::string::npos) found.push_back(one);
    return found;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> all_;
};

/// What kRanks(n, work) does, and nobody sees warnings.
template <auto kRanks>
void quietly(int n, const std::function<void(comm::Communicator&)>& work) {
  const Warnings quiet;
  kRanks(n, work);
}

}  // namespace linerate::torch_adapter
