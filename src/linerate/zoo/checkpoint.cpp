// A checkpoint is one file, written whole and renamed into its place. Its first line has the format
// and a hash of the rest. So a file that is cut off or changed anywhere is refused before any of it
// is used. The rest is an archive of LibTorch: settings, position and tensors by name.
#include "linerate/zoo/checkpoint.hpp"

#include <ATen/core/Dict.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

#include "linerate/comm/fingerprint.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/random.hpp"
#include "linerate/core/text.hpp"
#include "linerate/plan/kfac/kfac.hpp"

namespace linerate::zoo {
namespace {

constexpr std::string_view kOlder = "linerate checkpoint 1\n", kFormat = "linerate checkpoint 2 ";

std::string first_line(std::string_view archive) {
  return fmt::format("{}{:016x}\n", kFormat, hash_words(archive));
}

}  // namespace

// Tensors are copied, because a view would bring all of its storage along.
std::string encode(const Checkpoint& c) {
  c10::Dict<std::string, std::string> settings;
  c10::Dict<std::string, at::Tensor> tensors;
  for (const auto& [key, value] : c.settings) settings.insert(key, value);
  for (const auto& [name, tensor] : c.tensors) tensors.insert(name, tensor.detach().clone());
  const std::vector<char> archive = torch::jit::pickle_save(
      c10::ivalue::Tuple::create(settings, c.epoch, c.step_in_epoch, c.step, tensors));
  std::string content = first_line({archive.data(), archive.size()});
  return content.append(archive.begin(), archive.end());
}

Checkpoint decode(std::string_view content, const std::string& place) {
  if (content.starts_with(kOlder))
    throw InputError(place,
                     "expected a checkpoint of format 2, found one of format 1; resume it with the "
                     "linerate that wrote it, or start anew in another folder");
  if (!content.starts_with(kFormat))
    throw InputError(place, "expected a checkpoint of linerate (format 2), found something else");
  const std::string_view archive = content.substr(std::min(content.size(), first_line("").size()));
  if (!content.starts_with(first_line(archive)))
    throw InputError(place, "the checkpoint is cut off or damaged (" +
                                std::to_string(content.size()) +
                                " bytes, hash does not match); use an older one or start anew");
  const auto parts =
      torch::jit::pickle_load({archive.begin(), archive.end()}).toTuple()->elements().vec();
  Checkpoint c{{}, parts.at(1).toInt(), parts.at(2).toInt(), parts.at(3).toInt(), {}};
  for (const auto& entry : parts.at(0).toGenericDict())
    c.settings[entry.key().toStringRef()] = entry.value().toStringRef();
  for (const auto& entry : parts.at(4).toGenericDict())
    c.tensors.emplace_back(entry.key().toStringRef(), entry.value().toTensor());
  return c;
}

std::filesystem::path checkpoint_file(const std::filesystem::path& folder) {
  return folder / "checkpoint";
}

// One run keeps its checkpoints in a folder, and no other may: two runs would replace each other's.
// The lock says so before the first step.

namespace {

/// "mlp at step 40", or why that is unknown.
std::string what_is_in(const std::filesystem::path& file) {
  try {
    const std::string content = read_file(file);
    const Checkpoint c = decode(content, file.string());
    const auto model = c.settings.find("model");
    return "a checkpoint of " + (model == c.settings.end() ? "some model" : model->second) +
           " at step " + std::to_string(c.step);
  } catch (const InputError& e) {
    return "a file that cannot be read as a checkpoint (" + std::string(e.what()) + ")";
  }
}

}  // namespace

// Made and tried at once: a run must not find after an hour that it cannot write here.
//
// The lock is the kernel's (flock), so it ends with the process, however that ends. The file's
// content only tells people who holds it. Some file systems have no locks; then a warning is all.
CheckpointFolder::CheckpointFolder(std::filesystem::path folder) : folder_(std::move(folder)) {
  make_and_try_folder(folder_);
  const std::filesystem::path path = folder_ / "lock";
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file.open())
    throw InputError(path.string(), "cannot open: " + std::string(std::strerror(errno)));
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      throw InputError(folder_.string(),
                       "another run keeps its checkpoints here (" +
                           std::string(trim(read_file(path))) +
                           "); wait until it has ended, or give another --checkpoint folder");
    log::warning(folder_.string() + ": its file system knows no locks (" + std::strerror(errno) +
                 "); make sure that no other run keeps its checkpoints here");
    return;
  }
  std::array<char, HOST_NAME_MAX + 1> host{};
  ::gethostname(host.data(), host.size() - 1);
  const std::string owner = fmt::format("process {} on host {}\n", ::getpid(), host.data());
  if (::ftruncate(file.get(), 0) != 0 ||
      ::write(file.get(), owner.data(), owner.size()) != static_cast<ssize_t>(owner.size()))
    throw InputError(path.string(), "cannot write: " + std::string(std::strerror(errno)));
  lock_ = std::move(file);
}

