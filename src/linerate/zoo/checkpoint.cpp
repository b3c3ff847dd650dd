// A checkpoint is one file, written whole and renamed into its place. The hash at its end covers
// everything before it. So a file that is cut off or changed anywhere is refused before any of it
// is used.
//
// The format: a magic line, eight bytes with the length of the head, the head as JSON, the arrays'
// bytes, and eight bytes of hash. The head lists the arrays' names, types and shapes, in the order
// of their bytes.
#include "linerate/zoo/checkpoint.hpp"

#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/json.hpp"
#include "linerate/plan/kfac/kfac.hpp"
#include "linerate/torch_adapter/agreed_model.hpp"

namespace linerate::zoo {
namespace {

constexpr doc::DocumentKind kCheckpointHead{"checkpoint"};
constexpr std::string_view kMagic = "linerate checkpoint 1\n";
constexpr std::size_t kWord = 8;

// Eight bytes, little endian, whatever the machine.
void append_word(std::string& text, std::uint64_t value) {
  for (int i = 0; i < 8; ++i) text.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

std::uint64_t word_at(std::string_view text, std::size_t at) {
  std::uint64_t value = 0;
  for (int i = 7; i >= 0; --i)
    value = value << 8 | static_cast<unsigned char>(text[at + to_index(i)]);
  return value;
}

std::int64_t bytes_of(const Array& array) {
  std::int64_t bytes = size_of(array.dtype);
  for (const std::int64_t n : array.shape) bytes *= n;
  return bytes;
}

// Settings are texts: what they mean is the trainer's.
doc::Json head_of(const Checkpoint& c) {
  doc::Json head = doc::new_document(kCheckpointHead);
  head["settings"] = doc::Json::object();
  for (const auto& [key, value] : c.settings) head["settings"][key] = value;
  head["epoch"] = c.epoch;
  head["step_in_epoch"] = c.step_in_epoch;
  head["step"] = c.step;
  head["arrays"] = doc::Json::array();
  for (const Array& a : c.arrays)
    head["arrays"].push_back(
        {{"name", a.name}, {"dtype", std::string(name_of(a.dtype))}, {"shape", a.shape}});
  return head;
}

void read_head(const doc::JsonReader& head, Checkpoint& c) {
  doc::expect_document(head, kCheckpointHead);
  for (const auto& [key, value] : head.at("settings").value().items())
    c.settings[key] = value.get<std::string>();
  c.epoch = head.at("epoch").integer();
  c.step_in_epoch = head.at("step_in_epoch").integer();
  c.step = head.at("step").integer();
  for (const doc::JsonReader& row : head.at("arrays").items()) {
    Array array{row.at("name").string(), parse_dtype(row.at("dtype").string()), {}, {}};
    for (const doc::JsonReader& n : row.at("shape").items()) array.shape.push_back(n.integer());
    c.arrays.push_back(std::move(array));
  }
}

}  // namespace

std::string encode(const Checkpoint& c) {
  const std::string head = head_of(c).dump();
  std::string content(kMagic);
  append_word(content, head.size());
  content += head;
  for (const Array& array : c.arrays) {
    LINERATE_CHECK(static_cast<std::int64_t>(array.bytes.size()) == bytes_of(array), array.name);
    content += array.bytes;
  }
  append_word(content, hash_words(content));
  return content;
}

// Checks magic line, length, hash, head and arrays in this order. Sizes in the head are not
// trusted: each is compared with the bytes that are left.
Checkpoint decode(std::string_view content, const std::string& place) {
  if (!content.starts_with(kMagic))
    throw InputError(place, "expected a checkpoint of linerate (format 1), found something else");
  const auto cut_off = [&]() -> InputError {
    return {place, "the checkpoint is cut off or damaged (" + std::to_string(content.size()) +
                       " bytes, hash does not match); use an older one or start anew"};
  };
  if (content.size() < kMagic.size() + 2 * kWord) throw cut_off();
  const std::string_view body = content.substr(0, content.size() - kWord);
  if (hash_words(body) != word_at(content, body.size())) throw cut_off();
  std::size_t at = kMagic.size() + kWord;
  const std::uint64_t head_size = word_at(content, kMagic.size());
  if (head_size > body.size() - at) throw cut_off();
  Checkpoint c;
  const doc::Json head = doc::parse_json(std::string(body.substr(at, head_size)), place);
  read_head(doc::JsonReader(head, place), c);
  at += head_size;
  for (Array& array : c.arrays) {
    const auto bytes = to_index(bytes_of(array));
    if (bytes > body.size() - at) throw cut_off();
    array.bytes = body.substr(at, bytes);
    at += bytes;
  }
  return c;
}

std::filesystem::path checkpoint_file(const std::filesystem::path& folder) {
  return folder / "checkpoint";
}

// One run keeps its checkpoints in a folder, and no other may: two runs would replace each other's.
// The lock says so before the first step.

namespace {

// "process 4711 on host node3", for the message to another run.
std::string this_process() {
  std::array<char, HOST_NAME_MAX + 1> host{};
  ::gethostname(host.data(), host.size() - 1);
  return "process " + std::to_string(::getpid()) + " on host " + host.data();
}

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
CheckpointFolder::CheckpointFolder(std::filesystem::path folder) : folder_(std::move(folder)) {
  make_and_try_folder(folder_);
  lock();
}

// The lock is the kernel's (flock), so it ends with the process, however that ends. The file's
// content only tells people who holds it. Some file systems have no locks; then a warning is all.
void CheckpointFolder::lock() {
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
    return log::warning(folder_.string() + ": its file system knows no locks (" +
                        std::strerror(errno) +
                        "); make sure that no other run keeps its checkpoints here");
  }
  const std::string owner = this_process() + "\n";
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

// Between LibTorch's tensors and the arrays of a checkpoint, and between rank 0's files and all
// ranks. Rank 0 alone reads and writes: other ranks may be on machines that do not have the folder.

namespace {

/// The element type of a tensor in a checkpoint.
DType dtype_of(const at::Tensor& tensor) {
  const auto type = torch_adapter::dtype_of(tensor.scalar_type());
  if (type == DType::f32 || type == DType::f64 || type == DType::i64) return *type;
  check_failed("f32, f64 or i64", "a checkpoint holds no other types");
}

// Sends a text of any length from rank 0: its size first. Collective.
void broadcast(comm::Communicator& communicator, std::string& text) {
  auto size = static_cast<std::int64_t>(text.size());
  communicator.broadcast(comm::buffer(size), 0, "size of the checkpoint")->wait();
  text.resize(to_index(size));
  if (size > 0) communicator.broadcast(comm::buffer(text), 0, "checkpoint")->wait();
}

}  // namespace

// The array points into the tensor's memory; the keeper holds the tensor until the checkpoint is
// written.
Array ArrayKeeper::array(const std::string& name, const at::Tensor& tensor) {
  const at::Tensor& flat = kept_.emplace_back(tensor.detach().contiguous());
  return {name,
          dtype_of(flat),
          flat.sizes().vec(),
          {static_cast<const char*>(flat.const_data_ptr()), flat.nbytes()}};
}

at::Tensor tensor_of(const Array& array) {
  // Memory inside a file's text is not aligned: a copy is.
  const at::Tensor copy = at::empty(array.shape, torch_adapter::scalar_type(array.dtype));
  std::memcpy(copy.mutable_data_ptr(), array.bytes.data(), array.bytes.size());
  return copy;
}

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
  broadcast(communicator, error);
  if (!error.empty()) throw on_every_rank(InputError(error));
  broadcast(communicator, content);
  return content;
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
