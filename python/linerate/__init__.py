"""linerate: measures, predicts and explains synchronous data-parallel training.

    import linerate
    e = linerate.explain("traces/*.json.gz")          # where a step's time goes
    w = linerate.import_workload("traces/*.json.gz")  # what one rank computes
    c = linerate.calibrate("nccl-tests.log")          # what a collective costs
    p = linerate.whatif(w, c, ranks=[16, 64], bandwidth="10Gbit/s", strategy=["ddp", "dear"])
    linerate.advise(w, c, ranks=64).best

Functions are the verbs of the command `linerate`. Every option of a verb is a keyword of the same
name (`--step-time` is `step_time`). Where an option takes a document's file, a keyword takes the
document, too. Quantities are text with a unit, as in the command ("25MiB", "10Gbit/s", "20us"), or
numbers in SI units: seconds, bytes, bytes per second. Errors are `linerate.Error` and its kinds,
with the command's text. Nothing is printed: what there is to know about a result is in its `notes`.
`progress=True` shows a line on stderr; `progress=f` calls `f(line)`. Ctrl-C ends any work.
Documents never change, and threads may share them.
"""

from ._core import VERSION as __version__
from ._core import CommError, DeviceError, Error, InputError, InternalError, UsageError
from ._documents import Cluster, Fit, Plan, Prediction, Record, Timeline, Workload
from ._profile import profile
from ._results import Advice, CollectiveTimes, Comparison, Explanation, Listing, Predictions
from ._verbs import (
    advise,
    calibrate,
    compare,
    compressors,
    cost_models,
    explain,
    export,
    import_timeline,
    import_workload,
    models,
    networks,
    plan,
    report,
    strategies,
    whatif,
    whatif_collective,
)

for _kind in (Error, UsageError, InputError, CommError, DeviceError, InternalError):
    _kind.__module__ = "linerate"  # a traceback's name for it

__all__ = [
    "Advice",
    "Cluster",
    "CollectiveTimes",
    "CommError",
    "Comparison",
    "DeviceError",
    "Error",
    "Explanation",
    "Fit",
    "InputError",
    "InternalError",
    "Listing",
    "Plan",
    "Prediction",
    "Predictions",
    "Record",
    "Timeline",
    "UsageError",
    "Workload",
    "__version__",
    "advise",
    "calibrate",
    "compare",
    "compressors",
    "cost_models",
    "explain",
    "export",
    "import_timeline",
    "import_workload",
    "models",
    "networks",
    "plan",
    "profile",
    "report",
    "strategies",
    "whatif",
    "whatif_collective",
]
