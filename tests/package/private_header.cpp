#include "linerate/sim/prices.hpp"
