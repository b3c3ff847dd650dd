"""One rank of bench/exchange: starts the PyTorch and the linerate worker of this rank side by side and lets them train in
turn, A B C A B C; whoever does not run is stopped (SIGSTOP). Runs under mpirun, whose environment the linerate worker
inherits; this process itself calls no MPI."""
import json
import os
import signal
import statistics
import subprocess
import sys


class Worker:
    def __init__(self, command, environment=None):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **(environment or {})})
        self.stopped = False

    def ask(self, *words):
        if self.stopped:
            self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.process.args[0]} ended with code {self.process.wait()}")
        self.process.send_signal(signal.SIGSTOP)
        self.stopped = True
        return json.loads(line)

    def end(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.close()
        self.process.wait()


def main():
    o = json.loads(sys.argv[1])
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    here = os.path.dirname(os.path.abspath(__file__))
    common = [o["model"], o["folder"], str(o["batch"])]
    ddp = Worker([sys.executable, f"{here}/ddp_worker.py", *common, str(rank)],
                 {"GLOO_SOCKET_IFNAME": o["interface"], "LINERATE_DDP_INIT": f"file://{o['folder']}/rendezvous"})
    linerate = Worker([o["worker"], *common, o["memory"]])
    # "barrier": the ranks wait for each other once a step and exchange nothing, as if the exchange cost nothing.
    contenders = [("DDP", ddp, "-"), ("barrier", linerate, "barrier")] + [(s, linerate, s) for s in o["strategies"]]
    # Until the bucket plan is final: DDP and ddp rebuild once, what plans by cost does it again five steps after that.
    warm_up = {name: 2 if name in ("DDP", "barrier", "bulk", "ddp") else 6 for name, _, _ in contenders}
    answers = {name: [] for name, _, _ in contenders}
    try:
        for name, worker, strategy in contenders:
            if strategy == "barrier":
                worker.ask("run", strategy, warm_up[name])
                continue
            worker.ask("check", strategy, f"{o['folder']}/first-{name}-{rank}")
            worker.ask("run", strategy, warm_up[name])
            worker.ask("check", strategy, f"{o['folder']}/steady-{name}-{rank}")
        for _ in range(o["rounds"]):
            for name, worker, strategy in contenders:
                answers[name].append(worker.ask("run", strategy, o["steps"] + 1))
    finally:
        for worker in (ddp, linerate):
            worker.end()
    result = {}
    for name, runs in answers.items():
        # The first step of a block wakes up caches and threads that the others' block put to sleep.
        result[name] = {key: statistics.median(v for run in runs for v in run[key][1:])
                        for key in ("step_s", "cpu_s", "exposed_s", "copy_s", "forward_s", "communication_s") if key in runs[0]}
        result[name]["blocks_s"] = [statistics.median(run["step_s"][1:]) for run in runs]
        result[name]["fastest_s"] = min(v for run in runs for v in run["step_s"][1:])
        result[name]["buckets"] = runs[-1].get("buckets")
    with open(f"{o['folder']}/result{rank}", "w") as file:
        json.dump(result, file)


main()
