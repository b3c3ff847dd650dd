// Joins parts of a file that were read at the same time. Records refer to tables of their own part
// by index, and each index is translated to its place in the tables of the whole. "aten::mm" may be
// name 0 of the second part and name 57 of the first: the second part's 0 becomes 57. Tables that
// are only appended, such as arguments, need an offset.
#include <algorithm>
#include <iterator>

#include "linerate/core/index.hpp"
#include "linerate/trace/kineto/records.hpp"

namespace linerate::trace {
namespace {

/// The place in `all` of each name of `some`.
std::vector<std::int32_t> places_of_names(const NameTable& some, NameTable& all) {
  std::vector<std::int32_t> places;
  for (std::size_t i = 0; i < some.size(); ++i)
    places.push_back(all.intern(some[static_cast<std::int32_t>(i)].text));
  return places;
}

template <typename T>
void move_behind(std::vector<T>& all, std::vector<T>& some) {
  all.insert(all.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
}

/// What an index into a part's table is in the whole. Negative: absent.
std::int32_t place_at(const std::vector<std::int32_t>& places, std::int32_t index) {
  return index < 0 ? index : places[to_index(index)];
}
std::int32_t moved_by(std::size_t offset, std::int32_t index) {
  return index < 0 ? index : index + static_cast<std::int32_t>(offset);
}

}  // namespace

void KinetoRecords::append(KinetoRecords& next) {
  KinetoTrace& some = next.out_;
  const std::vector<std::int32_t> names = places_of_names(some.names, out_.names);
  const std::vector<std::int32_t> threads = places_of_names(next.thread_names_, thread_names_);
  std::vector<std::int32_t> groups;
  for (GroupRecord& group : next.groups_) groups.push_back(group_index(std::move(group)));
  const std::size_t args = out_.args.size(), splits = out_.splits.size(),
                    shapes = out_.shapes.size();

  const auto thread = [&threads](std::int64_t tid) {
    const bool named = tid < 0 && tid >= -std::ssize(threads);
    return named ? -1 - std::int64_t{threads[to_index(-1 - tid)]} : tid;
  };
  for (CollectiveArgs& a : some.args) {
    a.group = place_at(groups, a.group);
    a.splits = moved_by(splits, a.splits);
  }
  const auto place = [&](auto& record) {
    record.name = place_at(names, record.name);
    if constexpr (requires { record.args; }) record.args = moved_by(args, record.args);
    if constexpr (requires { record.shapes; }) record.shapes = moved_by(shapes, record.shapes);
    if constexpr (requires { record.tid; }) record.tid = thread(record.tid);
  };
  for (DeviceEvent& e : some.device) place(e);
  for (CommMark& m : some.marks) place(m);
  for (CommMark& o : some.operators) place(o);
  for (CpuOp& o : some.ops) place(o);
  for (Launch& l : some.launches) l.tid = thread(l.tid);

  if (!some.steps.empty()) out_.step_thread = thread(some.step_thread);
  move_behind(out_.device, some.device);
  move_behind(out_.args, some.args);
  move_behind(out_.splits, some.splits);
  move_behind(out_.shapes, some.shapes);
  move_behind(out_.marks, some.marks);
  move_behind(out_.operators, some.operators);
  move_behind(out_.launches, some.launches);
  move_behind(out_.ops, some.ops);
  move_behind(out_.steps, some.steps);
  move_behind(out_.device_steps, some.device_steps);
  for (const auto& [name, count] : some.unknown_collectives)
    out_.unknown_collectives[name] += count;
  for (const auto count :
       {&KinetoTrace::own, &KinetoTrace::other_device, &KinetoTrace::without_duration,
        &KinetoTrace::bad_time, &KinetoTrace::absurd})
    out_.*count += some.*count;
}

}  // namespace linerate::trace
