// Every field of TrainOptions, over ranks and over a resume: refused, or it may differ and then
// changes nothing, or roundings alone. A field that nobody thought about does not compile, or fails
// here.
#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>

#include "folder.hpp"
#include "linerate/core/error.hpp"
#include "linerate/doc/cluster.hpp"
#include "small_training.hpp"

namespace linerate::zoo {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// One pointer a field, in the order of declaration: adding a field breaks this line.
auto addresses(const TrainOptions& options) {
  const auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18,
               f19, f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31, f32, f33] = options;
  return std::array<const void*, 34>{&f0,  &f1,  &f2,  &f3,  &f4,  &f5,  &f6,  &f7,  &f8,
                                     &f9,  &f10, &f11, &f12, &f13, &f14, &f15, &f16, &f17,
                                     &f18, &f19, &f20, &f21, &f22, &f23, &f24, &f25, &f26,
                                     &f27, &f28, &f29, &f30, &f31, &f32, &f33};
}

/// Where ranks, or a run and its continuation, have other values.
struct Verdict {
  enum { refused, noted, rounds, may_differ } what;
  std::string text;  // key of the setting in the message; why it may differ
};
Verdict refused(std::string key) { return {Verdict::refused, std::move(key)}; }
Verdict noted(std::string key) { return {Verdict::noted, std::move(key)}; }
Verdict rounds(std::string why) { return {Verdict::rounds, std::move(why)}; }
Verdict may_differ(std::string why) { return {Verdict::may_differ, std::move(why)}; }

struct Field {
  std::string name;
  std::function<const void*(const TrainOptions&)> address;
  std::function<void(TrainOptions&)> change;
  Verdict over_ranks, on_resume;
};

/// Without a verdict of its own a resume has that over ranks.
template <typename T, typename V>
Field field(std::string name, T TrainOptions::*member, V other, const Verdict& over_ranks,
            const std::optional<Verdict>& on_resume = {}) {
  return {std::move(name), [member](const TrainOptions& o) -> const void* { return &(o.*member); },
          [member, other](TrainOptions& o) { o.*member = other; }, over_ranks,
          on_resume.value_or(over_ranks)};
}

class TrainOptionsOf : public InFolder {
 protected:
  void SetUp() override {
    InFolder::SetUp();
    fs::create_directories(folder_ / "mnist");
    write_mnist("train", 64);
    write_mnist("t10k", 8);
    doc::Cluster cluster;
    cluster.network.bandwidth_bytes_per_s = 1e9;
    doc::save(cluster, folder_ / "cluster.json");
  }

  /// The smallest files that --data mnist reads; as many samples as the synthetic data here.
  void write_mnist(const std::string& part, char samples) const {
    const auto write = [&](const std::string& name, std::string head, std::size_t bytes) {
      std::ofstream(folder_ / "mnist" / (part + name), std::ios::binary)
          << head << std::string(bytes, '\3');
    };
    const std::string count{0, 0, 0, samples}, side{0, 0, 0, 28};
    write("-images-idx3-ubyte", std::string{0, 0, 8, 3} + count + side + side,
          static_cast<std::size_t>(samples) * 28 * 28);
    write("-labels-idx1-ubyte", std::string{0, 0, 8, 1} + count, static_cast<std::size_t>(samples));
  }

  TrainOptions base() const {
    TrainOptions o = mlp(2);  // epochs, 8 steps each of two ranks
    o.input = models::Shape{1, 28, 28};
    o.data_folder = folder_ / "mnist";  // of no matter to synthetic data
    o.samples = 64;
    o.batch = 4;
    o.rate = 0.05;
    return o;
  }

