"""Network namespaces joined by shaped links, for as long as one program runs: what tools/lab and
tools/gpu-lab share.

Every rank gets a namespace with one network card, eth0; the cards meet at a bridge in a namespace
of its own. Each link is shaped in both directions by a token bucket, unless it has no rate.
Addresses exist inside the namespaces only. Namespaces carry the process id of the program that made
them, so that a later one removes what a killed one has left.
"""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

PREFIX = "linerate-lab-"  # + pid of the run + "-" + role
NETNS = pathlib.Path("/run/netns")
PACKAGES = {"ip": "iproute2", "tc": "iproute2", "nsenter": "util-linux", "mpirun": "openmpi-bin"}
LOW_DELAY = 0x10  # IPTOS_LOWDELAY
HEADER = 14           # of Ethernet
WHOLE_PACKET = 65536  # the largest that a card cuts
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def missing_for_links(*programs):
    """What namespaces need and this machine lacks, each with what helps; [] if nothing that can be
    seen beforehand."""
    lacks = [] if os.geteuid() == 0 else ["no root: network namespaces need it; run as root"]
    return lacks + [f"no {program}: install {PACKAGES[program]} (tools/setup)"
                    for program in programs if shutil.which(program) is None]


def parse_rate(text):
    """"1Gbit/s" -> bits per second. ValueError for what is no rate."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*([kMGT]?)bit/s\s*", text)
    if not match:
        raise ValueError(f'expected a rate such as 1Gbit/s or 200Mbit/s, found "{text}"')
    return float(match[1]) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[match[2]]


def ip(*args, check=True, namespace=None):
    command = ["ip"] + (["-n", namespace] if namespace else []) + [str(a) for a in args]
    done = subprocess.run(command, capture_output=True, text=True)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def tc(namespace, command):
    """Why it failed; empty if it did not."""
    done = subprocess.run(["tc", "-n", namespace, *command.split()], capture_output=True, text=True)
    return done.stderr.strip() if done.returncode != 0 else ""


def address(index):
    return f"10.97.{index // 250}.{index % 250 + 1}"


class Links:
    """The namespaces of this run: one a rank, `switch` with the bridge, and if asked for `head`,
    unshaped, for what starts ranks.

    `bits`: of each link, a second and direction; None for as much as it carries. `burst`: of the
    token bucket in bytes. `queue_ms`: the queue before the link, in ms of its rate. `hurries`: what
    is marked for low delay (IP_TOS) passes that queue, if the kernel has htb and u32."""

    def __init__(self, ranks, bits, *, burst=None, queue_ms=20, mtu=1500, with_head=False,
                 hurries=False):
        self.bits, self.mtu, self.hurries = bits, mtu, hurries
        if bits is not None:
            # A longer burst would pass, after each pause, what the line cannot carry for long.
            self.burst = burst or max(2 * (mtu + HEADER), int(bits / 8 * 0.5e-3))
            self.queue = int(bits / 8 * queue_ms * 1e-3) + self.burst
        self.run = os.getpid()
        self.ranks = [self.name(f"r{k}") for k in range(ranks)]
        self.switch, self.head = self.name("switch"), self.name("head") if with_head else None

    def name(self, role):
        return f"{PREFIX}{self.run}-{role}"

    def shape(self, namespace, link):
        problem = tc(namespace, f"qdisc add dev {link} root handle 1: tbf rate {int(self.bits)}bit "
                                f"burst {self.burst} limit {self.queue}")
        if problem:
            raise RuntimeError(f"tc tbf: {problem}")
        if not self.hurries:
            return
        for command in (f"qdisc add dev {link} parent 1:1 handle 2: htb default 2",
                        f"class add dev {link} parent 2: classid 2:1 htb rate 1000gbit quantum "
                        "60000 prio 0", f"class add dev {link} parent 2: classid 2:2 htb rate "
                                        "1000gbit quantum 60000 prio 1",
                        f"qdisc add dev {link} parent 2:2 bfifo limit {self.queue}",
                        f"filter add dev {link} parent 2: protocol ip u32 match ip tos "
                        f"{LOW_DELAY:#x} 0x1e flowid 2:1"):
            if tc(namespace, command):  # one queue for all again
                self.hurries = False
                tc(namespace, f"qdisc del dev {link} parent 1:1")
                return

    def plug(self, namespace, index, shaped):
        port = f"p{index}"
        ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace,
           namespace=self.switch)
        ip("link", "set", port, "mtu", self.mtu, "master", "bridge", "up", namespace=self.switch)
        ip("link", "set", "lo", "up", namespace=namespace)
        ip("link", "set", "eth0", "mtu", self.mtu, "up", namespace=namespace)
        ip("addr", "add", f"{address(index)}/16", "dev", "eth0", namespace=namespace)
        if shaped:
            # Old kernels refuse it; then the bucket itself cuts what is larger than it.
            ip("link", "set", "eth0", "gso_max_size", min(WHOLE_PACKET, int(0.9 * self.burst)),
               check=False, namespace=namespace)
            self.shape(namespace, "eth0")
            self.shape(self.switch, port)

    def build(self):
        """RuntimeError with the kernel's words if they cannot be made here."""
        heads = [self.head] if self.head else []
        for name in [self.switch, *heads, *self.ranks]:
            ip("netns", "add", name)
        ip("link", "add", "bridge", "type", "bridge", namespace=self.switch)
        ip("link", "set", "bridge", "mtu", self.mtu, "up", namespace=self.switch)
        for k, name in enumerate(self.ranks + heads):
            self.plug(name, k, shaped=self.bits is not None and name != self.head)

    def remove(self):
        remove(namespaces(self.run))

    def describe(self):
        """Of a rate: what shapes it."""
        return f"burst {self.burst} B, queue {self.queue} B, MTU {self.mtu}"


