// Mutates the samples and fixtures and feeds them to the importers: no crash, no hang, no silent
// zero.
//   test_unit_trace_mutation [inputs] [seconds]      defaults: 3000 inputs, 60 s
//   test_unit_trace_mutation --seeds FOLDER          writes what it starts from, for libFuzzer
#include <algorithm>
#include <chrono>
#include <sstream>
#include <vector>

#include "linerate/core/file.hpp"
#include "linerate/core/random.hpp"
#include "trace/importer_seeds.hpp"

namespace linerate::trace {
namespace {

using Clock = std::chrono::steady_clock;

/// One to eight edits: a byte, a run, a digit, a number that is absurd, a piece moved or doubled,
/// the tail cut.
std::string mutated(std::string s, std::uint64_t key) {
  std::uint64_t n = 0;
  const auto below = [&](std::uint64_t k) {
    return random_below(key, n++, std::max<std::uint64_t>(1, k));
  };
  static const std::vector<std::string> kPieces = [] {
    std::istringstream text(
        "\"|{|}|[|]|,|:|\n|\\|-1|1e400|18446744073709551616|null|\xff\xfe|NaN|\"ph\":\"X\"|"
        "9223372036854775808|0|[[[[[[[[|# |\x1f\x8b|\x01");
    std::vector<std::string> pieces;
    for (std::string piece; std::getline(text, piece, '|');) pieces.push_back(piece);
    return pieces;
  }();
  for (std::uint64_t edits = 1 + below(8); edits > 0; --edits) {
    if (s.empty()) return s;
    const std::size_t at = below(s.size());
    switch (below(7)) {
      case 0:
        s[at] = static_cast<char>(below(256));
        break;
      case 1:
        s.erase(at, below(64));
        break;
      case 2:
        s.insert(at, kPieces[below(std::size(kPieces))]);
        break;
      case 3:
        s.insert(at, s.substr(below(s.size()), below(200)));
        break;
      case 4:
        s.resize(below(s.size()) + 1);
        break;
      case 5: {
        const std::size_t digit = s.find_first_of("0123456789", at);
        if (digit != std::string::npos) s.replace(digit, 1, kPieces[below(std::size(kPieces))]);
        break;
      }
      default:
        s[at] ^= static_cast<char>(1 << below(8));
    }
  }
  return s;
}

int write_seeds(const std::string& folder) {
  const std::vector<std::string> all = seeds();
  for (std::size_t i = 0; i < all.size(); ++i)
    write_file_atomically(std::filesystem::path(folder) / ("seed" + std::to_string(i)), all[i]);
  std::printf("%zu seeds\n", all.size());
  return 0;
}

}  // namespace
}  // namespace linerate::trace

int main(int argc, char** argv) {
  using namespace linerate::trace;
  if (argc == 3 && std::string(argv[1]) == "--seeds") return write_seeds(argv[2]);
  const long wanted = argc > 1 ? std::atol(argv[1]) : 3000;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 60;
  const std::vector<std::string> all = seeds();
  const auto begun = Clock::now();
  long read = 0, done = 0;
  double slowest = 0;
  for (; done < wanted; ++done) {
    const auto before = Clock::now();
    if (std::chrono::duration<double>(before - begun).count() > seconds) break;
    const auto i = static_cast<std::uint64_t>(done);
    read += feed_importer(mutated(all[i % all.size()], i + 1));
    slowest = std::max(slowest, std::chrono::duration<double>(Clock::now() - before).count());
  }
  std::printf(
      "%ld mutated inputs of %zu seeds: %ld read, %ld refused with a message; slowest %.1f ms\n",
      done, all.size(), read, done - read, slowest * 1e3);
  return done > 0 && read > 0 && done > read ? 0 : 1;
}
