// ResNets (He et al. 2016) with the stride in the 3x3 convolution of a bottleneck (v1.5), as
// commonly published: 11,689,512 (18), 25,557,032 (50), 44,549,160 (101), 60,192,808 (152)
// parameters at 1000 classes.
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/models/catalogue.hpp"
#include "linerate/models/description.hpp"

namespace linerate::models {
namespace {

int conv_bn(Builder& b, const std::string& conv, const std::string& norm, int x,
            std::int64_t channels, Window window) {
  return b.batch_norm(norm, b.conv2d(conv, x, channels, window));
}

/// Two 3x3 convolutions (basic), or 1x1, 3x3, 1x1 with four times as many maps at the end
/// (bottleneck).
int block(Builder& b, const std::string& at, int x, std::int64_t width, std::int64_t stride,
          bool bottleneck) {
  const std::int64_t outputs = bottleneck ? 4 * width : width;
  const bool project = stride != 1 || b.shape(x)[0] != outputs;
  int y;
  if (bottleneck) {
    y = b.relu(conv_bn(b, at + "conv1", at + "bn1", x, width, valid(1)));
    y = b.relu(conv_bn(b, at + "conv2", at + "bn2", y, width, same(3, stride)));
    y = conv_bn(b, at + "conv3", at + "bn3", y, outputs, valid(1));
  } else {
    y = b.relu(conv_bn(b, at + "conv1", at + "bn1", x, width, same(3, stride)));
    y = conv_bn(b, at + "conv2", at + "bn2", y, outputs, same(3));
  }
  const int shortcut =
      project ? conv_bn(b, at + "downsample.0", at + "downsample.1", x, outputs, valid(1, stride))
              : x;
  return b.relu(b.add(y, shortcut));
}

Description resnet(const std::string& name, const Request& r, const std::array<int, 4>& blocks,
                   bool bottleneck) {
  Builder b(name, r.input);
  int x = b.relu(conv_bn(b, "conv1", "bn1", b.input(), 64, r.small() ? same(3) : same(7, 2)));
  if (!r.small()) x = b.max_pool(x, same(3, 2));
  for (int stage = 0; stage < 4; ++stage)
    for (int i = 0; i < blocks[to_index(stage)]; ++i)
      x = block(b, "layer" + std::to_string(stage + 1) + "." + std::to_string(i) + ".", x,
                std::int64_t{64} << stage, stage > 0 && i == 0 ? 2 : 1, bottleneck);
  b.linear("fc", b.flatten(b.global_avg_pool(x)), r.classes);
  return std::move(b).finish(Initialisation::he);
}

Description make_resnet18(const Request& r) { return resnet("resnet18", r, {2, 2, 2, 2}, false); }
Description make_resnet50(const Request& r) { return resnet("resnet50", r, {3, 4, 6, 3}, true); }
Description make_resnet101(const Request& r) { return resnet("resnet101", r, {3, 4, 23, 3}, true); }
Description make_resnet152(const Request& r) { return resnet("resnet152", r, {3, 8, 36, 3}, true); }

// VGG-16 with batch norm (Simonyan and Zisserman 2015, configuration D): 138,365,992 parameters at
// 3x224x224. The small variant ends in Linear 512-512-classes instead of three layers of width
// 4096.

Description make_vgg16(const Request& r) {
  Builder b("vgg16", r.input);
  static constexpr std::array<std::pair<int, int>, 5> stages = {
      {{2, 64}, {2, 128}, {3, 256}, {3, 512}, {3, 512}}};
  int x = b.input(), index = 0;
  for (const auto& [layers, channels] : stages) {
    for (int i = 0; i < layers; ++i, index += 3) {
      x = b.conv2d("features." + std::to_string(index), x, channels, same(3), true);
      x = b.relu(b.batch_norm("features." + std::to_string(index + 1), x));
    }
    // 28x28 shrinks to one pixel before the last pooling, which then is not needed.
    if (std::min(b.shape(x)[1], b.shape(x)[2]) > 1) x = b.max_pool(x, valid(2, 2));
    ++index;
  }
  if (r.small()) {
    x = b.flatten(b.global_avg_pool(x));
    x = b.relu(b.linear("classifier.0", x, 512));
    b.linear("classifier.2", x, r.classes);
  } else {
    x = b.flatten(b.global_avg_pool(x, 7));
    x = b.dropout(b.relu(b.linear("classifier.0", x, 4096)), 0.5);
    x = b.dropout(b.relu(b.linear("classifier.3", x, 4096)), 0.5);
    b.linear("classifier.6", x, r.classes);
  }
  return std::move(b).finish(Initialisation::he);
}

// LeNet-5 (LeCun et al. 1998) as it is trained today: full connections between the maps, ReLU, max
// pooling; 61,706 parameters for 1x28x28 (padded by 2) and ten classes. The MLP is here too: both
// are small and without batch norm.

Description make_mlp(const Request& r) {
  Builder b("mlp", r.input);
  int x = b.flatten(b.input());
  x = b.relu(b.linear("fc1", x, 512));
  x = b.relu(b.linear("fc2", x, 256));
  b.linear("fc3", x, r.classes);
  return std::move(b).finish(Initialisation::he);
}

Description make_lenet(const Request& r) {
  Builder b("lenet", r.input);
  // The original takes 32x32 and pads nothing; 28x28 data is padded to that.
  const Window first = r.input.size() == 3 && r.input[1] < 32 ? same(5) : valid(5);
  int x = b.max_pool(b.relu(b.conv2d("conv1", b.input(), 6, first, true)), valid(2, 2));
  x = b.max_pool(b.relu(b.conv2d("conv2", x, 16, valid(5), true)), valid(2, 2));
  x = b.relu(b.linear("fc1", b.flatten(x), 120));
  x = b.relu(b.linear("fc2", x, 84));
  b.linear("fc3", x, r.classes);
  return std::move(b).finish(Initialisation::he);
}

// DenseNet-201 (Huang et al. 2017), bottleneck and compression 0.5: 20,013,928 parameters at 1000
// classes. The small variant starts with a 3x3 convolution of stride 1 without pooling.

Description make_densenet201(const Request& r) {
  static constexpr std::array<int, 4> blocks = {6, 12, 48, 32};
  static constexpr std::int64_t growth = 32;
  Builder b("densenet201", r.input);
  int x = b.conv2d("features.conv0", b.input(), 64, r.small() ? same(3) : same(7, 2));
  x = b.relu(b.batch_norm("features.norm0", x));
  if (!r.small()) x = b.max_pool(x, same(3, 2));
  for (std::size_t block = 0; block < blocks.size(); ++block) {
    const std::string number = std::to_string(block + 1);
    for (int i = 1; i <= blocks[block]; ++i) {
      const std::string at =
          "features.denseblock" + number + ".denselayer" + std::to_string(i) + ".";
      int y = b.relu(b.batch_norm(at + "norm1", x));
      y = b.relu(b.batch_norm(at + "norm2", b.conv2d(at + "conv1", y, 4 * growth, valid(1))));
      x = b.concat({x, b.conv2d(at + "conv2", y, growth, same(3))});
    }
    if (block + 1 == blocks.size()) break;
    const std::string at = "features.transition" + number + ".";
    x = b.relu(b.batch_norm(at + "norm", x));
    x = b.avg_pool(b.conv2d(at + "conv", x, b.shape(x)[0] / 2, valid(1)), valid(2, 2));
  }
  x = b.relu(b.batch_norm("features.norm5", x));
  b.linear("classifier", b.flatten(b.global_avg_pool(x)), r.classes);
  return std::move(b).finish(Initialisation::he);
}

// Inception-v4 (Szegedy et al. 2017, figures 3 to 9): 42,679,816 parameters at 1000 classes. The
// small variant pads every window and starts at stride 1, since a map of 32 pixels would otherwise
// vanish in the second reduction.

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
  /// Convolutions one after the other. Their paths are `at` and a number.
  int chain(const std::string& at, int x,
            const std::vector<std::pair<std::int64_t, Window>>& channels_and_windows) {
    int number = 0;
    for (const auto& [channels, window] : channels_and_windows)
      x = conv(at + std::to_string(number++), x, channels, window);
    return x;
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
    const int left = chain(at + ".branch0.", x, {{64, valid(1)}, {96, shrinking(3, 1)}});
    const int right = chain(at + ".branch1.", x,
                            {{64, valid(1)}, {64, row(7)}, {64, column(7)}, {96, shrinking(3, 1)}});
    x = b_.concat({left, right});
    at = next();
    return b_.concat(
        {conv(at + ".conv", x, 192, shrinking(3, 2)), b_.max_pool(x, shrinking(3, 2))});
  }

