// The training loop. A step gathers this rank's share of the batch, runs forward and backward, and
// lets DataParallel exchange gradients and take the optimizer's step. Ranks agree on everything
// that decides what they do next. They compare settings before the first step, and the bits of the
// model at each checkpoint and epoch. They ask each other whether the run is to end. So one rank
// never waits in a collective that another one has left out.
//
// Random numbers have no state. The order of samples is keyed by (seed, epoch), flips by (seed,
// epoch, sample) and dropout by (seed, step, rank). A resumed run therefore continues exactly as
// the run before it would have done.
#include "linerate/zoo/trainer.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/flatten.h>
#include <ATen/ops/sum.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <new>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>

#include "linerate/comm/fingerprint.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/keep_memory.hpp"
#include "linerate/core/random.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/doc/scaling_factor.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/kfac/kfac_report.hpp"
#include "linerate/models/catalogue.hpp"
#include "linerate/plan/compression.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/zoo/preconditioner.hpp"

namespace linerate::zoo {
namespace {

DataSet load_data(const TrainOptions& o, const models::Description& model) {
  const DataSource source = data_sources().at(o.data);
  if (o.data != "synthetic" && model.tokens())
    throw UsageError("--data " + o.data + ": " + model.name +
                     " reads token ids, not images; use --data synthetic");
  DataSet set = source({o.data_folder, model, o.seed, o.samples});
  if (o.train_samples) keep_first(set.train, *o.train_samples);
  if (o.test_samples) keep_first(set.test, *o.test_samples);
  if (model.classes < set.classes)
    throw UsageError("--classes: expected at least " + std::to_string(set.classes) + " for " +
                     set.name + ", found " + std::to_string(model.classes));
  pad_images(set.train, model.input);
  pad_images(set.test, model.input);
  return set;
}

// Ranks that are threads of one process share LibTorch's generator, so they initialise one after
// the other. Every rank gets the same weights from the same seed.
std::shared_ptr<Network> build(const TrainOptions& o, comm::Communicator& communicator) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  keep_freed_memory();
  at::set_num_threads(o.threads > 0 ? o.threads : std::max(1, cores / communicator.size()));
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  at::manual_seed(o.seed);
  return std::make_shared<Network>(describe(o));
}

/// Mean over all targets of the batch.
at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& target) {
  return at::cross_entropy_loss(logits.flatten(0, -2), target.flatten());
}

/// Does something with the samples of each batch of this range, in their order.
template <typename Act>
void in_batches(const Range& whole, std::int64_t batch, Act&& act) {
  std::vector<std::int64_t> indices(to_index(whole.size()));
  std::iota(indices.begin(), indices.end(), whole.begin);
  const std::span<const std::int64_t> all(indices);
  for (std::size_t at = 0; at < all.size(); at += to_index(batch))
    act(all.subspan(at, std::min(to_index(batch), all.size() - at)));
}

/// Runs an action and rewords what LibTorch throws. The stack of its frames is left out, and lack
/// of memory becomes an error of the options that asked for it.
void speak_plainly(const std::function<void()>& action) {
  const auto no_room = [](const std::string& said) {
    return InputError("memory",
                      fmt::format("expected enough memory for model, data and batch, found less "
                                  "({}); ask for less: --batch, --samples, --input",
                                  said));
  };
  try {
    action();
  } catch (const c10::Error& e) {
    const std::string said = e.what_without_backtrace();
    if (said.find("allocate memory") != std::string::npos) throw no_room(said);
    throw Error(70, said);
  } catch (const std::bad_alloc& e) {
    throw no_room(e.what());
  } catch (const std::length_error& e) {
    throw no_room(e.what());
  }
}

