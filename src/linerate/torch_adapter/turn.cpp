#include "linerate/torch_adapter/turn.hpp"

#include <map>
#include <mutex>

namespace linerate::torch_adapter {
namespace {

std::mutex mutex;  // of the table: ranks may be threads
std::map<const comm::Communicator*, const Turn*>& holders() {
  static auto* table = new std::map<const comm::Communicator*, const Turn*>;  // outlives statics
  return *table;
}

}  // namespace

Turn::Turn(comm::Communicator& communicator, std::function<void()> wait_idle)
    : communicator_(communicator), wait_idle_(std::move(wait_idle)) {}

Turn::~Turn() { give_back(); }

bool Turn::take() {
  const std::lock_guard lock(mutex);
  return holders().try_emplace(&communicator_, this).first->second == this;
}

void Turn::give_back() {
  const std::lock_guard lock(mutex);
  const auto at = holders().find(&communicator_);
  if (at != holders().end() && at->second == this) holders().erase(at);
}

void Turn::wait_for_others() const {
  const Turn* holder = nullptr;
  {
    const std::lock_guard lock(mutex);
    const auto at = holders().find(&communicator_);
    if (at != holders().end()) holder = at->second;
  }
  if (holder && holder != this) holder->wait_idle_();
}

}  // namespace linerate::torch_adapter
