// A network that is known by its kind alone: nothing of it was measured.
// Thread safety: values.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/core/dtype.hpp"
#include "linerate/doc/block.hpp"

namespace linerate::doc {

/// How an all-reduce crosses nodes of several ranks.
enum class NetworkLaw {
  one_ring,  // over all n ranks: 2 (n - 1) / n of the data over every line, at its slowest link
  by_node    // a tree, or rings by rail: 2 (N - 1) / N of the data between N nodes
};
/// Their names in JSON and in `linerate list networks`, by value.
inline constexpr std::array<std::string_view, 2> kNetworkLawNames = {"one-ring", "by-node"};

/// The numbers of a kind of link, inside a node or between nodes. Message steps are the Link's.
struct NominalLevel {
  double efficiency = 1;        // share of a line that collectives get
  double most_bytes_per_s = 0;  // that they get whatever the line; 0: no bound
  double start_s = 0;           // of a collective, besides its message steps
  // 90 % of networks of the kind lie within these factors, either way: of what does not grow with
  // the bytes, and of what does.
  double start_spread = 1, transfer_spread = 1;
  int measurements = 0;  // public ones that the numbers come from
  bool adds = false;     // between nodes: switches add, so an all-reduce crosses a line once

  /// The rate that collectives get of a line.
  double goodput(double line_bytes_per_s) const {
    const double share = efficiency * line_bytes_per_s;
    return most_bytes_per_s > 0 && share > most_bytes_per_s ? most_bytes_per_s : share;
  }
};

/// Costs of collectives follow the law and the Links of the Cluster, and lie within the spread of
/// the kinds.
struct NominalNetwork {
  std::string name;  // as --network names it; empty: a bandwidth alone, of a network of any kind
  NetworkLaw law = NetworkLaw::one_ring;  // of its nodes
  NominalLevel inside, between;           // a node, and nodes
  double slowdown_high = 1;               // of computing next to communication, at most; 90 %
  double step_spread = 0;                 // of one rank's step between runs, relative, 90 %
};

// What K-FAC's work costs on one rank: a part of the Cluster.
// Thread safety: values.

/// A measured inversion of one dim x dim matrix.
struct InverseSample {
  std::int64_t dim = 0;  // rows of the matrix
  double seconds = 0;    // to invert it
};

/// Measured inversions of some dim x dim matrices: one after the other, and in one call.
struct BatchSample {
  std::int64_t dim = 0;     // rows of a matrix
  int count = 0;            // of matrices
  double one_by_one_s = 0;  // to invert all of them
  double together_s = 0;    // the same
};

/// A factor, or a layer's direction: what its seconds are made of.
struct SecondOrderWork {
  double flops = 0;                 // of its matrix products
  double inputs = 0, elements = 0;  // of a factor: its rows x d matrix, what it takes in a message
  double seconds = 0;               // if measured
};

/// Measured on one rank, for calibrate to fit.
struct SecondOrderSamples {
  std::vector<InverseSample> inverses;               // ascending dims
  std::vector<SecondOrderWork> factors, directions;  // with their seconds
  std::vector<BatchSample> batches;                  // ascending dims; empty: not measured
};

/// Rates of 0 are free. Flops count full products as all peers compute them: a symmetric product
/// that does half the work has twice the rate.
struct SecondOrderCost {
  // One matrix: fixed + d^3 * per_cube, or by the samples if any are given.
  double inverse_fixed_s = 0, inverse_s_per_cube = 0;
  std::vector<InverseSample> inverses{};  // ascending dims
  // One factor of one layer: fixed + 2 rows d^2 / rate. Patches and scaling go by element of the
  // rows x d matrix, averaging and packing by element of the factor.
  double factor_fixed_s = 0, factor_flops_per_s = 0;
  double factor_s_per_input = 0, factor_s_per_element = 0;  // by element of matrix and factor
  // One layer: fixed + 2 a g (a + g) / rate.
  double precondition_fixed_s = 0, precondition_flops_per_s = 0;
  std::vector<BatchSample> batches{};  // ascending dims
  std::string device{};  // where tensors lay: "cuda"; empty: on processors, or unknown