def namespaces(run=None):
    """Namespaces of one run (by pid), or of all."""
    start = PREFIX + (f"{run}-" if run else "")
    return sorted(p.name for p in NETNS.glob(start + "*")) if NETNS.exists() else []


def of_dead_runs():
    return [name for name in namespaces() if not alive(owner(name))]


def owner(namespace):
    return int(namespace[len(PREFIX):].split("-")[0])


def alive(pid):
    try:
        return b"lab" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def remove(names):
    """Processes first, then links, then namespaces; returns when the kernel has let go of them."""
    for name in names:
        for sig in (signal.SIGTERM, signal.SIGKILL):
            for pid in ip("netns", "pids", name, check=False).split():
                try:
                    os.kill(int(pid), signal.SIGCONT)
                    os.kill(int(pid), sig)
                except ProcessLookupError:
                    pass
            deadline = time.monotonic() + 1
            while ip("netns", "pids", name, check=False).split() and time.monotonic() < deadline:
                time.sleep(0.02)
    for name in names:  # deleting one end of a pair deletes the other
        for line in ip("-o", "link", "show", namespace=name, check=False).splitlines():
            link = line.split(":")[1].strip().split("@")[0]
            if link != "lo":
                ip("link", "del", link, namespace=name, check=False)
    for name in names:
        ip("netns", "del", name, check=False)
    deadline = time.monotonic() + 10
    while any((NETNS / name).exists() for name in names):
        if time.monotonic() > deadline:
            raise RuntimeError(f"could not remove {', '.join(names)}")
        time.sleep(0.02)


@contextlib.contextmanager
def cleaned_up():
    """An ExitStack whose callbacks run when the scope ends, also by a signal that ends programs
    (exit status 128 + its number), and are not interrupted by one."""

    def interrupted(number, _frame):
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, interrupted) for number in ENDING}
    try:
        with contextlib.ExitStack() as stack:
            try:
                yield stack
            finally:
                for number in ENDING:
                    signal.signal(number, signal.SIG_IGN)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end(process, patience_s=5):
    """Ends a process that may have ended: by SIGTERM, and by SIGKILL if it does not."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
