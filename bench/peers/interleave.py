"""One rank of bench/exchange: starts the PyTorch and the linerate worker of this rank side by side
and lets them train in turn, A B C A B C; whoever does not run is stopped (SIGSTOP). Runs under
mpirun, whose environment the linerate worker inherits; this process itself calls no MPI."""
import json
import os
import signal
import statistics
import subprocess
import sys


class Worker:
    def __init__(self, command, environment=None):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env={**os.environ, **(environment or {})})
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
    peers = {f"peer:{peer}": Worker([sys.executable, f"{here}/ddp_worker.py", *common, str(
        rank), peer], {"GLOO_SOCKET_IFNAME": o["interface"], "LINERATE_DDP_INIT":
                           f"file://{o['folder']}/rendezvous-{peer}"}) for peer in o["peers"]}
    linerate = Worker([o["worker"], *common, o["memory"], o["line_rate"]])
    # "barrier": the ranks wait for each other once a step and exchange nothing, as if the exchange
    # cost nothing.
    contenders = ([(peer, worker, "-") for peer, worker in peers.items()] + [(
        "barrier", linerate, "barrier")] + [(s, linerate, s) for s in o["strategies"]])

    def warm_up(name):
        """Until the bucket plan is final: DDP and ddp rebuild once, what plans by cost does it
        again five steps after that."""
        if name == "peer:powersgd_hook":
            return 14  # it compresses from step 10 on, and orthogonalises anew in the step after
        return (2 if name.startswith("peer:") or name.split("+")[0] in ("barrier", "bulk", "ddp")
                else 6)

    answers = {name: [] for name, _, _ in contenders}
    try:
        for name, worker, strategy in contenders:
            if name in o["exact"]:
                worker.ask("check", strategy, f"{o['folder']}/first-{name}-{rank}")
            worker.ask("run", strategy, warm_up(name))
            if name in o["exact"]:
                worker.ask("check", strategy, f"{o['folder']}/steady-{name}-{rank}")
        for _ in range(o["rounds"]):
            for name, worker, strategy in contenders:
                answers[name].append(worker.ask("run", strategy, o["steps"] + 1))
        trained = {name: [worker.ask("loss", strategy, f"{seed}:{o['loss_steps']}")
                          for seed in range(1, o["seeds"] + 1)]
                   for name, worker, strategy in contenders if name in o["losses"]}
    finally:
        for worker in (*peers.values(), linerate):
            worker.end()
    result = {}
    for name, runs in answers.items():
        # The first step of a block wakes up caches and threads that the others' block put to sleep.
        result[name] = {key: statistics.median(v for run in runs for v in run[key][1:])
                        for key in ("step_s", "cpu_s", "exposed_s", "copy_s", "forward_s",
                                    "communication_s", "own_floor_s") if runs[0].get(key)}
        result[name]["blocks_s"] = [statistics.median(run["step_s"][1:]) for run in runs]
        result[name]["fastest_s"] = min(v for run in runs for v in run["step_s"][1:])
        result[name]["buckets"] = runs[-1].get("buckets")
        result[name]["trained"] = trained.get(name, [])
    with open(f"{o['folder']}/result{rank}", "w") as file:
        json.dump(result, file)


main()
