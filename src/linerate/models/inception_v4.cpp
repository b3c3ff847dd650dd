// Inception-v4 (Szegedy et al. 2017, figures 3 to 9): 42,679,816 parameters at 1000 classes. The
// small variant pads every window and starts at stride 1, since a map of 32 pixels would otherwise
// vanish in the second reduction.
#include "linerate/models/builder.hpp"
#include "linerate/models/families.hpp"

namespace linerate::models {
namespace {

class Inception {
 public:
  explicit Inception(const Request& r) : b_("inception-v4", r.input), small_(r.small()) {}

  Description make(std::int64_t classes) {
    int x = stem();
    for (int i = 0; i < 4; ++i) x = block_a(x);
    x = reduction_a(x);
    for (int i = 0; i < 7; ++i) x = block_b(x);
    x = reduction_b(x);
    for (int i = 0; i < 3; ++i) x = block_c(x);
    b_.linear("last_linear", b_.dropout(b_.flatten(b_.global_avg_pool(x)), 0.2), classes);
    return std::move(b_).finish(Initialisation::he);
  }

 private:
  /// A window that the paper marks with V, which is not padded there. The small variant pads it.
  Window shrinking(std::int64_t size, std::int64_t stride) const {
    return small_ ? same(size, stride) : valid(size, stride);
  }
  /// Convolution, batch norm, ReLU; `at` is the path of the branch, in which convolutions are
  /// counted.
  int conv(const std::string& at, int x, std::int64_t channels, Window window) {
    const int y = b_.conv2d(at + ".conv", x, channels, window);
    return b_.relu(b_.batch_norm(at + ".bn", y, 1e-3));
  }
  std::string next() { return "features." + std::to_string(index_++); }
  static constexpr Window row(std::int64_t n) { return {1, n, 1, 0, n / 2}; }
  static constexpr Window column(std::int64_t n) { return {n, 1, 1, n / 2, 0}; }

  int stem() {
    int x = conv(next(), b_.input(), 32, small_ ? same(3) : valid(3, 2));
    x = conv(next(), x, 32, shrinking(3, 1));
    x = conv(next(), x, 64, same(3));
    std::string at = next();
    x = b_.concat({b_.max_pool(x, shrinking(3, 2)), conv(at + ".conv", x, 96, shrinking(3, 2))});
    at = next();
    int left = conv(at + ".branch0.0", x, 64, valid(1));
    left = conv(at + ".branch0.1", left, 96, shrinking(3, 1));
    int right = conv(at + ".branch1.0", x, 64, valid(1));
    right = conv(at + ".branch1.1", right, 64, row(7));
    right = conv(at + ".branch1.2", right, 64, column(7));
    right = conv(at + ".branch1.3", right, 96, shrinking(3, 1));
    x = b_.concat({left, right});
    at = next();
    return b_.concat(
        {conv(at + ".conv", x, 192, shrinking(3, 2)), b_.max_pool(x, shrinking(3, 2))});
  }

  // The blocks of the paper's figures, branch by branch. Names are those of the published weights.
  int block_a(int x) {
    const std::string at = next();
    const int one = conv(at + ".branch0", x, 96, valid(1));
    const int three =
        conv(at + ".branch1.1", conv(at + ".branch1.0", x, 64, valid(1)), 96, same(3));
    int five = conv(at + ".branch2.0", x, 64, valid(1));
    five = conv(at + ".branch2.1", five, 96, same(3));
    five = conv(at + ".branch2.2", five, 96, same(3));
    const int pooled = conv(at + ".branch3.1", b_.avg_pool(x, same(3)), 96, valid(1));
    return b_.concat({one, three, five, pooled});
  }

  int reduction_a(int x) {
    const std::string at = next();
    const int three = conv(at + ".branch0", x, 384, shrinking(3, 2));
    int five = conv(at + ".branch1.0", x, 192, valid(1));
    five = conv(at + ".branch1.1", five, 224, same(3));
    five = conv(at + ".branch1.2", five, 256, shrinking(3, 2));
    return b_.concat({three, five, b_.max_pool(x, shrinking(3, 2))});
  }

  int block_b(int x) {
    const std::string at = next();
    const int one = conv(at + ".branch0", x, 384, valid(1));
    int seven = conv(at + ".branch1.0", x, 192, valid(1));
    seven = conv(at + ".branch1.1", seven, 224, row(7));
    seven = conv(at + ".branch1.2", seven, 256, column(7));
    int twice = conv(at + ".branch2.0", x, 192, valid(1));
    twice = conv(at + ".branch2.1", twice, 192, column(7));
    twice = conv(at + ".branch2.2", twice, 224, row(7));
    twice = conv(at + ".branch2.3", twice, 224, column(7));
    twice = conv(at + ".branch2.4", twice, 256, row(7));
    const int pooled = conv(at + ".branch3.1", b_.avg_pool(x, same(3)), 128, valid(1));
    return b_.concat({one, seven, twice, pooled});
  }

  int reduction_b(int x) {
    const std::string at = next();
    const int three =
        conv(at + ".branch0.1", conv(at + ".branch0.0", x, 192, valid(1)), 192, shrinking(3, 2));
    int seven = conv(at + ".branch1.0", x, 256, valid(1));
    seven = conv(at + ".branch1.1", seven, 256, row(7));
    seven = conv(at + ".branch1.2", seven, 320, column(7));
    seven = conv(at + ".branch1.3", seven, 320, shrinking(3, 2));
    return b_.concat({three, seven, b_.max_pool(x, shrinking(3, 2))});
  }

  int block_c(int x) {
    const std::string at = next();
    const int one = conv(at + ".branch0", x, 256, valid(1));
    const int two = conv(at + ".branch1_0", x, 384, valid(1));
    const int two_a = conv(at + ".branch1_1a", two, 256, row(3));
    const int two_b = conv(at + ".branch1_1b", two, 256, column(3));
    int three = conv(at + ".branch2_0", x, 384, valid(1));
    three = conv(at + ".branch2_1", three, 448, column(3));
    three = conv(at + ".branch2_2", three, 512, row(3));
    const int three_a = conv(at + ".branch2_3a", three, 256, row(3));
    const int three_b = conv(at + ".branch2_3b", three, 256, column(3));
    const int pooled = conv(at + ".branch3.1", b_.avg_pool(x, same(3)), 256, valid(1));
    return b_.concat({one, two_a, two_b, three_a, three_b, pooled});
  }

  Builder b_;
  bool small_;
  int index_ = 0;
};

}  // namespace

Description make_inception_v4(const Request& r) { return Inception(r).make(r.classes); }

}  // namespace linerate::models
