#include "linerate/torch_adapter/early_sending.hpp"

#include <map>
#include <mutex>

namespace linerate::torch_adapter {
namespace {

std::mutex mutex;  // of the table: ranks may be threads
std::map<const comm::Communicator*, const EarlySending*>& holders() {
  static auto* table =
      new std::map<const comm::Communicator*, const EarlySending*>;  // outlives statics
  return *table;
}

}  // namespace

EarlySending::EarlySending(comm::Communicator& communicator, std::function<void()> wait_idle)
    : communicator_(communicator), wait_idle_(std::move(wait_idle)) {}

EarlySending::~EarlySending() { give_back(); }

bool EarlySending::take() {
  const std::lock_guard lock(mutex);
  return holders().try_emplace(&communicator_, this).first->second == this;
}

void EarlySending::give_back() {
  const std::lock_guard lock(mutex);
  const auto at = holders().find(&communicator_);
  if (at != holders().end() && at->second == this) holders().erase(at);
}

void EarlySending::wait_for_others() const {
  const EarlySending* holder = nullptr;
  {
    const std::lock_guard lock(mutex);
    const auto at = holders().find(&communicator_);
    if (at != holders().end()) holder = at->second;
  }
  if (holder && holder != this) holder->wait_idle_();
}

}  // namespace linerate::torch_adapter