/// Checks what compressors require of the optimizer.
void check_momentum(const TrainOptions& options) {
  using compress::StepsBy;
  const plan::AskedOfOptimizer asked =
      plan::asked_of_optimizer(doc::parse_strategy(options.strategy));
  if (asked.momentum == compress::Momentum::adams)
    throw UsageError(fmt::format("--strategy {}: no optimizer here fits: {}", options.strategy,
                                 plan::fit_of(asked, StepsBy::adams).refused));
  const StepsBy by = options.optimizer == "adam" ? StepsBy::adams
                     : options.momentum > 0      ? StepsBy::sum
                                                 : StepsBy::gradients;
  const plan::OptimizerFit fit = plan::fit_of(asked, by);
  for (const std::string& why : {fit.refused, fit.doubtful})
    if (!why.empty())
      throw UsageError(
          fmt::format("--strategy {}: {} (--optimizer sgd --momentum 0)", options.strategy, why));
}

}  // namespace

models::Description describe(const TrainOptions& o) {
  models::Options options{o.input, o.classes, models::parse_variant(o.variant)};
  const models::Shape own = sample_shape(o.data);
  if (!options.input && !own.empty()) options.input = own;
  if (!options.classes && !own.empty()) options.classes = 10;
  return models::describe(o.model, options);
}

double learning_rate(const TrainOptions& o) {
  return o.rate.value_or(o.optimizer == "adam" ? 0.001 : 0.05);
}

// Rank-local work comes first, in one require_success(), so that wrong input is reported once. Then
// ranks compare their settings, rank 0 tries the places to write to, and a checkpoint is read.
// DataParallel is made last, over the weights that training begins with.
Trainer::Trainer(const TrainOptions& options, comm::Communicator& communicator,
                 const TrainObserver& observer, const Shared& shared)
    : options_(options), communicator_(communicator), observer_(observer) {
  comm::require_success(communicator_, "setting up",
                        [this] { speak_plainly([this] { set_up(); }); });
  comm::require_same(communicator_, "training", lines_of(settings_));
  take_places();
  if (options_.resume) resume();
  first_step_ = step_;
  if (!options_.record.empty())
    measurement_ =
        std::make_unique<Measurement>(communicator_, parameters_, network_->description(), step_,
                                      last_step_, options_.record_steps);
  communicator_.set_checked(options_.checked_steps > 0);
  curvature_ = plan::kfac_of(doc::parse_strategy(options_.strategy));
  if (curvature_)
    kfac_ = make_preconditioner(
        *curvature_, *network_, [this] { return schedule_.at(step_); }, options_.seed,
        &optimizer_->at_rate(schedule_.at(step_)));
  if (kfac_)
    if (const std::string left = too_large(*kfac_, *curvature_); !left.empty()) note(left);
  torch_adapter::DataParallelOptions parallel;
  parallel.strategy = options_.strategy;
  parallel.preconditioner = kfac_.get();
  if (!options_.cluster.empty()) parallel.cluster = cluster_;
  parallel.seed = options_.seed;
  parallel.recorder = measurement_ ? &measurement_->recorder() : shared.recorder;
  parallel.name = shared.name;
  parallel_ =
      std::make_unique<torch_adapter::DataParallel>(network_->module(), communicator_, parallel);
  if (resumed_curvature_.empty() && resumed_compression_.empty()) return;
  comm::require_success(communicator_, "resuming", [this] {
    const std::string place = checkpoint_file(options_.checkpoint).string();
    if (!resumed_curvature_.empty())
      parallel_->load_curvature_state(torch_adapter::kfac_state_of(resumed_curvature_, place));
    if (!resumed_compression_.empty())
      parallel_->load_compression_state(resumed_compression_, place);
  });
}

/// The part of the set-up in which ranks do not communicate.
void Trainer::set_up() {
  check_schedule(options_.schedule);
  check_momentum(options_);
  if (options_.resume && options_.checkpoint.empty())
    throw UsageError("--resume: expected --checkpoint with the folder to resume from, found none");
  if (options_.resume && options_.overwrite)
    throw UsageError(
        "--overwrite: found --resume too; leave out --overwrite to continue the checkpoint, or "
        "--resume to start anew over it");
  if (!options_.cluster.empty()) cluster_ = doc::load_cluster(options_.cluster);
  network_ = build(options_, communicator_);
  data_ = load_data(options_, network_->description());
  parameters_ = network_->parameters();
  buffers_ = network_->buffers();
  train_batches_ = std::make_unique<Batcher>(data_.train, data_);
  test_batches_ = std::make_unique<Batcher>(data_.test, data_);
  optimizer_ = std::make_unique<Optimizer>(options_, parameters_);
  plan_ = {data_.train.size(), options_.batch * communicator_.size(), communicator_.size()};
  if (plan_.steps() < 1)
    throw UsageError("--batch: expected at most " + std::to_string(data_.train.size()) +
                     " samples over all ranks, found " + std::to_string(plan_.global_batch));
  const std::int64_t steps = options_.steps.value_or(0);
  epochs_ = options_.epochs.value_or(steps > 0 ? (steps + plan_.steps() - 1) / plan_.steps() : 1);
  const std::int64_t all = epochs_ * plan_.steps();
  last_step_ = steps > 0 ? std::min(steps, all) : all;
  schedule_ = {options_.schedule, learning_rate(options_), options_.epochs ? all : last_step_};
  settings_ = settings();
}

