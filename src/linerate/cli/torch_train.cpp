// linerate train, inside linerate-torch: options, one call of zoo::train, printing on rank 0.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "linerate/cli/run_program.hpp"
#include "linerate/cli/torch_verb.hpp"
#include "linerate/cli/training_options.hpp"
#include "linerate/comm/launcher.hpp"
#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/json.hpp"
#include "linerate/verbs/option_checks.hpp"
#include "linerate/verbs/question_argument.hpp"
#include "linerate/zoo/preconditioner.hpp"
#include "linerate/zoo/train.hpp"

namespace linerate::cli {
namespace {

// What this verb has besides the training itself.
struct Options {
  zoo::TrainOptions train;
  std::string input;
  std::optional<BytesPerSecond> link;
  Duration timeout = std::chrono::seconds(60);
  std::optional<int> ranks;
  bool json = false, registration = false;
};

struct EndingSignal {
  int number;
  const char* name;
};
/// What a terminal, a batch system and a limit of time send.
constexpr std::array<EndingSignal, 4> kEndingSignals = {
    {{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}, {SIGXCPU, "SIGXCPU"}}};

// By its name, as a user knows it from kill.
std::string name_of_signal(int number) {
  for (const EndingSignal& s : kEndingSignals)
    if (s.number == number) return s.name;
  return fmt::format("signal {}", number);
}

volatile std::sig_atomic_t g_asked_by = 0;

/// The first signal asks, the second ends the process. An example: a batch system sends SIGTERM.
/// The run ends after the step that all ranks are in, and its record and losses are kept. Whoever
/// does not want to wait presses Ctrl-C twice.
extern "C" void ask_to_end(int signal) {
  if (g_asked_by != 0) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  g_asked_by = signal;
}

/// Those that are ignored, as under nohup, stay so.
void catch_ending_signals() {
  for (const EndingSignal& s : kEndingSignals) {
    struct sigaction now = {};
    sigaction(s.number, nullptr, &now);
    if (now.sa_handler == SIG_IGN) continue;
    now = {};
    now.sa_handler = ask_to_end;
    now.sa_flags = SA_RESTART;
    sigaction(s.number, &now, nullptr);
  }
}

// Times that were not measured are null, not 0.
doc::Json json_of(const zoo::TrainReport& r, const Options& o,
                  const comm::Communicator& communicator) {
  doc::Json epochs = doc::Json::array();
  for (const zoo::EpochReport& e : r.epochs)
    epochs.push_back({{"epoch", e.epoch},
                      {"train_loss", e.train_loss},
                      {"test_loss", e.test_loss},
                      {"test_accuracy", e.test_accuracy},
                      {"train_s", e.seconds}});
  return {{"model", o.train.model},
          {"data", o.train.data},
          {"strategy", o.train.strategy},
          {"transport", communicator.transport()},
          {"ranks", communicator.size()},
          {"parameters", r.parameters},
          {"global_batch", r.global_batch},
          {"steps", r.steps},
          {"epochs", std::move(epochs)},
          {"median_step_s", r.median_step_s},
          {"sent_bytes_per_step", r.sent_bytes_per_step},
          {"received_bytes_per_step", r.received_bytes_per_step},
          {"recorded_step_s", doc::json_of(r.recorded_step_s)},
          {"one_rank_step_s", doc::json_of(r.one_rank_step_s)},
          {"scaling_factor", doc::json_of(r.scaling_factor)},
          {"ended_by", r.ended_by == 0 ? doc::Json() : doc::Json(name_of_signal(r.ended_by))},
          {"weights_hash", fmt::format("{:016x}", r.weights_hash)},
          {"notes", r.notes}};
}

// T_1 is known of recorded steps alone.
void print_summary(const zoo::TrainReport& r, const Options& o, int ranks) {
  if (!r.losses.empty())
    fmt::print("{} steps, median {} ({:.0f} samples/s over {} rank{}), weights {:016x}\n",
               r.losses.size(), format_time(r.median_step_s), r.samples_per_step / r.median_step_s,
               ranks, ranks == 1 ? "" : "s", r.weights_hash);
  if (!r.one_rank_step_s || !r.recorded_step_s) return;
  fmt::print("recorded step {}; computing alone, with nothing sent, T_1 = {}{}\n",
             format_time(*r.recorded_step_s), format_time(*r.one_rank_step_s),
             r.scaling_factor ? fmt::format(": scaling factor {:.3f}", *r.scaling_factor) : "");
  fmt::print("wrote {} and {}\n", o.train.record.string(),
             std::filesystem::path(o.train.record).replace_extension(".workload.json").string());
}

/// The exit code is a shell's for that signal: 128 and its number, 143 for SIGTERM. The message
/// says what is left of the run, and how to go on.
Error ended_by(const zoo::TrainReport& r, const Options& o) {
  constexpr int kOfSignals = 128;
  std::vector<std::string> kept;
  if (!o.train.record.empty())
    kept.push_back(r.recorded_steps == 0
                       ? "no step was recorded yet"
                       : fmt::format("{} recorded steps are kept", r.recorded_steps));
  if (!o.train.losses.empty()) kept.push_back("the losses are kept");
  if (!o.train.checkpoint.empty()) kept.push_back("go on from the checkpoint with --resume");
  return on_every_rank(Error(kOfSignals + r.ended_by,
                             fmt::format("{} ended the run after step {}; {}",
                                         name_of_signal(r.ended_by), r.steps, join(kept, "; "))));
}

/// Which layers kfac preconditions; nothing is trained.
void print_registration(const Options& o) {
  const zoo::RegistrationReport report = zoo::registration_report(o.train);
  if (!o.json) return fmt::print("{}", zoo::text_of(report));
  doc::Json layers = doc::Json::array();
  for (const torch_adapter::RegisteredLayer& l : report.layers)
    layers.push_back({{"name", l.name},
                      {"kind", l.kind},
                      {"a", l.a},
                      {"g", l.g},
                      {"groups", l.groups},
                      {"left_because", l.reason}});
  const doc::Json json = {
      {"model", report.model}, {"parameters", report.parameters}, {"layers", std::move(layers)}};
  fmt::print("{}\n", json.dump(2));
}

// Progress and epochs are printed by whoever the trainer calls; it calls rank 0's observer alone.
void run_rank(const Options& o, comm::Communicator& communicator) {
  comm::require_ranks(communicator.size(), o.ranks);
  const auto progress = std::make_shared<ProgressLine>();
  zoo::TrainObserver observer;
  observer.on_step = [progress](std::int64_t step, std::int64_t steps, double loss) {
    progress->show(fmt::format("step {}/{}  loss {:.3f}", step, steps, loss));
  };
  observer.on_epoch = [&o, progress](const zoo::EpochReport& e) {
    progress->clear();
    if (o.json) return;
    fmt::print("epoch {:>3}  loss {:.4f}  test loss {:.4f}  test accuracy {:.2f} %  ({})\n",
               e.epoch, e.train_loss, e.test_loss, 100 * e.test_accuracy, format_time(e.seconds));
    std::fflush(stdout);
  };
  observer.on_note = [&o](const std::string& text) {
    if (!o.json) fmt::print("{}\n", text);
  };
  // A run that leaves nothing ends at once: asking would delay what was wanted.
  if (!o.train.record.empty() || !o.train.losses.empty() || !o.train.checkpoint.empty()) {
    catch_ending_signals();
    observer.asks_to_end = [] { return static_cast<int>(g_asked_by); };
  }
  const zoo::TrainReport report = zoo::train(o.train, communicator, observer);
  if (communicator.rank() == 0) {
    progress->clear();
    if (o.json)
      fmt::print("{}\n", json_of(report, o, communicator).dump(2));
    else
      print_summary(report, o, communicator.size());
  }
  if (report.ended_by != 0) throw ended_by(report, o);
}

/// Under mpirun the ranks of the job; else one rank alone, without MPI.
void run(Options& o, const std::string& command) {
  if (!o.input.empty()) o.train.input = models::parse_shape(o.input);
  o.train.source = command;
  if (o.registration) return print_registration(o);
  comm::set_link(o.link);
  if (comm::launcher_rank()) {
    comm::WorldOptions world;
    world.timeout = o.timeout;
    world.expected_size = o.ranks;
    run_rank(o, *comm::make_world(world));
    return;
  }
  comm::CommunicatorOptions alone;
  alone.timeout = o.timeout;
  comm::run_ranks(
      1, [&](comm::Communicator& communicator) { run_rank(o, communicator); }, alone);
}

void add_options(CLI::App& app, Options& o) {
  zoo::TrainOptions& t = o.train;
  const CLI::Validator count = verbs::count();
  app.add_option("--model", t.model, "Network to train (`linerate list models`).")->required();
  add_training_options(app, t, o.input);
  app.add_option("--classes", t.classes, "Number of outputs of the network.")->check(count);
  verbs::add_with_default(app, "--variant", t.variant,
                          "auto, published or small (auto: small up to 64 pixels).");
  verbs::add_with_default(app, "--strategy", t.strategy,
                          "How gradients are exchanged (`linerate list strategies`).");
  app.add_option("-c,--cluster", t.cluster,
                 "What is known of the network and the compressors (`linerate calibrate`), for "
                 "strategies that plan by cost. Default: a quick probe.");
  verbs::add_with_default(app, "--batch", t.batch, "Samples per rank and step.", count);
  app.add_option("--epochs", t.epochs, "Passes over the data. Default: 1, unless --steps is given.")
      ->check(count);
  app.add_option("--steps", t.steps, "Stop after this many steps.")->check(count);
  verbs::add_with_default(
      app, "--checked-steps", t.checked_steps,
      "Number of first steps in which ranks compare every collective before they run it.",
      verbs::count(0));
  app.add_option("--checkpoint", t.checkpoint,
                 "Folder for checkpoints. One is written at the end of each epoch.");
  app.add_option("--checkpoint-every", t.checkpoint_every,
                 "Also write a checkpoint after every so many steps.")
      ->check(count);
  app.add_flag(
      "--resume", t.resume,
      "Continue from the checkpoint, if there is one. Give the options that it was written with.");
  app.add_flag("--overwrite", t.overwrite,
               "Start anew even if --checkpoint holds another run's checkpoint.");
  app.add_option(
      "--record", t.record,
      "File for the recorded Timeline. The Workload is written next to it (.workload.json).");
  verbs::add_with_default(app, "--record-steps", t.record_steps, "Most steps to record.", count);
  app.add_option("--losses", t.losses, "File for the loss of every step, as CSV.");
  app.add_option("--ranks", o.ranks, "Fail unless the job has this many ranks.")->check(count);
  verbs::add_link_option(app, o.link);
  add_timeout_option(app, o.timeout, "60s");
  app.add_flag(
      "--registration", o.registration,
      "Print which layers kfac preconditions and why it leaves the others. Nothing is trained.");
  app.add_flag("--json", o.json, "Print one JSON object.");
}

}  // namespace

void setup_torch_train(CLI::App& app) {
  CLI::App* train =
      app.add_subcommand("train", "Train a network of the zoo data-parallel, and record the run.");
  const auto options = std::make_shared<Options>();
  add_options(*train, *options);
  train->footer(
      "Start ranks with mpirun: tools/mpirun -n 2 linerate train --model lenet --data "
      "fashion-mnist");
  train->callback([options, train] {
    std::string command = "linerate train";
    for (const CLI::Option* option : train->parse_order())
      command += " " + option->get_name() +
                 (option->get_expected_max() == 0 ? "" : " " + option->as<std::string>());
    run(*options, command);
  });
}

}  // namespace linerate::cli