  // The blocks of the paper's figures, branch by branch. Names are those of the published weights.
  int block_a(int x) {
    const std::string at = next();
    const int one = conv(at + ".branch0", x, 96, valid(1));
    const int three = chain(at + ".branch1.", x, {{64, valid(1)}, {96, same(3)}});
    const int five = chain(at + ".branch2.", x, {{64, valid(1)}, {96, same(3)}, {96, same(3)}});
    const int pooled = conv(at + ".branch3.1", b_.avg_pool(x, same(3)), 96, valid(1));
    return b_.concat({one, three, five, pooled});
  }

  int reduction_a(int x) {
    const std::string at = next();
    const int three = conv(at + ".branch0", x, 384, shrinking(3, 2));
    const int five =
        chain(at + ".branch1.", x, {{192, valid(1)}, {224, same(3)}, {256, shrinking(3, 2)}});
    return b_.concat({three, five, b_.max_pool(x, shrinking(3, 2))});
  }

  int block_b(int x) {
    const std::string at = next();
    const int one = conv(at + ".branch0", x, 384, valid(1));
    const int seven =
        chain(at + ".branch1.", x, {{192, valid(1)}, {224, row(7)}, {256, column(7)}});
    const int twice =
        chain(at + ".branch2.", x,
              {{192, valid(1)}, {192, column(7)}, {224, row(7)}, {224, column(7)}, {256, row(7)}});
    const int pooled = conv(at + ".branch3.1", b_.avg_pool(x, same(3)), 128, valid(1));
    return b_.concat({one, seven, twice, pooled});
  }