void Trainer::note(const std::string& text) {
  notes_.push_back(text);
  if (communicator_.rank() == 0 && observer_.on_note) observer_.on_note(text);
}

// After the loop: first what is under way is settled, then ranks compare their weights, then files
// are written. If the run was asked to end, its checkpoint is written at this step and not at an
// epoch's end.
TrainReport Trainer::run() {
  TrainReport report;
  report.parameters = network_->description().parameter_elements();
  report.global_batch = plan_.global_batch;
  report.first_step = first_step_;
  while (step_ < last_step_) {
    EpochReport epoch;
    epoch.epoch = epoch_ + 1;
    bool whole = false;
    try {
      whole = run_epoch(epoch);
    } catch (const InputError& e) {  // a step that some rank, and so every rank, refused
      // In a contest of strategies a loss that is no number is a result. Elsewhere it ends the run.
      if (!options_.ends_when_diverged || !e.on_every_rank()) throw;
      report.diverged = e.what();
      break;
    }
    require_same_state();
    if (ended_by_ != 0) break;
    const TestReport& result = test();
    epoch.test_loss = result.loss;
    epoch.test_accuracy = result.accuracy;
    report.epochs.push_back(epoch);
    if (communicator_.rank() == 0 && observer_.on_epoch) observer_.on_epoch(epoch);
    if (whole) ++epoch_, step_in_epoch_ = 0;
    if (!options_.checkpoint.empty()) save();
  }
  parallel_->settle();
  if (asking_) asking_->wait();
  if (ended_by_ != 0 && !options_.checkpoint.empty()) save();
  if (report.epochs.empty() && report.diverged.empty() && ended_by_ == 0)
    note("nothing to do, because the checkpoint is at step " + std::to_string(step_));
  require_same_state();
  report.steps = step_;
  report.tests = tests_;
  report.ended_by = ended_by_;
  report.weights_hash = kHashStart;
  for (const auto* list : {&parameters_, &buffers_})
    for (const auto& [name, tensor] : *list) {
      const at::Tensor flat = tensor.detach().contiguous();
      report.weights_hash = hash_bytes(
          {static_cast<const char*>(flat.const_data_ptr()), flat.nbytes()}, report.weights_hash);
    }
  if (!seconds_.empty()) {
    report.median_step_s = median(seconds_);
    report.samples_per_step = static_cast<double>(samples_) / static_cast<double>(seconds_.size());
    report.sent_bytes_per_step = std::llround(median(sent_bytes_));
    report.received_bytes_per_step = std::llround(median(received_bytes_));
  }
  report.losses = losses_;
  if (!losses_.empty())
    communicator_.all_reduce(comm::buffer(report.losses), comm::Reduce::sum, "losses")->wait();
  comm::require_success(communicator_, "losses", [&] {
    if (communicator_.rank() != 0 || options_.losses.empty()) return;
    // Ranks that wait for rank 0 must not take it for lost.
    const comm::Busy busy = communicator_.busy("writing the losses");
    // A line a step, counted from the start of the training, so that files of a resumed run follow
    // each other.
    std::string csv = "step,loss\n";
    for (std::size_t i = 0; i < report.losses.size(); ++i)
      csv += fmt::format("{},{}\n", first_step_ + static_cast<std::int64_t>(i), report.losses[i]);
    write_file_atomically(options_.losses, csv);
  });
  if (measurement_) write_recorded(/*last=*/true);
  if (measured_) {
    report.one_rank_step_s = measured_->workload.step_s;
    report.recorded_step_s = measured_->recorded_step_s;
    report.recorded_steps = measured_->steps;
    const doc::ScalingFactor factor =
        doc::scaling_factor_of({*measured_->workload.step_s}, measured_->recorded_step_s);
    report.scaling_factor = factor.value;
    if (!factor.value) note(factor.why_none);
  }
  report.notes = notes_;
  return report;
}