// For a run that starts anew: it would replace what is there at its first checkpoint.
void CheckpointFolder::require_none() const {
  if (!std::filesystem::exists(file())) return;
  throw UsageError("--checkpoint " + folder_.string() + ": found " + what_is_in(file()) +
                   "; continue it with --resume, give another folder, or replace it with "
                   "--overwrite");
}

// A new file takes the old one's place in one step, so whatever happens one of them is whole.
void CheckpointFolder::write(const Checkpoint& checkpoint) {
  try {
    write_file_atomically(file(), encode(checkpoint));
  } catch (const InputError& e) {
    std::error_code ignored;
    throw InputError(
        std::string(e.what()) +
        (std::filesystem::exists(file(), ignored)
             ? "; the checkpoint before it is whole; solve this, then go on with --resume"
             : "; there is no checkpoint before it"));
  }
}

// Between rank 0's files and all ranks. Rank 0 alone reads and writes: other ranks may be on
// machines that do not have the folder.

// Three messages: whether the file exists, an error or none, and the content. Every rank takes the
// same way through them, so an error of rank 0 leaves nobody waiting.
std::optional<std::string> read_for_all(comm::Communicator& communicator,
                                        const std::filesystem::path& file) {
  std::string content, error;
  std::int64_t there = 0;
  if (communicator.rank() == 0 && std::filesystem::exists(file)) {
    const comm::Busy busy = communicator.busy("reading a checkpoint");
    there = 1;
    try {
      content = read_file(file);
    } catch (const InputError& e) {
      error = e.what();
    }
  }
  communicator.broadcast(comm::buffer(there), 0, "is there a checkpoint")->wait();
  if (there == 0) return std::nullopt;
  error = comm::broadcast_text(communicator, error, "error of the checkpoint");
  if (!error.empty()) throw on_every_rank(InputError(error));
  return comm::broadcast_text(communicator, content, "checkpoint");
}

void save_measurement(const Measurement::Result& result, const TrainOptions& options) {
  doc::Timeline timeline = result.timeline;
  timeline.source = options.source;
  timeline.workload = result.workload.name;
  timeline.strategy = options.strategy;
  doc::Workload workload = result.workload;
  workload.source = options.source;
  // A run with K-FAC has no strategy that others are to be compared with: they take other steps.
  if (timeline.ranks > 1 && !plan::kfac_of(doc::parse_strategy(options.strategy))) {
    workload.current = options.strategy;
    workload.recorded = doc::RecordedStep{result.recorded_step_s, timeline.ranks};
  }
  std::filesystem::path beside = options.record;
  beside.replace_extension(".workload.json");
  save(timeline, options.record);
  save(workload, beside);
}

std::vector<std::string> lines_of(const Settings& settings) {
  std::vector<std::string> lines;
  for (const Setting& s : settings) lines.push_back(s.key + " " + s.value);
  return lines;
}

std::map<std::string, std::string> kept(const Settings& settings) {
  std::map<std::string, std::string> values;
  for (const Setting& s : settings)
    if (s.on_resume != OnResume::free) values[s.key] = s.value;
  return values;
}

// All settings that differ are told at once, so that one attempt is enough to see them.
std::vector<std::string> notes_on_resume(const Settings& now,
                                         const std::map<std::string, std::string>& then,
                                         const std::string& place) {
  std::vector<std::string> refused, noted, absent;
  for (const Setting& s : now) {
    const auto old = then.find(s.key);
    if (s.on_resume == OnResume::free) continue;
    if (old == then.end())
      absent.push_back(s.key);
    else if (old->second != s.value)
      (s.on_resume == OnResume::same ? refused : noted)
          .push_back(s.key + " " + old->second + ", this run asks for " + s.value + " (" +
                     s.option + ")");
  }
  const std::string written = place + " was written with ";
  if (!refused.empty())
    throw UsageError("--resume: " + written + join(refused, "; ") +
                     ". Resume with the options it was written with, or start anew with another "
                     "--checkpoint folder");
  std::vector<std::string> notes;
  if (!noted.empty()) notes.push_back("note: " + written + join(noted, "; "));
  if (!absent.empty())
    notes.push_back("note: " + place + " is of an older linerate, which did not write down " +
                    join(absent, ", ") + ": make sure that they are as they were");
  return notes;
}

}  // namespace linerate::zoo