  /// Seconds for one dim x dim matrix. Samples are joined linearly in d^3. Beyond the largest the
  /// time grows as d^3, below the smallest it stays.
  double inverse_s(std::int64_t dim) const;
  /// The time of a matrix that is inverted with others in one call, as a share of inverse_s(dim).
  /// Measured shares are joined linearly in d. Below the smallest the share stays. Beyond the
  /// largest it is 1, as if none was measured.
  double together_share(std::int64_t dim) const;
  /// How many matrices of this size one call takes at most: as many as were measured, 1 if none.
  int most_together(std::int64_t dim) const;
};

/// What one factor of a block takes on one rank.
[[nodiscard]] SecondOrderWork factor_work(const Block&, FactorSide);
/// By inverses, or into the eigenvectors' basis and back, which takes each product of matrices
/// twice.
[[nodiscard]] SecondOrderWork direction_work(const Block&, bool by_eigen = false);

/// Seconds to compute, pack and average one factor of a block on one rank. If the block has a time
/// of its own, that is the time to compute the factor. 0 if nothing is known or there is no such
/// factor.
[[nodiscard]] double factor_s(const Block&, FactorSide, const std::optional<SecondOrderCost>&);
/// Seconds to invert one factor of a block, with all its groups. Diagonals and 2x2 matrices are
/// free, because their inverses are taken while preconditioning.
[[nodiscard]] double inverse_s(const Block&, FactorSide, const std::optional<SecondOrderCost>&);
/// Seconds to turn the block's gradient into its direction.
[[nodiscard]] double precondition_s(const Block&, const std::optional<SecondOrderCost>&,
                                    bool by_eigen = false);

// Cluster: ranks, links and the fitted cost of everything that is not the user's own computation.
// Thread safety: values.

/// One direction of a full-duplex link.
struct Link {
  double bandwidth_bytes_per_s = 0;  // per direction
  double latency_s = 0;              // per message step (alpha)
  // What the line carries at most; `bandwidth_bytes_per_s` of a measured link is what its
  // collectives made of it (goodput). 0: unknown.
  double line_rate_bytes_per_s = 0;
  bool line_rate_assumed = false;  // from the goodput, nobody said it
};

/// T(S) = alpha + beta * S for from_bytes <= S <= to_bytes.
struct CostSegment {
  std::int64_t from_bytes = 0;  // first size
  std::int64_t to_bytes = 0;    // last size
  double alpha_s = 0;           // seconds of no bytes
  double beta_s_per_byte = 0;   // seconds that each byte adds
  double low = 1;               // 90 % interval as factors of the prediction
  double high = 1;              // other end of the interval
};

/// A switch of algorithm or protocol somewhere between two measured sizes.
struct RegimeSwitch {
  std::int64_t after_bytes = 0;   // the last size before it
  std::int64_t before_bytes = 0;  // the first size after it
};

/// One measured size.
struct CostSample {
  double bytes = 0;    // S of core/dtype.hpp
  double seconds = 0;  // as measured
  double low_s = 0;    // spread of the repetitions if known, else 0
  double high_s = 0;   // the other end
};

/// The fitted cost of one collective at one rank count, with its leave-one-out error.
struct CollectiveCost {
  Collective collective = Collective::all_reduce;  // which one
  int ranks = 0;                                   // of the measurement
  DType dtype = DType::f32;                        // element type
  bool in_place = false;                           // input and output were the same memory
  std::string source;                              // the log or the probe
  std::vector<CostSegment> segments;               // ascending, touching
  std::vector<RegimeSwitch> switches;              // where the law changes, ascending
  std::vector<CostSample> samples;                 // what was fitted, ascending
  double error_mean = 0;                           // leave-one-out, relative
  double error_max = 0;                            // largest of them
  int ranks_per_node = 0;                          // of the measurement; 0: not known
};

/// Where encoding and decoding run, and what waits for them.
enum class CodingPlace {
  codec,    // on a processor of their own
  compute,  // on the device that computes
  alone     // there too, and while a bucket is coded and travels nothing is computed
};
inline constexpr std::array<std::string_view, 3> kCodingPlaceNames = {"codec", "compute", "alone"};

/// Whose costs of coding count if the Cluster has none. They are those of PyTorch's communication
/// hooks, of linerate's own codecs by their launches, or of published tables.
enum class CodecsOf { hooks, linerate, papers };
inline constexpr std::array<std::string_view, 3> kCodecsOfNames = {"hooks", "linerate", "papers"};

/// The tensors of a bucket, which are coded together.
struct CodedTensors {
  std::int64_t bytes = 0;    // of the dense gradients
  std::int64_t tensors = 1;  // each pays its launches
  double flops = 0;          // of the products of matrices that coding them takes
};

/// Speed of one codec. The seconds of a bucket are the fixed ones, those that each tensor adds, its
/// bytes / rate, and its products / their rate.
struct CodecCost {
  std::string name;                                   // a compressor's text, or "fp16"
  double encode_fixed_s = 0, encode_bytes_per_s = 0;  // of encoding
  double decode_fixed_s = 0, decode_bytes_per_s = 0;  // a rate of 0: `encode` holds both
  CodingPlace on = CodingPlace::codec;                // on what it runs
  std::string source = {};     // where else it was measured; empty: on this Cluster
  bool published = false;      // by others, not measured here
  std::string device = {};     // where tensors lay: "cuda"; empty: on processors, or unknown
  double encode_tensor_s = 0;  // that each tensor adds: its launches, its call
  double decode_tensor_s = 0;  // the same of decoding
  double flops_per_s = 0;      // of products, which encoding pays; 0: they are in its bytes
  double spread = 1;           // the 90 % interval of a time: it divided by this to it times this