  int reduction_b(int x) {
    const std::string at = next();
    const int three = chain(at + ".branch0.", x, {{192, valid(1)}, {192, shrinking(3, 2)}});
    const int seven =
        chain(at + ".branch1.", x,
              {{256, valid(1)}, {256, row(7)}, {320, column(7)}, {320, shrinking(3, 2)}});
    return b_.concat({three, seven, b_.max_pool(x, shrinking(3, 2))});
  }

  int block_c(int x) {
    const std::string at = next();
    const int one = conv(at + ".branch0", x, 256, valid(1));
    const int two = conv(at + ".branch1_0", x, 384, valid(1));
    const int two_a = conv(at + ".branch1_1a", two, 256, row(3));
    const int two_b = conv(at + ".branch1_1b", two, 256, column(3));
    const int three =
        chain(at + ".branch2_", x, {{384, valid(1)}, {448, column(3)}, {512, row(3)}});
    const int three_a = conv(at + ".branch2_3a", three, 256, row(3));
    const int three_b = conv(at + ".branch2_3b", three, 256, column(3));
    const int pooled = conv(at + ".branch3.1", b_.avg_pool(x, same(3)), 256, valid(1));
    return b_.concat({one, two_a, two_b, three_a, three_b, pooled});
  }

  Builder b_;
  bool small_;
  int index_ = 0;
};

Description make_inception_v4(const Request& r) { return Inception(r).make(r.classes); }

// BERT uncased (Devlin et al. 2019): encoder and pooler, with 109,482,240 parameters (base) and
// 335,141,888 (large). The masked-language-model head is left out, as in the commonly published
// count. So without --classes the pooled features are the outputs, and with --classes a linear head
// follows. GPT-2 small (Radford et al. 2019): 124,439,808 parameters, the output tied to the token
// embedding.

/// Blocks, their width and heads.
struct TransformerSize {
  int layers;
  std::int64_t width, heads;
};
constexpr TransformerSize kSmall{12, 768, 12}, kLarge{24, 1024, 16};
constexpr double kDropout = 0.1;

/// Attention, then the feed-forward pair; each is added to its input and normalised after
/// (post-norm).
int bert_block(Builder& b, const std::string& at, const TransformerSize& size, int x) {
  const std::int64_t width = size.width;
  const std::string self = at + "attention.self.";
  const int q = b.linear(self + "query", x, width), k = b.linear(self + "key", x, width),
            v = b.linear(self + "value", x, width);
  int y = b.linear(at + "attention.output.dense",
                   b.attention({q, k, v}, size.heads, false, kDropout), width);
  x = b.layer_norm(at + "attention.output.LayerNorm", b.add(b.dropout(y, kDropout), x), 1e-12);
  y = b.gelu(b.linear(at + "intermediate.dense", x, 4 * width));
  y = b.dropout(b.linear(at + "output.dense", y, width), kDropout);
  return b.layer_norm(at + "output.LayerNorm", b.add(y, x), 1e-12);
}

/// The same with the normalisation before each half (pre-norm).
int gpt_block(Builder& b, const std::string& at, int x) {
  int y = b.linear(at + "attn.c_attn", b.layer_norm(at + "ln_1", x), 3 * kSmall.width);
  y = b.linear(at + "attn.c_proj", b.attention({y}, kSmall.heads, true, kDropout), kSmall.width);
  x = b.add(x, b.dropout(y, kDropout));
  y = b.gelu(b.linear(at + "mlp.c_fc", b.layer_norm(at + "ln_2", x), 4 * kSmall.width));
  return b.add(x, b.dropout(b.linear(at + "mlp.c_proj", y, kSmall.width), kDropout));
}

Description make_bert(const char* name, const TransformerSize& size, const Request& r) {
  static constexpr std::int64_t vocabulary = 30522;
  Builder b(name, r.input, vocabulary);
  const int words = b.embedding("embeddings.word_embeddings", b.input(), vocabulary, size.width);
  const int places = b.embedding("embeddings.position_embeddings", b.input(), 512, size.width,
                                 Op::position_embedding);
  const int types = b.embedding("embeddings.token_type_embeddings", b.input(), 2, size.width,
                                Op::constant_embedding);
  int x = b.layer_norm("embeddings.LayerNorm", b.add(b.add(words, places), types), 1e-12);
  x = b.dropout(x, kDropout);
  for (int i = 0; i < size.layers; ++i)
    x = bert_block(b, "encoder.layer." + std::to_string(i) + ".", size, x);
  x = b.tanh(b.linear("pooler.dense", b.first_token(x), size.width));
  if (r.classes > 0) b.linear("classifier", b.dropout(x, kDropout), r.classes);
  return std::move(b).finish(Initialisation::normal_002);
}

Description make_bert_base(const Request& r) { return make_bert("bert-base", kSmall, r); }
Description make_bert_large(const Request& r) { return make_bert("bert-large", kLarge, r); }

Description make_gpt_small(const Request& r) {
  static constexpr std::int64_t vocabulary = 50257;
  Builder b("gpt-small", r.input, vocabulary);
  const int words = b.embedding("wte", b.input(), vocabulary, kSmall.width);
  int x = b.add(words, b.embedding("wpe", b.input(), 1024, kSmall.width, Op::position_embedding));
  x = b.dropout(x, kDropout);
  for (int i = 0; i < kSmall.layers; ++i) x = gpt_block(b, "h." + std::to_string(i) + ".", x);
  x = b.layer_norm("ln_f", x);
  if (r.classes > 0)
    b.linear("head", x, r.classes);
  else
    b.tied_linear(x, words);
  return std::move(b).finish(Initialisation::normal_002);
}

}  // namespace