  std::vector<Field> fields() const {
    const Verdict one_writes = may_differ("rank 0 alone writes there"),
                  in_time = may_differ("says when to save, stop or measure, not how to train");
    using O = TrainOptions;
    return {
        field("model", &O::model, "resnet18", refused("model")),
        field("input", &O::input, models::Shape{1, 32, 32}, refused("input")),
        field("classes", &O::classes, 11, refused("classes")),
        field("variant", &O::variant, "published", refused("variant")),
        field("data", &O::data, "mnist", refused("data")),
        field("data_folder", &O::data_folder, folder_ / "copy",
              may_differ("each host has its own copy; names and numbers of samples are compared"),
              may_differ("data may move")),
        field("samples", &O::samples, 72, refused("samples")),
        field("train_samples", &O::train_samples, 56, refused("samples")),
        field("test_samples", &O::test_samples, 4, refused("test samples")),
        field("flip", &O::flip, true, refused("flip")),
        field("strategy", &O::strategy, "bulk", refused("strategy"), noted("strategy")),
        field("cluster", &O::cluster, folder_ / "cluster.json", refused("cluster"),
              noted("cluster")),
        field("batch", &O::batch, 8, refused("global batch")),
        field("epochs", &O::epochs, 3, refused("epochs"), refused("schedule steps")),
        field("steps", &O::steps, 13, refused("last step"), in_time),
        field("optimizer", &O::optimizer, "adam", refused("optimizer")),
        field("rate", &O::rate, std::nextafter(0.05, 1.0), refused("learning rate")),
        field("momentum", &O::momentum, std::nextafter(0.9, 1.0), refused("momentum")),
        field("weight_decay", &O::weight_decay, 5e-324, refused("weight decay")),
        field("schedule", &O::schedule, "cosine", refused("schedule")),
        field("seed", &O::seed, 2, refused("seed")),
        field("threads", &O::threads, 2, rounds("hosts differ in cores")),
        field("checked_steps", &O::checked_steps, 0, refused("checked steps"), in_time),
        field("test_every", &O::test_every, 3, refused("test every"), in_time),
        field("norm_samples", &O::norm_samples, 8, refused("norm samples"), in_time),
        field("ends_when_diverged", &O::ends_when_diverged, true, refused("ends when diverged"),
              in_time),
        field("checkpoint", &O::checkpoint, folder_ / "elsewhere", one_writes,
              may_differ("nothing is there: a start from the beginning")),
        field("checkpoint_every", &O::checkpoint_every, 5, refused("checkpoint every"), in_time),
        field("resume", &O::resume, true, refused("resume"), may_differ("it is what is asked for")),
        field("overwrite", &O::overwrite, true, refused("overwrite"), refused("--overwrite")),
        field("record", &O::record, folder_ / "run.json", refused("recorded"), in_time),
        field("record_steps", &O::record_steps, 1, refused("record steps"), in_time),
        field("losses", &O::losses, folder_ / "losses.csv", one_writes),
        field("source", &O::source, "another command", may_differ("text for people"))};
  }

  struct Outcome {
    std::vector<std::string> errors;  // by rank; "" where none
    std::uint64_t weights = 0;
    double last_loss = 0;
    bool stepped = false;
    std::vector<std::string> notes;
  };
  static Outcome run(const TrainOptions& rank0, const TrainOptions& rank1) {
    Outcome outcome;
    outcome.errors.resize(2);
    comm::run_ranks(2, [&](comm::Communicator& c) {
      TrainObserver observer;
      observer.on_step = [&](auto...) { outcome.stepped = true; };
      try {
        const TrainReport report = train(c.rank() == 0 ? rank0 : rank1, c, observer);
        if (c.rank() != 0) return;
        outcome.weights = report.weights_hash;
        outcome.notes = report.notes;
        outcome.last_loss = report.losses.back();
      } catch (const Error& e) {
        EXPECT_TRUE(e.on_every_rank()) << e.what();
        outcome.errors[static_cast<std::size_t>(c.rank())] = e.what();
      }
    });
    return outcome;
  }

  static void expect_refused(const Outcome& outcome, const std::string& key) {
    EXPECT_THAT(outcome.errors, testing::Each(HasSubstr(key)));
    EXPECT_EQ(outcome.errors[0], outcome.errors[1]);
    EXPECT_FALSE(outcome.stepped);
  }

