// powersgd and acpsgd over tensors (compress/method/powersgd.cpp, acpsgd.cpp,
// compress/factors.hpp). Products of a matrix with few vectors are the device's: sums in its order,
// of f32. What is made of factors that all ranks have, the mean and what leaves the residual, is
// multiplied and added element by element in the order of the processor's kernels: from the same
// factors, the same bits.
#include <limits>

#include "linerate/compress/factors.hpp"
#include "linerate/compress/method/warm_up.hpp"
#include "linerate/core/index.hpp"
#include "linerate/torch_codecs/method/methods.hpp"
#include "linerate/torch_codecs/words.hpp"

namespace linerate::torch_codecs {
namespace {

/// What is beyond the range of f32 becomes the largest number there is.
at::Tensor saturated(const at::Tensor& x) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  return x.clamp(-kLargest, kLargest);
}

/// sum over j of p[j][i] q[j][c], j ascending: [rows][columns].
at::Tensor product(const at::Tensor& p, const at::Tensor& q) {
  at::Tensor sum = p.select(0, 0).unsqueeze(1) * q.select(0, 0).unsqueeze(0);
  for (std::int64_t j = 1; j < p.size(0); ++j)
    sum.add_(p.select(0, j).unsqueeze(1) * q.select(0, j).unsqueeze(0));
  return sum;
}

/// fill_random(key, j, ...) of vectors first ... first + count - 1: f32[count][n].
at::Tensor random_vectors(std::uint64_t key, std::int64_t first, std::int64_t count, std::int64_t n,
                          at::Device device) {
  const auto whole = at::TensorOptions().device(device).dtype(at::kLong);
  const at::Tensor streams = random_key(key, at::arange(first, first + count, whole)).unsqueeze(1);
  return (random_unit(streams, at::arange(n, whole)) * 2 - 1).to(at::kFloat);
}

at::Tensor norm_of(const at::Tensor& vectors) { return vectors.square().sum(-1, true).sqrt(); }

struct Orthonormal {
  at::Tensor factor;    // f32[rank][n]
  at::Tensor vanished;  // bool[rank][1]
};

/// Frees a vector of those before it, twice, in f64; then scales it to length 1, or to zero if no
/// more than `least` is left of it. Classical Gram-Schmidt, in place of compress's modified one: as
/// many products as there are vectors, not their square.
struct Freed {
  at::Tensor vector, is_there;  // f64[1][n], bool[1][1]
};
Freed freed(at::Tensor vector, const at::Tensor& before, const at::Tensor& least) {
  if (before.size(0) > 0)
    for (int pass = 0; pass < 2; ++pass)
      vector = vector - at::matmul(at::matmul(vector, before.t()), before);
  const at::Tensor norm = norm_of(vector);
  const at::Tensor is_there = at::bitwise_and(norm > least, at::isfinite(norm));
  return {at::where(is_there, vector / norm, 0), is_there};
}

/// compress::orthonormalise(); with a key orthonormalise_fresh(), of whose eight trials for a
/// vector that vanished the first two are made: a random one is almost never among the others.
Orthonormal orthonormalised(const at::Tensor& factor, const std::uint64_t* key) {
  constexpr std::int64_t kTrials = 2;
  at::Tensor vectors = factor.to(at::kDouble);
  const std::int64_t rank = vectors.size(0), n = vectors.size(1);
  const at::Tensor least = vectors.square().sum().sqrt() * compress::kVanished;
  const at::Tensor least_fresh = at::full({}, compress::kVanished, vectors.options());
  std::vector<at::Tensor> vanished;
  for (std::int64_t j = 0; j < rank; ++j) {
    const at::Tensor before = vectors.narrow(0, 0, j);
    Freed own = freed(vectors.narrow(0, j, 1), before, least);
    vanished.push_back(own.is_there.bitwise_not());
    for (std::int64_t trial = 0; key && trial < kTrials; ++trial) {
      const at::Tensor drawn =
          random_vectors(*key, j + trial * rank, 1, n, factor.device()).to(at::kDouble);
      const Freed fresh = freed(drawn, before, least_fresh);
      own.vector = at::where(own.is_there, own.vector, fresh.vector);
      own.is_there = at::bitwise_or(own.is_there, fresh.is_there);
    }
    vectors.narrow(0, j, 1).copy_(own.vector);
  }
  return {vectors.to(at::kFloat), at::cat(vanished)};
}

/// The matrix that a tensor is taken for, and its factors.
class FactorTensors : public TensorCodec {
 protected:
  FactorTensors(const Making& making, std::int64_t rank)
      : TensorCodec(making), rank_(compress::rank_of(rank, shape())) {}

  std::int64_t rank() const { return rank_; }
  std::int64_t rows() const { return shape().rows; }
  std::int64_t columns() const { return shape().columns(); }
  at::Tensor as_matrix(const at::Tensor& v) const { return v.view({rows(), columns()}); }
  float headroom(int ranks, std::int64_t n) const { return compress::headroom(ranks, to_index(n)); }
  /// residual <- v - p^T q.
  void keep_rest(const TensorInput& input, const at::Tensor& v, const at::Tensor& p,
                 const at::Tensor& q) const {
    if (!input.residual.defined()) return;
    keep_residual(input, saturated(as_matrix(v) - product(p, q)).view({-1}));
  }
  at::Tensor zeros(std::int64_t n) const { return at::zeros({rank_, n}, options(at::kFloat)); }

 private:
  std::int64_t rank_;
};

class PowerSgdTensors : public FactorTensors {
 public:
  PowerSgdTensors(const Making& making, std::int64_t rank)
      : FactorTensors(making, rank), q_(zeros(columns())) {}

