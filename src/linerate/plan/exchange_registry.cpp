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
       {"horovod", make_horovod,
        "Buffers of 64 MiB or 5 ms; timer=arrival as Zhang et al. read it, timer=clock as it runs.",
        "Sergeev & Del Balso 2018, Horovod; Zhang et al. 2020 (arXiv 2006.10103)"},
       {"mg-wfbp", make_mg_wfbp,
        "Merges a gradient into the next one where waiting costs less than a start-up (greedy).",
        "Shi, Chu & Li 2019, MG-WFBP (INFOCOM)"},
       {"optimal", make_optimal,
        "The contiguous buckets that finish first, by an exact O(L^2) dynamic program over the "
        "cost model.",
        "the problem of Shi, Chu & Li 2019, solved exactly"},
       {"dear", make_dear, "Reduce-scatter under backward, all-gather under the next forward pass.",
        "Zhang et al. 2023, DeAR (arXiv 2302.12445)"}});
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
