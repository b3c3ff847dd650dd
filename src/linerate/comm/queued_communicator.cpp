// Each operation checks its arguments on this rank and fills in the part of the fingerprint that
// ranks must agree on. Then it hands the request to the queue. Errors of arguments are thrown
// before anything is submitted.
#include "linerate/comm/queued_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/core/hash.hpp"
#include "linerate/core/index.hpp"

namespace linerate::comm {
namespace {

void require(bool condition, std::string_view operation, const std::string& name,
             const std::string& expected) {
  if (!condition) {
    throw UsageError(fmt::format("{} \"{}\": expected {}", operation, name, expected));
  }
}

/// Throws UsageError unless `times` times the bytes fit into a signed 64-bit number, and a count
/// above 0 has memory.
void require_memory(const void* data, Elements count, DType dtype, int times,
                    std::string_view operation, const std::string& name) {
  const std::int64_t most =
      std::numeric_limits<std::int64_t>::max() / size_of(dtype) / std::max(times, 1);
  require(count.value >= 0 && count.value <= most, operation, name,
          fmt::format("a count from 0 to {}, found {}", most, count.value));
  require(data != nullptr || count.value == 0, operation, name,
          fmt::format("memory for {} elements, found a null pointer", count.value));
}

/// Throws UsageError unless the pieces make up the array, one after the other.
void require_pieces(std::span<const Piece> pieces, const Buffer& array, std::string_view operation,
                    const std::string& name) {
  require(is_floating(array.dtype), operation, name, "a floating-point type for a sum of pieces");
  std::int64_t total = 0;
  for (const Piece& piece : pieces) {
    const ConstBuffer& values = piece.values;
    require(values.dtype == array.dtype, operation, name,
            fmt::format("pieces of the array's type {}, found {}", name_of(array.dtype),
                        name_of(values.dtype)));
    require_memory(values.data, values.count, values.dtype, 1, operation, name);
    require(!__builtin_add_overflow(total, values.count.value, &total), operation, name,
            "pieces whose counts' sum fits into 64 bits");
  }
  require(total == array.count.value, operation, name,
          fmt::format("pieces of {} elements together, as the array has, found {}",
                      array.count.value, total));
}

/// A rank's choice when ranks split. Plain bytes, so that it travels as it is.
struct Choice {
  std::int64_t colour = kNoGroup;
  std::int64_t key = 0;
  std::uint64_t next_number = 0;  // the smallest group number that it has not seen
  std::uint64_t name_hash = 0;
  std::uint64_t name_length = 0;
  std::array<char, 80> name{};  // its beginning, for the message

