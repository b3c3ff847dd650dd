// bench/powersgd_worker STRATEGY FILE: linerate's side of bench/powersgd. FILE: u64 count, then
// u64 rows and u64 columns of each matrix, then their f32 elements. Every line "step" on stdin is a
// step of one rank on all of them, with residuals; answers "seconds error", the error being
// |residual| / |gradient|.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "figures.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/random.hpp"

namespace {

using namespace linerate;
using namespace linerate::compress;

struct Matrix {
  Shape shape;
  std::vector<float> gradient, residual, mean;
  std::unique_ptr<Codec> codec;
  std::vector<std::vector<std::byte>> payloads;  // of rounds
};

std::uint64_t read_number(std::ifstream& file) {
  std::uint64_t number = 0;
  file.read(reinterpret_cast<char*>(&number), sizeof number);
  return number;
}

std::vector<Matrix> read_matrices(const std::string& path, const Compressor& compressor) {
  std::ifstream file(path, std::ios::binary);
  std::vector<Matrix> all(read_number(file));
  for (Matrix& m : all) {
    const auto rows = static_cast<std::int64_t>(read_number(file));
    m.shape = {rows * static_cast<std::int64_t>(read_number(file)), rows};
  }
  for (Matrix& m : all) {
    const auto n = static_cast<std::size_t>(m.shape.elements);
    m.gradient.resize(n);
    m.residual.resize(n);
    m.mean.resize(n);
    file.read(reinterpret_cast<char*>(m.gradient.data()), static_cast<std::streamsize>(4 * n));
    m.codec = compressor.codec(m.shape);
    for (const Round& round : compressor.rounds(m.shape))
      m.payloads.emplace_back(static_cast<std::size_t>(round.bytes));
    if (m.payloads.empty()) throw InputError(path, "a matrix that travels dense");
  }
  if (!file) throw InputError(path, "expected matrices, found the end of the file");
  return all;
}

void step(Matrix& m, Keys keys) {
  for (std::size_t round = 0; round < m.payloads.size(); ++round) {
    m.codec->encode(static_cast<int>(round), {m.gradient, m.residual, keys, 1}, m.payloads[round]);
    const std::span<const std::byte> sum = m.payloads[round];
    const bool is_last = round + 1 == m.payloads.size();
    m.codec->decode(static_cast<int>(round), {std::span(&sum, 1), 1},
                    is_last ? std::span<float>(m.mean) : std::span<float>());
  }
  m.codec->keep();
}

double squares(const std::vector<float>& v) {
  double sum = 0;
  for (const float x : v) sum += double{x} * x;
  return sum;
}

void serve(std::vector<Matrix> matrices) {
  std::uint64_t steps = 0;
  for (std::string line; std::getline(std::cin, line) && line == "step"; ++steps) {
    const double taken_s = bench::seconds_of([&] {
      for (std::size_t i = 0; i < matrices.size(); ++i)
        step(matrices[i], {random_key(steps, i), random_key(steps, i)});
    });
    double left = 0, all = 0;
    for (const Matrix& m : matrices) left += squares(m.residual), all += squares(m.gradient);
    fmt::print("{} {}\n", taken_s, std::sqrt(left / all));
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return linerate::bench::exit_status([&] {
    if (argc != 3) throw UsageError("expected powersgd_worker STRATEGY FILE");
    const auto compressor = make_compressor(doc::parse_component(argv[1]));
    serve(read_matrices(argv[2], *compressor));
  });
}
