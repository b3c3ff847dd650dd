#include "linerate/plan/exchange_registry.hpp"

namespace linerate::plan {

const Registry<ExchangeMaker>& exchanges() {
  static const Registry<ExchangeMaker> registry(
      "strategy",
      {{"bulk", make_bulk, "One all-reduce of everything, after backward.",
        "the textbook baseline"},
       {"ddp", make_ddp,
        "Buckets of 25 MiB in ready order, the first of 1 MiB, sent while backward goes on.",
        "Li et al. 2020, PyTorch Distributed (VLDB)"},
       {"optimal", make_optimal,
        "The contiguous buckets that finish first, by an exact O(L^2) dynamic program over the "
        "cost model.",
        "linerate; problem of Shi et al. 2019, MG-WFBP (INFOCOM)"}});
  return registry;
}

const Registry<Extra>& extras() {
  static const Registry<Extra> registry(
      "extra", {{"codec", Extra::codec,
                 "Any compression by its numbers: codec(ratio=8, encode=10GB/s, decode=12GB/s, "
                 "exchange=sum|gather).",
                 "what-if of Agarwal et al. 2021 (arXiv 2103.00543)"}});
  return registry;
}

}  // namespace linerate::plan
