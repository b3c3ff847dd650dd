// Agreements of ranks before data moves. Short texts are gathered everywhere, so that every rank
// throws the same error and names both sides. If only one side noticed a difference, the other side
// would wait for ever.
//
// For example rank 2 of three cannot open its file. It does not throw, because ranks 0 and 1 would
// then wait in the next collective. In require_success() all ranks gather exit codes (0, 0, 3),
// then messages, and all throw "rank 2: ...".
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "linerate/comm/communicator.hpp"

namespace linerate::comm {

/// The text of every rank, by rank, on every rank. Collective.
std::vector<std::string> gather_texts(Communicator& communicator, const std::string& text,
                                      const std::string& name);

/// Rank 0's text, on every rank. Collective.
std::string broadcast_text(Communicator& communicator, const std::string& text,
                           const std::string& name);

/// Compares `lines` across ranks, hashes first. Throws the same CommError on every rank: "<what>:
/// rank 0 has ..., rank 2 has ..." with the first line that differs. Collective.
void require_same(Communicator& communicator, const std::string& what,
                  const std::vector<std::string>& lines);

/// Runs `action` on this rank. If it throws on any rank, every rank throws the same error. If all
/// ranks failed alike, it is that error. Else it is of the kind of the first rank that failed, with
/// "rank r:" before each different message. `action` must not communicate, because a failure on one
/// rank would leave the others waiting. Collective.
void require_success(Communicator& communicator, const std::string& what,
                     const std::function<void()>& action);

/// `problem` is empty if this rank is fine. If any rank has one, every rank throws a UsageError
/// that names the rank and its problem. Collective.
void require_no_problem(Communicator& communicator, const std::string& what,
                        const std::string& problem);

}  // namespace linerate::comm