// May be written before the run's end, and again: a run that is killed leaves what it recorded so
// far.
void Trainer::write_recorded(bool last) {
  if (recorded_) return;
  recorded_ = last;
  parallel_->settle();
  measured_ = measurement_->result(options_.batch, network_->description().buffer_bytes(), last);
  comm::require_success(communicator_, "recorded run", [&] {
    if (!measured_) return;
    if (!measurement_->is_whole())
      measured_->timeline.notes.push_back(fmt::format(
          "{} steps were recorded when this was written, and the run should have recorded more",
          measured_->steps));
    const comm::Busy busy = communicator_.busy("writing the recorded run");
    save_measurement(*measured_, options_);
    measured_->timeline = {};
  });
}

// Whether the run is asked to end. A rank alone cannot tell when the others reach the end of a
// step. So ranks ask each other by an all-reduce that is waited for a step later. No exchange that
// reaches into the next step is held up. They ask about every tenth of a second. The number of
// steps until the next question comes from the slowest rank's step, so all ranks count alike.
//
// An example: rank 1 gets a signal during step 103, and the next question is due after step 105.
// There rank 1 contributes the signal's number and the others 0. After step 106 all ranks have the
// maximum, and all end.
bool Trainer::is_to_end() {
  constexpr double kEvery_s = 0.1;
  if (!observer_.asks_to_end) return false;
  if (communicator_.size() == 1) return (ended_by_ = observer_.asks_to_end()) != 0;
  if (asking_) {
    std::exchange(asking_, {})->wait();
    if ((ended_by_ = static_cast<int>(ending_[0])) != 0) return true;
    const double steps = kEvery_s / std::max(ending_[1], 1e-6);
    next_question_ = step_ + std::clamp<std::int64_t>(std::llround(steps), 1, 1000) - 1;
  }
  if (step_ < next_question_) return false;
  ending_ = {static_cast<double>(observer_.asks_to_end()), seconds_.back()};
  asking_ = communicator_.all_reduce(comm::buffer(ending_), comm::Reduce::max, "end of the run");
  return false;
}

// The order is computed anew from the epoch's number, also in the middle of an epoch after a
// resume.
void Trainer::visit_epoch() {
  order_ = epoch_order(options_.seed, epoch_, data_.train.size());
  network_->train(true);
}

// Takes the steps that are left of this epoch. An example: a checkpoint of step 130 and epochs of
// 100 steps. The epoch goes on at its step 30. False: it did not reach its end.
bool Trainer::run_epoch(EpochReport& report) {
  visit_epoch();
  const std::int64_t steps = plan_.steps();
  double loss_sum = 0;
  std::int64_t samples = 0;
  for (; step_in_epoch_ < steps && step_ < last_step_;) {
    if (step_ == options_.checked_steps + first_step_) communicator_.set_checked(false);
    const bool measures = measurement_ && !recorded_;
    if (measures && measurement_->block_due(step_)) measure_compute_only();
    const bool record = measures && measurement_->records(step_);
    StepProbe probe = measures ? measurement_->probe() : StepProbe{};
    if (measures) measurement_->begin_step(step_);
    const Range whole = plan_.step(step_in_epoch_);
    const comm::Traffic before = communicator_.traffic();
    const double loss = step(whole, Mode::exchange, &probe);
    const comm::Traffic now = communicator_.traffic();
    sent_bytes_.push_back(static_cast<double>((now.sent - before.sent).value));
    received_bytes_.push_back(static_cast<double>((now.received - before.received).value));
    if (record) measurement_->add_recorded(step_, probe);
    const double duration = static_cast<double>(probe.end_ns - probe.start_ns) * 1e-9;
    report.seconds += duration;
    loss_sum += loss * static_cast<double>(whole.size());
    samples += whole.size();
    samples_ += whole.size();
    ++step_in_epoch_;
    ++step_;
    seconds_.push_back(duration);
    losses_.push_back(loss);
    // This rank's part of the mean over the batch. Parts are about equal, so times the ranks it is
    // shown as the whole.
    if (communicator_.rank() == 0 && observer_.on_step)
      observer_.on_step(step_, last_step_, loss * communicator_.size());
    if (record && measurement_->is_worth_writing()) write_recorded(measurement_->is_whole());
    if (options_.checkpoint_every && !options_.checkpoint.empty() &&
        step_ % *options_.checkpoint_every == 0)
      save();
    if (options_.test_every && step_ % *options_.test_every == 0) test();
    if (step_ < last_step_ && is_to_end()) return false;
  }
  communicator_.all_reduce(comm::buffer(loss_sum), comm::Reduce::sum, "loss of the epoch")->wait();
  report.train_loss = samples > 0 ? loss_sum / static_cast<double>(samples) : 0;
  return step_in_epoch_ == steps;
}

