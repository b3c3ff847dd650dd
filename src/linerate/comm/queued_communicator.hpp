// Communicators over any Transport. Those of one family share a queue of submitted collectives and
// the one thread that runs them.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "linerate/comm/communicator.hpp"
#include "linerate/comm/transport.hpp"

namespace linerate::comm {

/// Ends the thread of a family of communicators, because the process exits with this status.
/// Returns whether no collective was pending; absent if the family is gone already.
using Stopper = std::function<std::optional<bool>(int status)>;

/// The communicator of all ranks of the transport. `stopper` gets what can stop its family; null:
/// nobody stops it.
std::unique_ptr<Communicator> queued(std::unique_ptr<Transport> transport, bool checked,
                                     Stopper* stopper = nullptr);

}  // namespace linerate::comm
