// Ranks compare one hash of all their tensors (8 bytes each). Only if those differ do they gather
// the hashes of the single tensors and name the first that differs from rank 0's.
//
// Example of three ranks whose tensors are "fc.weight" and "fc.bias": on rank 2 the bias has
// changed. The hashes of ranks 0 and 1 agree, and that of rank 2 does not. All three gather the
// lists, and all three throw with "fc.bias", rank 0's hash and rank 2's.
#include "linerate/torch_adapter/state_check.hpp"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "linerate/comm/fingerprint.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"
#include "linerate/torch_adapter/agreed_model.hpp"

namespace linerate::torch_adapter {
namespace {

/// "0x<hash> <name>": a name may hold blanks.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}
std::string hash_in(const std::string& line) { return line.substr(0, line.find(' ')); }
std::string name_in(const std::string& line) { return line.substr(line.find(' ') + 1); }

/// The first place at which a rank's list differs from rank 0's.
struct Difference {
  std::size_t tensor, rank;
};

Difference first_difference(const std::vector<std::vector<std::string>>& by_rank) {
  Difference first{by_rank[0].size(), 0};
  for (std::size_t r = 1; r < by_rank.size(); ++r) {
    const auto [ours, theirs] =
        std::mismatch(by_rank[0].begin(), by_rank[0].end(), by_rank[r].begin(), by_rank[r].end());
    const auto at = to_index(ours - by_rank[0].begin());
    const bool differs = ours != by_rank[0].end() || theirs != by_rank[r].end();
    if (differs && (first.rank == 0 || at < first.tensor)) first = {at, r};
  }
  return first;
}

std::string difference_in_words(const std::vector<std::vector<std::string>>& by_rank) {
  const auto [at, rank] = first_difference(by_rank);
  const auto &ours = by_rank[0], &theirs = by_rank[rank];
  if (at >= ours.size() || at >= theirs.size() || name_in(ours[at]) != name_in(theirs[at])) {
    const auto tensor = [at = at](const std::vector<std::string>& lines) {
      return at < lines.size() ? "\"" + name_in(lines[at]) + "\""
                               : fmt::format("none ({} tensors)", lines.size());
    };
    return fmt::format(
        "ranks list different tensors: as number {} rank 0 has {}, rank {} has {}; build the same "
        "model and optimizer on every rank",
        at, tensor(ours), rank, tensor(theirs));
  }
  return fmt::format(
      "ranks differ in \"{}\": rank 0 has {}, rank {} has {}. Something changed it on one rank "
      "alone; go back to a checkpoint that all ranks share, and make every rank do the same "
      "between finish() and the next step",
      name_in(ours[at]), hash_in(ours[at]), rank, hash_in(theirs[at]));
}

}  // namespace

std::uint64_t hash_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return kHashStart;
  std::uint64_t hash = hash_bytes(c10::toString(tensor.scalar_type()));
  hash = hash_value(static_cast<std::uint64_t>(tensor.dim()), hash);
  for (const std::int64_t n : tensor.sizes())
    hash = hash_value(static_cast<std::uint64_t>(n), hash);
  const at::Tensor flat = tensor.detach().cpu().contiguous();
  return hash_words({static_cast<const char*>(flat.const_data_ptr()), flat.nbytes()}, hash);
}

void require_same_tensors(comm::Communicator& communicator, const std::string& what,
                          const NamedTensors& tensors) {
  std::string text;
  for (const auto& [name, tensor] : tensors)
    text += fmt::format("0x{:016x} {}\n", hash_of(tensor), name);
  auto mine = static_cast<std::int64_t>(hash_bytes(text));
  std::vector<std::int64_t> hashes(to_index(communicator.size()));
  communicator.all_gather(comm::buffer(mine), comm::buffer(hashes), what + ": hash")->wait();
  if (std::count(hashes.begin(), hashes.end(), hashes[0]) == communicator.size()) return;
  // Every rank saw the same hashes, so every rank comes here.
  std::vector<std::vector<std::string>> by_rank;
  for (const std::string& list : comm::gather_texts(communicator, text, what + ": hashes"))
    by_rank.push_back(lines_of(list));
  throw on_every_rank(CommError(what + ": " + difference_in_words(by_rank)));
}

void broadcast_memory(comm::Communicator& communicator, const MemoryPieces& pieces,
                      const std::string& name) {
  std::vector<comm::WorkPtr> works;
  for (const std::span<std::byte> piece : pieces)
    works.push_back(communicator.broadcast(comm::buffer(piece), 0, name));
  for (const comm::WorkPtr& work : works) work->wait();
}

}  // namespace linerate::torch_adapter