  /// Whether it was measured on this Cluster.
  bool is_own() const { return source.empty(); }
  /// A rate of 0 is free.
  double encode_s(const CodedTensors& what) const {
    return encode_fixed_s + encode_tensor_s * static_cast<double>(what.tensors) +
           time_of(static_cast<double>(what.bytes), encode_bytes_per_s) +
           time_of(what.flops, flops_per_s);
  }
  /// For one payload.
  double decode_s(const CodedTensors& what) const {
    return decode_fixed_s + decode_tensor_s * static_cast<double>(what.tensors) +
           time_of(static_cast<double>(what.bytes), decode_bytes_per_s);
  }

 private:
  static double time_of(double count, double per_s) { return per_s > 0 ? count / per_s : 0; }
};

/// How computation and communication of a rank slow each other down. Computation runs
/// `compute_slowdown` times slower while communication is active, and communication
/// `communication_slowdown` times slower while computation is. Encoding and decoding count as
/// computation there. While a rank codes and computes otherwise, each of the two runs
/// `coding_slowdown` times slower: 2 if they share one core.
struct Contention {
  double compute_slowdown = 1;        // of computation, at least 1
  double communication_slowdown = 1;  // of communication, at least 1
  double coding_slowdown = 1;         // of coding and computing, at least 1
  // Processor time that a collective of any size takes from the computation over it, because
  // threads wake, call and hand over. A half of an all-reduce is a collective, too.
  double message_s = 0;
  // How much longer a collective of any size takes while ranks compute, because its threads wait
  // for their processors.
  double message_delay_s = 0;

  /// Whether anything slows.
  bool any() const {
    return compute_slowdown != 1 || communication_slowdown != 1 || coding_slowdown != 1 ||
           message_s != 0 || message_delay_s != 0;
  }
};

/// A rank that computes slower (or faster) than the Workload says.
struct RankSpeed {
  int rank = 0;               // its number
  double compute_factor = 1;  // multiplies every compute duration
  double delay_s = 0;         // added once a step, before forward
};

/// Schema 1.
struct Cluster {
  std::string name;    // for messages
  std::string source;  // how it was found, for people
  int ranks = 0;       // that it has; 0: unknown
  // Above 1: `node` is the link inside a node, ranks of a node share `network`.
  int ranks_per_node = 1;
  Link network;                                 // between nodes
  std::optional<Link> node;                     // inside a node; absent: not told apart from it
  std::vector<CollectiveCost> collectives;      // empty: closed forms over the links
  std::vector<CodecCost> codecs;                // calibrated or published
  std::optional<SecondOrderCost> second_order;  // absent: factors, inverses, directions are free
  std::optional<Contention> contention;         // absent: none
  std::vector<RankSpeed> rank_speeds;           // of ranks that differ
  double reduce_s_per_byte = 0;  // adding arrived chunks, unless it overlaps with transfer
  // What each tensor adds to the message that it travels in: agreeing on it, copying it into a
  // buffer and out of it (Horovod). 0 if tensors are not copied.
  double tensor_s = 0;
  std::optional<double> memory_bytes;      // per rank
  std::optional<double> progress_sleep_s;  // longest sleep of an idle progress thread when probed
  std::optional<double> noise_floor;       // relative spread of an A/A run
  // Adding arrived 16-bit numbers, beyond what as many bytes of f32 take: Gloo adds them at half
  // the rate. 0 if a table of that type was measured, or both take the same. What casting to 16 bit
  // costs is a codec's, named fp16 or bf16.
  double half_sum_s_per_byte = 0;
  // CPU cores that all ranks compute on together. More ranks share them. Absent: every rank has a
  // device or cores of its own.
  std::optional<int> cores;
  // The time from the end of a collective's predecessors on a rank until it starts, if no other one
  // is under way: threads wake and launch. It passes unnoticed during another one.
  double start_delay_s = 0;
  // Of a network that is known by its kind: what prices collectives that nobody measured. Absent:
  // closed forms over the links, of unknown error.
  std::optional<NominalNetwork> nominal;
};

[[nodiscard]] std::string to_json(const Cluster&);
[[nodiscard]] Cluster cluster_from_json(const std::string& text, const std::string& place);
/// A Cluster file, or a hand-written one whose links say {"bandwidth": "100 Gbit/s", "latency": "20
/// us"}.
[[nodiscard]] Cluster load_cluster(const std::filesystem::path&);
void save(const Cluster&, const std::filesystem::path&);

}  // namespace linerate::doc