// Goes round the first epoch's full batches.
StepProbe Trainer::take_step() {
  if (order_.empty()) visit_epoch();
  const std::int64_t whole_steps = std::max<std::int64_t>(1, plan_.samples / plan_.global_batch);
  StepProbe probe;
  step(plan_.step(step_ % whole_steps), Mode::exchange, &probe);
  ++step_;
  return probe;
}

// The moments in `probe` are the borders of the step's parts. A loss that is no number is refused
// on this rank; all ranks hear of it inside the step, before it reaches their weights.
double Trainer::step(Range whole, Mode mode, StepProbe* probe) {
  const int rank = communicator_.rank(), ranks = communicator_.size();
  probe->start_ns = steady_ns();
  const Range mine = share_of(whole, rank, ranks);
  const std::span<const std::int64_t> indices(order_.data() + mine.begin, to_index(mine.size()));
  const Batch batch = train_batches_->gather(
      indices, {options_.flip,
                random_key(random_key(options_.seed, 7), static_cast<std::uint64_t>(epoch_))});
  optimizer_->zero_grad();
  // A stream of its own for every step and rank: resuming needs no saved generator.
  if (network_->draws())
    at::manual_seed(random_key(random_key(options_.seed, static_cast<std::uint64_t>(step_)),
                               static_cast<std::uint64_t>(rank)));
  if (mode == Mode::exchange && whole.size() % ranks != 0) parallel_->set_batch(batch.size);
  if (probe->timer) probe->timer->begin_forward();
  probe->forward_ns = steady_ns();
  std::optional<torch_adapter::KFAC::Pause> unwatched;
  if (kfac_ && mode == Mode::compute_only) unwatched.emplace(*kfac_);
  const at::Tensor output = network_->forward(batch.input);
  if (kfac_ && mode == Mode::exchange) show_output(*kfac_, *curvature_, output, mine.begin);
  const at::Tensor loss = loss_of(output, batch.target);
  const double loss_here = loss.item<double>();
  if (probe->timer) probe->timer->begin_backward();
  probe->backward_ns = steady_ns();
  if (mode == Mode::compute_only)
    parallel_->accumulate([&] { loss.backward(); });
  else if (std::isfinite(loss_here))
    loss.backward();
  else  // every rank learns of it in finish(), before it reaches their weights
    parallel_->refuse_step(fmt::format(  // nan has a sign
        "its loss is {}{}, so nothing of this step was applied. Lower --lr, or check the data",
        std::abs(loss_here),
        first_step_ > 0 ? fmt::format(" (step {} since the start of the training)", step_) : ""));
  if (probe->timer) probe->spans = probe->timer->end();
  probe->exchange_ns = steady_ns();
  torch::optim::Optimizer& optimizer = optimizer_->at_rate(schedule_.at(step_));
  probe->update_ns = steady_ns();
  if (mode == Mode::exchange)
    probe->report = kfac_ ? parallel_->step(*kfac_, optimizer) : parallel_->step(optimizer);
  else
    optimizer.step();
  probe->end_ns = steady_ns();
  return loss_here * static_cast<double>(batch.size) / static_cast<double>(whole.size());
}