  std::vector<compress::StateField> state() override {
    return {state_field("q", compress::Passing::same, q_),
            {"is_warm", compress::Passing::same, is_warm_}};
  }
  bool is_sane() const override { return is_warm_.now() <= 1; }

 private:
  TensorPayload do_encode(int round, const TensorInput& input) override {
    return round == 0 ? encode_left(input) : encode_right(input);
  }
  void do_decode(int round, const TensorArrived& arrived, const at::Tensor& mean) override {
    round == 0 ? decode_left(arrived) : decode_right(arrived, mean);
  }

  TensorPayload encode_left(const TensorInput& input) {
    key_ = input.keys.shared;
    v_ = corrected(input);
    at::Tensor wide = q_.now().to(at::kDouble);
    const at::Tensor drawn = random_vectors(key_, 0, rank(), columns(), device()).to(at::kDouble);
    if (is_warm_.now()) {
      const at::Tensor norm = norm_of(wide);
      wide = at::where(at::bitwise_and(norm > 0, at::isfinite(norm)), wide, drawn);
    } else {
      wide = drawn;
    }
    const float scale = headroom(input.ranks, columns());
    q_.write((wide / norm_of(wide) * double{scale}).to(at::kFloat));
    is_warm_.next() = 1;
    return {bytes_of(at::matmul(q_.next(), as_matrix(v_).t())), {}};
  }

  void decode_left(const TensorArrived& arrived) {
    check_sum(arrived, 4 * rank() * rows(), "powersgd");
    const at::Tensor sum = arrived.payloads[0].view(at::kFloat).view({rank(), rows()});
    const Orthonormal left = orthonormalised(sum, nullptr);
    p_ = left.factor;
    vanished_ = left.vanished;
  }

  /// What travels is scaled down by a power of two, P^ up: exactly undone in every product.
  TensorPayload encode_right(const TensorInput& input) {
    const float scale = headroom(input.ranks, rows());
    p_ = p_ * scale;
    const at::Tensor q = at::matmul(p_, as_matrix(v_));
    p_ = p_ * (1 / (scale * scale));
    q_.write(q);
    keep_rest(input, v_, p_, q);
    v_.reset();
    return {bytes_of(q.clone()), {}};
  }

  void decode_right(const TensorArrived& arrived, const at::Tensor& mean) {
    const at::Tensor q =
        read_mean(arrived, rank() * columns(), "powersgd").view({rank(), columns()});
    as_matrix(mean).copy_(saturated(product(p_, q)));
    // A direction that vanished would stay zero for ever: the next step tries another.
    q_.write(at::where(vanished_, random_vectors(key_, rank(), rank(), columns(), device()), q));
  }

  compress::Kept<std::uint64_t> is_warm_;  // 1: Q's vectors are a step's
  KeptTensor q_;                           // [rank][columns]
  // Of the step at hand.
  std::uint64_t key_ = 0;
  at::Tensor v_, p_, vanished_;
};

class AcpSgdTensors : public FactorTensors {
 public:
  /// `left`: the phase that sends P; the next one sends Q.
  AcpSgdTensors(const Making& making, std::int64_t rank, int left)
      : FactorTensors(making, rank), left_(left), p_(zeros(rows())), q_(zeros(columns())) {}

  std::vector<compress::StateField> state() override {
    return {state_field("p", compress::Passing::same, p_),
            state_field("q", compress::Passing::same, q_),
            {"steps", compress::Passing::same, steps_}};
  }

 private:
  TensorPayload do_encode(int, const TensorInput& input) override {
    sends_left_ = input.phase < 0 ? steps_.now() % 2 == 0 : input.phase == left_;
    KeptTensor& other = sends_left_ ? q_ : p_;
    const at::Tensor fixed = orthonormalised(other.now(), &input.keys.shared).factor;
    const at::Tensor v = corrected(input);
    const float scale = headroom(input.ranks, sends_left_ ? columns() : rows());
    const at::Tensor scaled = fixed * scale;
    const at::Tensor matrix = as_matrix(v);
    const at::Tensor sent = at::matmul(scaled, sends_left_ ? matrix.t() : matrix);
    other.write(scaled * (1 / (scale * scale)));
    (sends_left_ ? p_ : q_).write(sent);
    keep_rest(input, v, p_.next(), q_.next());
    return {bytes_of(sent.clone()), {}};
  }

  void do_decode(int, const TensorArrived& arrived, const at::Tensor& mean) override {
    const std::int64_t length = sends_left_ ? rows() : columns();
    (sends_left_ ? p_ : q_)
        .write(read_mean(arrived, rank() * length, "acpsgd").view({rank(), length}));
    as_matrix(mean).copy_(saturated(product(p_.next(), q_.next())));
    steps_.next() = steps_.now() + 1;
  }

  int left_;
  compress::Kept<std::uint64_t> steps_;  // decoded
  KeptTensor p_, q_;                     // [rank][rows], [rank][columns]
  bool sends_left_ = true;               // in the step at hand
};

}  // namespace

Made make_powersgd(const Making& making, doc::OptionReader& options) {
  const std::int64_t rank = compress::read_rank(options);
  compress::read_warm_up(options);
  return std::make_unique<PowerSgdTensors>(making, rank);
}
Made make_acpsgd(const Making& making, doc::OptionReader& options) {
  const std::int64_t rank = compress::read_rank(options);
  const int left = compress::read_warm_up(options) > 0 ? 1 : 0;
  return std::make_unique<AcpSgdTensors>(making, rank, left);
}

}  // namespace linerate::torch_codecs
