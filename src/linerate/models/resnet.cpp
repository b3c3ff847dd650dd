// ResNets (He et al. 2016) with the stride in the 3x3 convolution of a bottleneck (v1.5), as
// commonly published: 11,689,512 (18), 25,557,032 (50), 44,549,160 (101), 60,192,808 (152)
// parameters at 1000 classes.
#include <array>

#include "linerate/core/index.hpp"
#include "linerate/models/builder.hpp"
#include "linerate/models/families.hpp"

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

}  // namespace

Description make_resnet18(const Request& r) { return resnet("resnet18", r, {2, 2, 2, 2}, false); }
Description make_resnet50(const Request& r) { return resnet("resnet50", r, {3, 4, 6, 3}, true); }
Description make_resnet101(const Request& r) { return resnet("resnet101", r, {3, 4, 23, 3}, true); }
Description make_resnet152(const Request& r) { return resnet("resnet152", r, {3, 8, 36, 3}, true); }

}  // namespace linerate::models