// Runs steps without an exchange and undoes what they did: weights, buffers and optimizer state are
// copied before and restored after. The first step is not counted.
void Trainer::measure_compute_only() {
  parallel_->settle();
  std::vector<at::Tensor> kept;
  Optimizer::Named kept_state;
  for (const auto& [name, tensor] : parameters_) kept.push_back(tensor.detach().clone());
  for (const auto& [name, tensor] : buffers_) kept.push_back(tensor.clone());
  for (const auto& [name, tensor] : optimizer_->state())
    kept_state.emplace_back(name, tensor.clone());

  const std::int64_t whole_steps = std::max<std::int64_t>(1, plan_.samples / plan_.global_batch);
  for (std::int64_t i = 0; i <= Measurement::kBlock; ++i) {
    StepProbe probe = measurement_->probe();
    // Ranks start together, as a step with an exchange makes them.
    communicator_.barrier("before a compute-only step")->wait();
    step(plan_.step((step_in_epoch_ + i) % whole_steps), Mode::compute_only, &probe);
    if (i > 0) measurement_->add_compute_only(probe);
  }

  const c10::NoGradGuard no_grad;
  std::size_t i = 0;
  for (const auto& [name, tensor] : parameters_) tensor.detach().copy_(kept[i++]);
  for (const auto& [name, tensor] : buffers_) tensor.copy_(kept[i++]);
  optimizer_->load_state(kept_state, "measurement");
  optimizer_->zero_grad();
}

// Each rank tests its share of the test samples; sums of loss, right answers and targets travel.
TestReport Trainer::run_test() {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> kept;  // buffers as they were
  if (options_.norm_samples) {
    // With momentum 1/k in batch k the running average is the mean over the batches so far. After
    // batch 3 it is 2/3 of the mean of two and 1/3 of the third batch. Every rank takes the same
    // samples, so all have the same averages.
    for (const auto& [name, tensor] : buffers_) kept.push_back(tensor.clone());
    double batches = 0;
    in_batches({0, std::min(*options_.norm_samples, data_.train.size())}, options_.batch,
               [&](std::span<const std::int64_t> indices) {
                 network_->set_norm_momentum(1 / ++batches);
                 network_->forward(train_batches_->gather(indices).input);
               });
    network_->set_norm_momentum(kNormMomentum);
  }
  network_->train(false);
  const Range mine = share_of({0, data_.test.size()}, communicator_.rank(), communicator_.size());
  double sums[3] = {0, 0, 0};  // loss, right, targets
  const auto test_some = [&](std::span<const std::int64_t> indices) {
    const Batch batch = test_batches_->gather(indices);
    const at::Tensor logits = network_->forward(batch.input);
    const double targets = static_cast<double>(batch.target.numel());
    sums[0] += loss_of(logits, batch.target).item<double>() * targets;
    sums[1] +=
        static_cast<double>(at::eq(logits.argmax(-1), batch.target).sum().item<std::int64_t>());
    sums[2] += targets;
  };
  in_batches(mine, std::max<std::int64_t>(options_.batch, 100), test_some);
  communicator_.all_reduce(comm::buffer(sums), comm::Reduce::sum, "test results")->wait();
  network_->train(true);
  for (std::size_t i = 0; i < kept.size(); ++i) buffers_[i].second.copy_(kept[i]);
  const double train_s = std::accumulate(seconds_.begin(), seconds_.end(), 0.0);
  return {step_, train_s, sums[0] / sums[2], sums[1] / sums[2]};
}

const TestReport& Trainer::test() {
  if (tests_.empty() || tests_.back().step != step_) tests_.push_back(run_test());
  return tests_.back();
}

TrainReport train(const TrainOptions& options, comm::Communicator& communicator,
                  const TrainObserver& observer) {
  TrainReport report;
  speak_plainly([&] { report = Trainer(options, communicator, observer).run(); });
  return report;
}

}  // namespace linerate::zoo
