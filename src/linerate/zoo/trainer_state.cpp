// The state of a Trainer that outlives a step: the settings that make it this run, the places it
// writes to, and the tensors that ranks compare, save and load.
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "linerate/comm/fingerprint.hpp"
#include "linerate/compress/two_phase.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/core/random.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/kfac/kfac_report.hpp"
#include "linerate/models/catalogue.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/torch_adapter/state_check.hpp"
#include "linerate/zoo/checkpoint.hpp"
#include "linerate/zoo/trainer.hpp"

namespace linerate::zoo {
namespace {

/// Beginnings of names: of what compressors remember, each followed by the rank, of what the
/// preconditioner and the optimizer do.
const std::string kCompression = "compression.", kCurvature = "kfac.", kOptimizer = "optimizer.";

std::string yes_or_no(bool value) { return value ? "yes" : "no"; }

/// The strategy if it changes more than roundings, else "none". Another exchange that changes
/// roundings alone may follow a resume.
std::string lossy_exchange(const std::string& strategy) {
  doc::Strategy parsed = plan::with_exchange(doc::parse_strategy(strategy));
  std::erase_if(parsed.extras,
                [](const auto& extra) { return plan::is(extra, plan::Extra::curvature); });
  return plan::traits_of(parsed).changes_convergence ? doc::to_text(parsed) : "none";
}

/// What of K-FAC changes results. How ranks share its work does not, unless each uses its own
/// samples.
std::string preconditioner_of(const std::optional<plan::Kfac>& kfac) {
  if (!kfac) return "none";
  return fmt::format(
      "kfac, factors of {}, factors={}, inverses={}, damping={}, decay={}, kl={}, subsample={}, "
      "fisher={}, norms={}, embeddings={}",
      kfac->sharing == plan::Sharing::dp ? "each rank's own samples" : "all samples",
      kfac->factor_interval, kfac->inverse_interval, kfac->damping, kfac->decay,
      kfac->clips ? kfac->kl : 0.0, kfac->subsample, kfac->samples_labels ? "mc" : "empirical",
      kfac->norms ? "on" : "off", kfac->embeddings ? "on" : "off");
}

}  // namespace

/// Every setting that makes this run what it is. Some are left out. Hosts differ in cores, so
/// threads are a host's own, and roundings with them. Folders and files are rank 0's alone, or a
/// host's own copy. The command is for people.
Settings Trainer::settings() const {
  const TrainOptions& o = options_;
  const models::Description& model = network_->description();
  const models::Request resolved{model.input, model.classes, models::parse_variant(o.variant)};
  const auto number = [](auto value) { return fmt::format("{}", value); };
  const std::optional<plan::Kfac> kfac = plan::kfac_of(doc::parse_strategy(o.strategy));
  Settings all = {
      {"model", o.model, "--model"},
      {"input", models::to_text(model.input), "--input"},
      {"classes", number(model.classes), "--classes"},
      {"variant", resolved.small() ? "small" : "published", "--variant"},
      {"data", o.data, "--data"},
      {"samples", number(plan_.samples), "--samples, or the data set's files"},
      {"test samples", number(data_.test.size()), "--samples, or the data set's files"},
      {"flip", yes_or_no(o.flip), "--flip"},
      {"global batch", number(plan_.global_batch), "ranks x --batch"},
      {"lossy exchange", lossy_exchange(o.strategy), "--strategy"},
      {"preconditioner", preconditioner_of(kfac), "--strategy"},
      {"optimizer", o.optimizer, "--optimizer"},
      {"learning rate", number(schedule_.rate), "--lr"},
      {"weight decay", number(o.weight_decay), "--weight-decay"},
      {"schedule", schedule_.name, "--schedule"},
      {"seed", number(o.seed), "--seed"},
      {"ranks", number(communicator_.size()), "mpirun -n", OnResume::noted},
      {"strategy", o.strategy, "--strategy", OnResume::noted},
      {"cluster",
       o.cluster.empty() ? "none" : fmt::format("{:016x}", hash_bytes(doc::to_json(cluster_))),
       "--cluster", OnResume::noted},
      {"epochs", number(epochs_), "--epochs", OnResume::free},
      {"last step", number(last_step_), "--steps", OnResume::free},
      {"checked steps", number(o.checked_steps), "--checked-steps", OnResume::free},
      {"test every", number(o.test_every.value_or(0)), "--test-every", OnResume::free},
      {"norm samples", number(o.norm_samples.value_or(0)), "--norm-samples", OnResume::free},
      {"ends when diverged", yes_or_no(o.ends_when_diverged), "the program", OnResume::free},
      {"checkpoints", yes_or_no(!o.checkpoint.empty()), "--checkpoint", OnResume::free},
      {"checkpoint every", number(o.checkpoint_every.value_or(0)), "--checkpoint-every",
       OnResume::free},
      {"resume", yes_or_no(o.resume), "--resume", OnResume::free},
      {"overwrite", yes_or_no(o.overwrite), "--overwrite", OnResume::free},
      {"recorded", yes_or_no(!o.record.empty()), "--record", OnResume::free},
      {"record steps", number(o.record_steps), "--record-steps", OnResume::free}};
  if (o.optimizer == "sgd") all.push_back({"momentum", number(o.momentum), "--momentum"});
  if (kfac) {  // settings of their own: older checkpoints do not have them
    all.push_back({"inverses of factors", kfac->eigen ? "eigen" : "cholesky", "--strategy"});
    all.push_back({"largest factor", number(kfac->largest), "--strategy"});
    // With kfac(dp) factors see the owner's samples, so who owns a layer matters.
    all.push_back({"samples of factors",
                   kfac->sharing == plan::Sharing::dp
                       ? fmt::format("owners by {}", name_of(kfac->placement))
                       : "everybody",
                   "--strategy"});
  }
  if (schedule_.name != "constant")
    all.push_back({"schedule steps", number(schedule_.steps),
                   "--epochs, or --steps where that is not given"});
  return all;
}

/// Tries the places to write to before there is work to lose. Rank 0 alone writes.
void Trainer::take_places() {
  comm::require_success(communicator_, "places to write to", [this] {
    if (communicator_.rank() != 0) return;
    const comm::Busy busy = communicator_.busy("looking at the places to write to");
    for (const auto& file : {options_.losses, options_.record})
      if (!file.empty()) make_and_try_folder_of(file);
    if (options_.checkpoint.empty()) return;
    folder_.emplace(options_.checkpoint);
    if (!options_.resume && !options_.overwrite) folder_->require_none();
  });
}

torch_adapter::NamedTensors Trainer::state() const {
  torch_adapter::NamedTensors all;
  for (const auto* list : {&parameters_, &buffers_})
    for (const auto& [name, tensor] : *list) all.emplace_back("model." + name, tensor);
  for (const auto& [name, tensor] : optimizer_->state())
    all.emplace_back(kOptimizer + name, tensor);
  return all;
}

void Trainer::require_same_state() {
  if (compared_step_ == step_) return;
  parallel_->settle();
  torch_adapter::require_same_tensors(
      communicator_, "training state after step " + std::to_string(step_), state());
  compared_step_ = step_;
}

// Writes a checkpoint. Weights, buffers, optimizer and K-FAC are the same on every rank, which is
// checked first. What compressors remember is each rank's own, so every rank's part travels to rank
// 0. Collective.
void Trainer::save() {
  // A state that ranks do not share must not replace one that they did.
  require_same_state();
  const std::vector<std::string> compression = parallel_->compression_state();
  torch_adapter::NamedTensors curvature;
  if (kfac_) {
    curvature = torch_adapter::to_tensors(parallel_->curvature_state());
    torch_adapter::require_same_tensors(
        communicator_, "preconditioner's state after step " + std::to_string(step_), curvature);
  }
  comm::require_success(communicator_, "checkpoint", [&] {
    if (!folder_) return;
    Checkpoint c{kept(settings_), epoch_, step_in_epoch_, step_, state()};
    for (const auto& [name, tensor] : curvature) c.tensors.emplace_back(kCurvature + name, tensor);
    for (std::size_t r = 0; r < compression.size(); ++r)
      c.tensors.emplace_back(  // its bytes
          kCompression + std::to_string(r),
          at::from_blob(const_cast<char*>(compression[r].data()),
                        {static_cast<std::int64_t>(compression[r].size())}, at::kByte));
    const comm::Busy busy = communicator_.busy("writing a checkpoint");
    folder_->write(c);
  });
}

// Compressors count their steps, and their phase follows from the count. So the rest of the warm-up
// is passed over by setting the count, without training.
void Trainer::pass_over_warm_up(std::int64_t taken) {
  const auto steps = static_cast<std::int64_t>(parallel_->plan().warm_up.size());
  if (taken >= steps) return;
  std::vector<std::string> parts = parallel_->compression_state();
  const std::string place = "states of the compressors";
  for (std::string& part : parts) {
    compress::CompressionState state = compress::compression_state_from(part, place);
    state.step = steps;
    part = compress::to_bytes(state);
  }
  if (!parts.empty()) parallel_->load_compression_state(parts, place);
}

void Trainer::resume() {
  const std::filesystem::path file = checkpoint_file(options_.checkpoint);
  const std::optional<std::string> content = read_for_all(communicator_, file);
  if (!content)
    return note("no checkpoint in " + options_.checkpoint.string() +
                " yet: starting from the beginning");
  comm::require_success(communicator_, "resuming",
                        [&] { load(decode(*content, file.string()), file.string()); });
  note("resumed " + file.string() + " at step " + std::to_string(step_));
}

void Trainer::load(const Checkpoint& c, const std::string& place) {
  for (const std::string& text : notes_on_resume(settings_, c.settings, place)) note(text);
  std::map<std::string, at::Tensor> by_name;
  Optimizer::Named optimizer_state;
  resumed_compression_.clear();
  resumed_curvature_.clear();
  for (const auto& [name, tensor] : c.tensors) {
    if (name.starts_with(kCompression))
      resumed_compression_.emplace_back(static_cast<const char*>(tensor.const_data_ptr()),
                                        tensor.nbytes());
    else if (name.starts_with(kCurvature))
      resumed_curvature_.emplace_back(name.substr(kCurvature.size()), tensor);
    else if (name.starts_with(kOptimizer))
      optimizer_state.emplace_back(name.substr(kOptimizer.size()), tensor);
    else
      by_name[name] = tensor;
  }
  const c10::NoGradGuard no_grad;
  for (const auto* list : {&parameters_, &buffers_})
    for (const auto& [name, tensor] : *list) {
      const auto found = by_name.find("model." + name);
      if (found == by_name.end() || found->second.sizes() != tensor.sizes())
        throw InputError(place, "expected the model's array " + name + ", found none of its shape");
      tensor.detach().copy_(found->second);
    }
  optimizer_->load_state(optimizer_state, place);
  epoch_ = c.epoch;
  step_in_epoch_ = c.step_in_epoch;
  step_ = c.step;
}

}  // namespace linerate::zoo