  static void expect_alike(const Outcome& outcome, const Outcome& reference,
                           const Verdict& verdict) {
    EXPECT_THAT(outcome.errors, testing::Each("")) << verdict.text;
    if (verdict.what == Verdict::noted) {
      EXPECT_THAT(outcome.notes, testing::Contains(HasSubstr("with " + verdict.text + " ")));
    }
    // Roundings of 1e-7 of a gradient, amplified by momentum and 16 steps far less than 1000 times.
    if (verdict.what == Verdict::may_differ) {
      EXPECT_EQ(outcome.weights, reference.weights) << verdict.text;
    } else {
      EXPECT_NEAR(outcome.last_loss, reference.last_loss, 1e-4 * reference.last_loss);
    }
  }
};

TEST_F(TrainOptionsOf, EveryFieldHasItsRow) {
  const TrainOptions options;
  const auto places = addresses(options);
  const auto rows = fields();
  ASSERT_EQ(rows.size(), places.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    EXPECT_EQ(rows[i].address(options), places[i]) << rows[i].name;
}

TEST_F(TrainOptionsOf, RanksWithOtherValuesAreRefusedBeforeTheFirstStepOrTrainAlike) {
  const Outcome reference = run(base(), base());
  for (const Field& f : fields()) {
    SCOPED_TRACE(f.name);
    TrainOptions mine = base();
    mine.checkpoint = folder_ / ("ranks-" + f.name);
    TrainOptions changed = mine;
    f.change(changed);
    const Outcome outcome = run(mine, changed);
    if (f.over_ranks.what == Verdict::refused) {
      expect_refused(outcome, "rank 0 has \"" + f.over_ranks.text + " ");
      expect_refused(run(changed, mine), "rank 1 has \"" + f.over_ranks.text + " ");
    } else {
      expect_alike(outcome, reference, f.over_ranks);
    }
  }
}

TEST_F(TrainOptionsOf, OneRankWithCheckpointsAndOneWithoutAreRefused) {
  TrainOptions with = base();
  with.checkpoint = folder_ / "one";
  expect_refused(run(base(), with), "rank 1 has \"checkpoints yes\"");
}

TEST_F(TrainOptionsOf, AResumeWithOtherValuesIsRefusedOrNotedOrEndsInTheSameBits) {
  const Outcome reference = run(base(), base());
  for (const Field& f : fields()) {
    SCOPED_TRACE(f.name);
    TrainOptions part = base();
    part.checkpoint = folder_ / ("resume-" + f.name);
    part.steps = 3;
    EXPECT_THAT(run(part, part).errors, testing::Each(""));
    TrainOptions rest = part;
    rest.steps = std::nullopt;
    rest.resume = true;
    f.change(rest);
    const Outcome outcome = run(rest, rest);
    if (f.on_resume.what == Verdict::refused) {
      expect_refused(outcome, f.on_resume.text);
      continue;
    }
    if (f.name == "steps") {  // stops earlier
      EXPECT_THAT(outcome.errors, testing::Each(""));
      rest.steps = std::nullopt;
      expect_alike(run(rest, rest), reference, f.on_resume);
    } else {
      expect_alike(outcome, reference, f.on_resume);
    }
  }
}

TEST_F(TrainOptionsOf, AStrategyThatChangesConvergenceIsAnotherRun) {
  TrainOptions o = base();
  o.checkpoint = folder_ / "lossy";
  o.steps = 3;
  run(o, o);
  o.resume = true;
  o.strategy = "ddp(wire=bf16)";
  expect_refused(run(o, o), "written with lossy exchange none, this run asks for ddp(wire=bf16)");
}

TEST_F(TrainOptionsOf, AConstantRateMayGoOnForLonger) {
  TrainOptions o = base();
  o.checkpoint = folder_ / "longer";
  o.schedule = "constant";
  run(o, o);
  o.resume = true;
  o.epochs = 3;
  const Outcome longer = run(o, o);
  EXPECT_THAT(longer.errors, testing::Each(""));
  o.checkpoint.clear();
  o.resume = false;
  EXPECT_EQ(longer.weights, run(o, o).weights);
}

}  // namespace
}  // namespace linerate::zoo