  void set_name(std::string_view full) {
    name_hash = hash_bytes(full);
    name_length = std::min(full.size(), name.size());
    std::memcpy(name.data(), full.data(), name_length);
  }
  std::string_view shown_name() const { return {name.data(), name_length}; }
};

/// The error of a group whose ranks name it differently. Every rank of the parent looks at all
/// groups, so all throw or none.
std::optional<std::string> find_other_name(const std::vector<Choice>& choices,
                                           const std::vector<int>& ranks) {
  for (std::size_t b = 0; b < choices.size(); ++b) {
    for (std::size_t a = 0; a < b && choices[b].colour >= 0; ++a) {
      if (choices[a].colour != choices[b].colour) continue;
      if (choices[a].name_hash == choices[b].name_hash) break;  // a is the first of its colour
      return fmt::format(
          "ranks disagree on the name of their group (colour {}): rank {} says \"{}\", rank {} "
          "says \"{}\"; give it the same name on all of its ranks",
          choices[a].colour, ranks[a], choices[a].shown_name(), ranks[b], choices[b].shown_name());
    }
  }
  return std::nullopt;
}

}  // namespace

QueuedCommunicator::QueuedCommunicator(std::unique_ptr<Transport> transport,
                                       const CommunicatorOptions& options)
    : reads_pieces_(transport->reads_peers()),
      queue_(std::make_shared<ProgressQueue>(std::move(transport))),
      group_(queue_->whole(options.checked)),
      rank_(group_->rank),
      size_(static_cast<int>(group_->members.size())) {}

QueuedCommunicator::QueuedCommunicator(std::shared_ptr<ProgressQueue> queue,
                                       std::shared_ptr<QueuedGroup> group)
    : queue_(std::move(queue)),
      group_(std::move(group)),
      rank_(group_->rank),
      size_(static_cast<int>(group_->members.size())) {}

QueuedCommunicator::~QueuedCommunicator() {
  queue_->drain(*group_, std::uncaught_exceptions() > unwinding_);
}

WorkPtr QueuedCommunicator::submit(Request request, CollectiveCall call) {
  request.group = group_;
  return queue_->submit(std::move(request), call);
}

WorkPtr QueuedCommunicator::all_reduce(Buffer buffer, Reduce op, std::string name) {
  require_memory(buffer.data, buffer.count, buffer.dtype, 1, "all-reduce", name);
  Request request{.output = buffer, .name = std::move(name)};
  request.fingerprint.count = buffer.count.value;
  request.fingerprint.reduce = op;
  return submit(std::move(request), CollectiveCall::all_reduce);
}

WorkPtr QueuedCommunicator::reduce_scatter(ConstBuffer input, Buffer output, Reduce op,
                                           std::string name) {
  require(input.dtype == output.dtype, "reduce-scatter", name, "one dtype for input and output");
  require_memory(input.data, input.count, input.dtype, 1, "reduce-scatter", name);
  require_memory(output.data, output.count, output.dtype, size_, "reduce-scatter", name);
  require(input.count.value == size_ * output.count.value, "reduce-scatter", name,
          fmt::format("an input of {} ranks x {} elements, found {}", size_, output.count.value,
                      input.count.value));
  Request request{.input = input, .output = output, .name = std::move(name)};
  request.fingerprint.count = input.count.value;
  request.fingerprint.reduce = op;
  return submit(std::move(request), CollectiveCall::reduce_scatter);
}

WorkPtr QueuedCommunicator::all_reduce(std::vector<Piece> pieces, Buffer array, std::string name) {
  require_memory(array.data, array.count, array.dtype, 1, "all-reduce", name);
  require_pieces(pieces, array, "all-reduce", name);
  Request request{.output = array, .pieces = std::move(pieces), .name = std::move(name)};
  request.fingerprint.count = array.count.value;
  return submit(std::move(request), CollectiveCall::all_reduce);
}

WorkPtr QueuedCommunicator::reduce_scatter(std::vector<Piece> pieces, Buffer array,
                                           std::string name) {
  require_memory(array.data, array.count, array.dtype, 1, "reduce-scatter", name);
  require(array.count.value % size_ == 0, "reduce-scatter", name,
          fmt::format("an array of {} equal blocks, found {} elements", size_, array.count.value));
  require_pieces(pieces, array, "reduce-scatter", name);
  Request request{.output = array, .pieces = std::move(pieces), .name = std::move(name)};
  request.fingerprint.count = array.count.value;
  return submit(std::move(request), CollectiveCall::reduce_scatter);
}

WorkPtr QueuedCommunicator::all_gather(ConstBuffer input, Buffer output, std::string name) {
  require(input.dtype == output.dtype, "all-gather", name, "one dtype for input and output");
  require_memory(input.data, input.count, input.dtype, size_, "all-gather", name);
  require_memory(output.data, output.count, output.dtype, 1, "all-gather", name);
  require(output.count.value == size_ * input.count.value, "all-gather", name,
          fmt::format("an output of {} ranks x {} elements, found {}", size_, input.count.value,
                      output.count.value));
  Request request{.input = input, .output = output, .name = std::move(name)};
  request.counts.assign(to_index(size_), input.count.value);
  request.fingerprint.count = input.count.value;
  return submit(std::move(request), CollectiveCall::all_gather);
}

WorkPtr QueuedCommunicator::all_gather_v(ConstBuffer input, Buffer output,
                                         std::span<const std::int64_t> counts, std::string name) {
  require(input.dtype == output.dtype, "all-gather-v", name, "one dtype for input and output");
  require_memory(input.data, input.count, input.dtype, 1, "all-gather-v", name);
  require_memory(output.data, output.count, output.dtype, 1, "all-gather-v", name);
  require(static_cast<int>(counts.size()) == size_, "all-gather-v", name,
          fmt::format("{} counts, one a rank, found {}", size_, counts.size()));
  Request request{.input = input, .output = output, .name = std::move(name)};
  request.counts.assign(counts.begin(), counts.end());
  request.fingerprint.counts_hash = kHashStart;
  std::int64_t total = 0;
  for (const std::int64_t count : counts) {
    require(count >= 0 && !__builtin_add_overflow(total, count, &total), "all-gather-v",
            request.name,
            fmt::format("counts from 0 on whose sum fits into 64 bits, found {}", count));
    request.fingerprint.counts_hash =
        hash_value(static_cast<std::uint64_t>(count), request.fingerprint.counts_hash);
  }
  require(input.count.value == counts[to_index(rank_)], "all-gather-v", request.name,
          fmt::format("an input of counts[{}] = {} elements, found {}", rank_,
                      counts[to_index(rank_)], input.count.value));
  require(output.count.value == total, "all-gather-v", request.name,
          fmt::format("an output of {} elements, the sum of the counts, found {}", total,
                      output.count.value));
  request.fingerprint.count = input.count.value;
  return submit(std::move(request), CollectiveCall::all_gather_v);
}

WorkPtr QueuedCommunicator::all_to_all(ConstBuffer input, Buffer output, std::string name) {
  require(input.dtype == output.dtype, "all-to-all", name, "one dtype for input and output");
  require_memory(input.data, input.count, input.dtype, 1, "all-to-all", name);
  require_memory(output.data, output.count, output.dtype, 1, "all-to-all", name);
  require(input.count.value == output.count.value && input.count.value % size_ == 0, "all-to-all",
          name, fmt::format("input and output of the same count, a multiple of {}", size_));
  require(input.data != output.data || input.count.value == 0, "all-to-all", name,
          "separate memory for input and output");
  Request request{.input = input, .output = output, .name = std::move(name)};
  request.fingerprint.count = input.count.value;
  return submit(std::move(request), CollectiveCall::all_to_all);
}

WorkPtr QueuedCommunicator::broadcast(Buffer buffer, int root, std::string name) {
  require(root >= 0 && root < size_, "broadcast", name,
          fmt::format("a root in 0..{}, found {}", size_ - 1, root));
  require_memory(buffer.data, buffer.count, buffer.dtype, 1, "broadcast", name);
  Request request{.output = buffer, .name = std::move(name)};
  request.fingerprint.count = buffer.count.value;
  request.fingerprint.root = group_->members[to_index(root)];
  request.root = root;
  return submit(std::move(request), CollectiveCall::broadcast);
}

WorkPtr QueuedCommunicator::barrier(std::string name) {
  return submit(Request{.name = std::move(name)}, CollectiveCall::barrier);
}

/// All ranks gather their choices, so each computes all groups alike without further messages.
///
/// An example with colours 0, 1, 0 on ranks 0 to 2. Ranks 0 and 2 form a group, and rank 1 one of
/// its own. Rank 2 is already in another group with number 1, so it has 2 as its next number, and
/// ranks 0 and 1 have 1. The group of ranks 0 and 2 gets number 2, the greatest of its members'
/// next numbers. So no two communicators of rank 2 have the same number.
std::unique_ptr<Communicator> QueuedCommunicator::split(int colour, int key, std::string name) {
  if (name.empty()) throw UsageError("split: expected a name for the group, found none");
  Choice own{
      .colour = std::max(colour, kNoGroup), .key = key, .next_number = queue_->next_number()};
  own.set_name(name);
  std::vector<Choice> choices(to_index(size_));
  const auto bytes = static_cast<std::int64_t>(sizeof(Choice));
  all_gather({&own, {bytes}, DType::u8}, {choices.data(), {size_ * bytes}, DType::u8}, "split")
      ->wait();
  if (const auto other = find_other_name(choices, group_->members)) throw CommError(*other);
  if (colour < 0) return nullptr;

  // A number that no member has used, so two communicators that share a rank never have the same
  // one.
  std::uint64_t number = 0;
  std::vector<int> ranks;  // of the group, by their rank here
  for (int r = 0; r < size_; ++r) {
    const Choice& choice = choices[to_index(r)];
    if (choice.colour != colour) continue;
    number = std::max(number, choice.next_number);
    ranks.push_back(r);
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return choices[to_index(a)].key < choices[to_index(b)].key;
  });
  const auto own_place = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
  std::vector<int> members;
  for (const int r : ranks) members.push_back(group_->members[to_index(r)]);
  auto group = queue_->part(number, std::move(name), std::move(members),
                            static_cast<int>(own_place), group_);
  return std::unique_ptr<Communicator>(new QueuedCommunicator(queue_, std::move(group)));
}

}  // namespace linerate::comm
