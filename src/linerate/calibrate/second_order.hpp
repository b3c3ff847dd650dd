// Times of K-FAC's work, measured or from a table, become what it costs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "linerate/doc/second_order_cost.hpp"

namespace linerate::calibrate {

/// Inversions: the median of each dimension. Factors and directions: rates, all >= 0, with the
/// least squared relative error; free without samples.
doc::SecondOrderCost fit_second_order(const doc::SecondOrderSamples& samples);

/// Reads lines "what,DIM,SECONDS". `inv` is one inversion of a symmetric DIM x DIM matrix. `mm` is
/// one product of two such matrices, by which factors and directions are priced too. `chol` is a
/// part of inv, and left out. Throws InputError.
doc::SecondOrderSamples read_second_order_table(const std::filesystem::path& path,
                                                std::vector<std::string>* notes = nullptr);

}  // namespace linerate::calibrate