const Registry<Maker>& catalogue() {
  static const Registry<Maker> models(
      "model",
      {
          {"mlp", Maker{make_mlp, "1x28x28", 10},
           "Three linear layers, 512-256-classes, with ReLU.", "Rumelhart et al. 1986"},
          {"lenet", Maker{make_lenet, "1x28x28", 10}, "LeNet-5 with ReLU and max pooling.",
           "LeCun et al. 1998"},
          {"resnet18", Maker{make_resnet18}, "Residual network of 18 layers, basic blocks.",
           "He et al. 2016"},
          {"resnet50", Maker{make_resnet50}, "Residual network of 50 layers, bottleneck blocks.",
           "He et al. 2016"},
          {"resnet101", Maker{make_resnet101}, "Residual network of 101 layers, bottleneck blocks.",
           "He et al. 2016"},
          {"resnet152", Maker{make_resnet152}, "Residual network of 152 layers, bottleneck blocks.",
           "He et al. 2016"},
          {"vgg16", Maker{make_vgg16}, "VGG-16 (configuration D) with batch norm.",
           "Simonyan and Zisserman 2015"},
          {"densenet201", Maker{make_densenet201},
           "Densely connected network, growth 32, blocks 6-12-48-32.", "Huang et al. 2017"},
          {"inception-v4", Maker{make_inception_v4}, "Inception-v4 with its own stem.",
           "Szegedy et al. 2017"},
          {"bert-base", Maker{make_bert_base, "128", 0},
           "BERT base uncased: encoder and pooler, no language-model head.", "Devlin et al. 2019"},
          {"bert-large", Maker{make_bert_large, "128", 0},
           "BERT large uncased: encoder and pooler, no language-model head.", "Devlin et al. 2019"},
          {"gpt-small", Maker{make_gpt_small, "1024", 0},
           "GPT-2 small: 12 blocks of width 768, output tied to the embedding.",
           "Radford et al. 2019"},
      });
  return models;
}

Description describe(std::string_view name, const Options& options) {
  const Maker& maker = catalogue().at(name);
  const Request request{options.input.value_or(parse_shape(maker.default_input)),
                        options.classes.value_or(maker.default_classes), options.variant};
  if (options.classes && *options.classes < 1)
    throw UsageError("--classes: expected at least 1, found " + std::to_string(*options.classes));
  return maker.make(request);
}

Variant parse_variant(std::string_view name) {
  constexpr std::array kNames{"auto", "published", "small"};  // as Variant has them
  for (std::size_t v = 0; v < kNames.size(); ++v)
    if (name == kNames[v]) return static_cast<Variant>(v);
  throw UsageError("--variant: expected auto, published or small, found \"" + std::string(name) +
                   "\"");
}

}  // namespace linerate::models
