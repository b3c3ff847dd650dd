#include "linerate/sim/rank_classes.hpp"
