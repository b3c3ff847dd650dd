// The patches of a convolution as a matrix [channels * taps][samples * positions], for
// add_symmetric_product(). Row (c, k) has the inputs of channel c that tap k sees, for each sample
// and position of the output. In the padding it has 0. On a host each row is written by one task,
// plane by plane.
#include "linerate/torch_adapter/kfac/conv_patches.hpp"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/im2col.h>

#include <algorithm>

#include "linerate/torch_adapter/kfac/host_code.hpp"

namespace linerate::torch_adapter {
namespace {

/// One axis of the outputs, for one tap: output k sees input begin + k step.
struct PatchAxis {
  std::int64_t begin = 0, step = 1, size = 0, inputs = 0;

  /// The positions [low, high) whose inputs exist.
  std::int64_t low() const { return begin >= 0 ? 0 : std::min(size, (-begin + step - 1) / step); }
  std::int64_t high() const {
    return begin >= inputs ? 0 : std::min(size, (inputs - 1 - begin) / step + 1);
  }
};

template <typename T>
/// Example: 5 inputs, a padding of 1, stride 2, and tap 0. Its outputs 0, 1 and 2 see the inputs
/// -1, 1 and 3. So low is 1 and high is 3, and the line is 0, x[1], x[3].
void fill_line(const T* input, const PatchAxis& x, T* line) {
  const std::int64_t low = std::min(x.low(), x.high()), high = std::max(x.high(), low);
  std::fill(line, line + low, T(0));
  if (x.step == 1) {
    std::copy(input + x.begin + low, input + x.begin + high, line + low);
  } else {
    for (std::int64_t k = low; k < high; ++k) line[k] = input[x.begin + k * x.step];
  }
  std::fill(line + high, line + x.size, T(0));
}

template <typename T>
void fill_plane(const T* input, const PatchAxis& y, const PatchAxis& x, T* plane) {
  for (std::int64_t k = 0; k < y.size; ++k, plane += x.size) {
    const std::int64_t row = y.begin + k * y.step;
    if (row < 0 || row >= y.inputs)
      std::fill(plane, plane + x.size, T(0));
    else
      fill_line(input + row * x.inputs, x, plane);
  }
}

/// The patches on a device, by im2col. im2col pads both sides alike, so other padding is added
/// before.
at::Tensor enqueue_patches(const at::Tensor& input, const ConvGeometry& g) {
  const bool pads = g.pad_before != g.pad_after;
  const at::Tensor padded = pads ? at::constant_pad_nd(input, {g.pad_before[1], g.pad_after[1],
                                                               g.pad_before[0], g.pad_after[0]})
                                 : input;
  const ConvGeometry::Pair none{0, 0};
  return at::im2col(padded, g.kernel, g.dilation, pads ? none : g.pad_before, g.stride)
      .transpose(0, 1)  // of [N, C kh kw, H' W']
      .flatten(1);
}

}  // namespace

// On the CPU the patches are written directly in the order in which the product reads them.
// at::im2col and its transposition would each copy everything once more.
at::Tensor conv_patches(const at::Tensor& given, const ConvGeometry& g) {
  if (!runs_on_host(given)) return enqueue_patches(given, g);
  const at::Tensor input = given.contiguous();
  const std::int64_t samples = input.size(0), channels = input.size(1);
  const std::int64_t height = input.size(2), width = input.size(3);
  const std::int64_t rows = g.outputs(0, height);
  const std::int64_t columns = g.outputs(1, width);
  const std::int64_t taps = g.kernel[0] * g.kernel[1];
  at::Tensor patches = at::empty({channels * taps, samples * rows * columns}, input.options());
  const auto axis = [&](std::size_t i, std::int64_t tap, std::int64_t size, std::int64_t inputs) {
    return PatchAxis{tap * g.dilation[i] - g.pad_before[i], g.stride[i], size, inputs};
  };
  AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "conv_patches", [&] {
    const scalar_t* const from = input.const_data_ptr<scalar_t>();
    scalar_t* const to = patches.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, channels * taps, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t channel = row / taps, tap = row % taps;
        const PatchAxis y = axis(0, tap / g.kernel[1], rows, height);
        const PatchAxis x = axis(1, tap % g.kernel[1], columns, width);
        for (std::int64_t n = 0; n < samples; ++n)
          fill_plane(from + (n * channels + channel) * height * width, y, x,
                     to + (row * samples + n) * rows * columns);
      }
    });
  });
  return patches;
}

}  // namespace linerate::torch_adapter
