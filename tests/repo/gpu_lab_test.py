#!/usr/bin/env python3
"""tools/gpu-lab without a GPU: what is missing is named, what ranks are told, and that a job's ends
are seen. Programs and a torch that this machine lacks are scripts in a folder of the test's own;
tests/python_torch has the comparison itself.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import types
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPU_LAB = ROOT / "tools/gpu-lab"
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "bench/peers")]
import gpu_kit  # noqa: E402
import gpu_peers  # noqa: E402
import ratios  # noqa: E402
import shaped_links  # noqa: E402
from contenders import DDP, KAISA, ON_GPUS, SHAPED, UNSHAPED, Against, Contender  # noqa: E402

ONE_GPU = {"torch": "9.0+cu0", "cuda": "0", "nccl": True, "devices": ["a GPU"]}
TOLD = ('echo told $RANK $WORLD_SIZE $MASTER_ADDR p2p=$NCCL_P2P_DISABLE host=$NCCL_HOSTID '
        'share=$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE if=$NCCL_SOCKET_IFNAME')


class Bare(unittest.TestCase):
    """A machine with nothing but a shell, and what a test puts there."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.bin = pathlib.Path(folder.name)
        self.put("sh", link=shutil.which("sh"))

    def put(self, name, script="", link=None):
        path = self.bin / name
        if link:
            path.symlink_to(link)
        else:
            path.write_text(f"#!{shutil.which('sh')}\n{script}\n")
            path.chmod(0o755)
        return path

    def torch(self, answer=None, error=""):
        """A Python that knows a torch: what it answers to the probe."""
        return self.put("python", f"printf '%s\\n' '{json.dumps(answer)}'"
                        if answer else f"echo '{error}' >&2; exit 1")

    def lab(self, *arguments):
        done = subprocess.run([sys.executable, str(GPU_LAB), *arguments],
                              env={**os.environ, "PATH": str(self.bin)}, capture_output=True,
                              text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr


class MissingPieces(Bare):
    def without_device(self, python, *expected):
        for verb in (("check",), ("run", "--", "sh", "-c", "echo ran"), ("peers",),
                     ("kit", "--run")):
            status, out, err = self.lab(verb[0], "--python", str(python), *verb[1:])
            self.assertEqual((status, out), (77, ""), err)
            for words in expected:
                self.assertIn(words, err)

    def test_no_torch(self):
        self.without_device(self.torch(error="ModuleNotFoundError: No module named torch"),
                            "no torch:", "No module named torch")

    def test_a_torch_or_a_machine_that_lacks_something(self):
        for lacks, *expected in (
                ({"torch": "9.0+cpu", "cuda": None}, "torch without CUDA: 9.0+cpu", "--python"),
                ({"devices": []}, "no GPU:", "nvidia-smi"),
                ({"nccl": False}, "torch without NCCL:")):
            self.without_device(self.torch({**ONE_GPU, **lacks}), *expected)

    def test_programs_for_a_shared_gpu_on_shaped_links(self):
        status, _, err = self.lab("check", "--rate", SHAPED, "--python", str(self.torch(ONE_GPU)))
        self.assertEqual(status, 1, err)
        for words in ("no nvidia-cuda-mps-control: ranks take turns", "no ip: install iproute2",
                      "no tc: install iproute2", "no nsenter: install util-linux", "unshaped",
                      "2 ranks on 1 GPU(s), a GPU, taking turns, the machine's own links"):
            self.assertIn(words, err)

    def test_unshaped_links_need_no_tc(self):
        _, _, err = self.lab("check", "--python", str(self.torch(ONE_GPU)))
        self.assertIn("no ip:", err)
        self.assertNotIn("no tc:", err)

    def test_a_gpu_for_each_rank_needs_nothing(self):
        status, _, err = self.lab("check", "--python",
                                  str(self.torch({**ONE_GPU, "devices": ["a GPU"] * 2})))
        self.assertEqual((status, err),
                         (0, "gpu-lab: 2 ranks on 2 GPU(s), a GPU, the machine's own links\n"))

    def test_no_root(self):
        with mock.patch("os.geteuid", return_value=1000):
            self.assertEqual(shaped_links.missing_for_links()[0],
                             "no root: network namespaces need it; run as root")

    def test_a_rate_that_cannot_be_is_left_out_of_the_table(self):
        status, out, _ = self.lab("peers", "--device", "cpu", "--rates", SHAPED, "--python",
                                  str(self.torch(ONE_GPU)))
        self.assertEqual(status, 1)
        self.assertIn(f"resnet50, {SHAPED}: left out: no ", out)
        self.assertIn("no nsenter: install util-linux", out)

    @unittest.skipIf(os.geteuid() != 0, "needs root")
    def test_namespaces_that_the_kernel_refuses(self):
        self.put("ip", 'case "$1" in netns) echo "Operation not permitted" >&2; exit 1;; esac')
        for name in ("tc", "nsenter"):
            self.put(name)
        status, out, err = self.lab("run", "--device", "cpu", "--rate", SHAPED, "--", "sh", "-c",
                                    TOLD)
        self.assertEqual(status, 0, err)
        self.assertIn("no namespaces: the kernel refuses them here (ip netns add", err)
        self.assertIn("told 0 2 127.0.0.1", out)

    def test_mps_that_does_not_start(self):
        self.put("nvidia-cuda-mps-control", "echo not now >&2; exit 1")
        status, out, err = self.lab("run", "--python", str(self.torch(ONE_GPU)), "--", "sh", "-c",
                                    TOLD)
        self.assertEqual(status, 0, err)
        self.assertIn("no MPS: nvidia-cuda-mps-control -d ended with 1 (not now)", err)
        self.assertIn("share= ", out)


class Ranks(Bare):
    def test_that_share_a_gpu(self):
        mps = self.put("nvidia-cuda-mps-control",
                       f'[ "$1" = -d ] && echo "start $CUDA_MPS_PIPE_DIRECTORY" >>{self.bin}/log '
                       f'|| {{ read w; echo "$w" >>{self.bin}/log; }}')
        self.assertTrue(mps.exists())
        _, out, err = self.lab("run", "--python", str(self.torch(ONE_GPU)), "--", "sh", "-c", TOLD)
        self.assertIn("told 0 2 127.0.0.1 p2p=1 host=host0 share=50 if=lo", out, err)
        said = (self.bin / "log").read_text().split()
        self.assertEqual((said[0], said[-1]), ("start", "quit"))
        self.assertFalse(pathlib.Path(said[1]).exists(), "the server's folder is left")

    def test_with_a_gpu_each(self):
        _, out, _ = self.lab("run", "--python",
                             str(self.torch({**ONE_GPU, "devices": ["a GPU"] * 2})), "--", "sh",
                             "-c", TOLD)
        self.assertIn("told 0 2 127.0.0.1 p2p= host= share= if=\n", out)

    def test_that_fail_end_the_others(self):
        self.put("sleep", link=shutil.which("sleep"))
        status, _, err = self.lab("run", "--device", "cpu", "--", "sh", "-c",
                                  '[ $RANK = 0 ] && exec sleep 100; echo so it is; exit 3')
        self.assertEqual(status, 3)
        self.assertIn("rank 1 ended with 3:\nso it is", err)

    def test_that_do_not_end(self):
        self.put("sleep", link=shutil.which("sleep"))
        status, _, err = self.lab("run", "--device", "cpu", "--limit", "0.3", "--", "sleep", "100")
        self.assertEqual(status, 124)
        self.assertIn("no end after 0.3 s", err)

    def test_on_shaped_links(self):
        if shaped_links.missing_for_links("ip", "tc", "nsenter"):
            self.skipTest("no namespaces here")
        done = subprocess.run([sys.executable, str(GPU_LAB), "run", "--device", "cpu", "--rate",
                               "200Mbit/s", "--", "sh", "-c",
                               "echo at $MASTER_ADDR $GLOO_SOCKET_IFNAME; tc qdisc show dev eth0; "
                               "ip -o -4 addr show dev eth0"], capture_output=True, text=True)
        if "no namespaces" in done.stderr:
            self.skipTest(done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in ("at 10.97.0.1 eth0", "tbf", "rate 200Mbit", "10.97.0.1/16"):
            self.assertIn(words, done.stdout)
        self.assertEqual([n for n in shaped_links.namespaces()
                          if not shaped_links.alive(shaped_links.owner(n))], [])


class Calibration(Bare):
    """Of the device, by a command that says what it was asked for."""

    def calibrated(self, device="cuda", command="echo asked: $@", codecs=None, has_table=True,
                   limit=60):
        results = gpu_peers.Results(types.SimpleNamespace(out=self.bin / "out", add=False,
                                                          parts=gpu_peers.PARTS))
        results.out.mkdir()
        if has_table:
            (results.out / "table_un.csv").write_text("bytes,seconds,ranks,collective\n")
        linerate = self.put("linerate", command) if command else self.bin / "linerate"
        with mock.patch("builtins.print"):
            gpu_peers.calibrate(types.SimpleNamespace(device=device, codecs=codecs,
                                                      linerate=linerate, limit=limit,
                                                      python="/a/python"), results)
            results.write()
        document = json.loads((results.out / "results.json").read_text())
        return document["calibration"], (results.out / "table.txt").read_text(), results.out

    def test_is_of_all_codecs_and_of_kfac(self):
        found, text, out = self.calibrated()
        asked = (f"asked: calibrate --from {out}/table_un.csv --codecs --second-order --device "
                 f"cuda -o {out}/calibrated.json")
        self.assertEqual(found, {"device": "cuda", "exit": 0, "printed": [asked]})
        self.assertIn(f"calibrated on the device (cuda), one process:\n  {asked}\n", text)

    def test_is_of_the_codecs_that_are_named(self):
        self.assertIn("--codecs topk,qsgd --second-order", self.calibrated(codecs="topk,qsgd")[1])

    def test_on_processors_is_of_one_codec(self):
        self.assertIn("--codecs fp16 --second-order --device cpu", self.calibrated(device="cpu")[1])

    def test_that_fails_is_said_and_kept(self):
        found, text, _ = self.calibrated(command="echo error: device cuda: expected one; exit 5")
        self.assertEqual(found, {"device": "cuda", "exit": 5,
                                 "printed": ["error: device cuda: expected one"]})
        self.assertIn("not calibrated on the device:\n  error: device cuda: expected one\n  "
                      "LINERATE_PYTHON=/a/python make build builds", text)

    def test_that_hangs_is_ended(self):
        found, text, _ = self.calibrated(command=f"exec {shutil.which('sleep')} 60", limit=0.2)
        self.assertIsNone(found)
        self.assertIn("not calibrated on the device: no end after 0.2 s", text)

    def test_without_its_command_says_so(self):
        found, text, _ = self.calibrated(command=None)
        self.assertIsNone(found)
        self.assertIn("linerate is absent (make build builds it)", text)

    def test_without_a_table_says_so(self):
        self.assertIn("table_un.csv is absent (the unshaped job measures it)",
                      self.calibrated(has_table=False)[1])


def measured(**blocks):
    return {"blocks": blocks, "loss": None, "difference": None, "endured": 0, "plan": None,
            "trial": None}


class Kit(Bare):
    """How the stages of `kit --run` are supervised, by stages that are a shell's; what `kit`
    refuses."""

    def ran(self, *stages, minutes=1.0, only=None):
        """({stage: outcome}, what results.tgz has, exit status); a stage is (name, limit in
        seconds, script)."""
        made = [gpu_kit.Stage(name, limit, "what", lambda s, limit, script=script:
                                  ["sh", "-c", script]) for name, limit, script in stages]
        o = types.SimpleNamespace(out=self.bin / "out", archive=None,
                                  stages=only or [s.name for s in made], minutes=minutes, limits=1,
                                  device="cpu", model="m", ranks=2, kit=self.bin / "none",
                                  kaisa=None, python="python")
        with mock.patch.object(gpu_kit, "STAGES", made), mock.patch.multiple(
                gpu_kit, PATIENCE_S=0.3, LEAST_S=0.5), mock.patch("builtins.print"):
            status = gpu_kit.run(o, None, None)
        with tarfile.open(self.bin / "out/results.tgz") as packed:
            names = packed.getnames()
        return {s["name"]: s["outcome"].split(",")[0] for s in json.loads((
            self.bin / "out/kit-run.json").read_text())["stages"]}, names, status

    def test_a_stage_that_fails_does_not_stop_the_others_and_is_said(self):
        outcomes, packed, status = self.ran(("a", 20, "echo one; exit 3"), (
            "b", 20, f"echo two; [ -e {self.bin}/out/results.tgz ] && echo kept"))
        self.assertEqual((outcomes, status), ({"a": "failed with 3", "b": "done"}, 1))
        self.assertEqual(packed, ["a.txt", "b.txt", "kit-run.json"])
        self.assertEqual((self.bin / "out/b.txt").read_text(), "two\nkept\n")

    def test_a_stage_that_hangs_is_ended_with_all_that_it_started(self):
        outcomes, _, status = self.ran(
            ("a", 1, f"echo begun; trap '' TERM; (echo $$; exec {shutil.which('sleep')} 100) & "
                     f"{shutil.which('sleep')} 100"), ("b", 20, "true"))
        self.assertEqual((outcomes, status), ({"a": "no end after 1 s", "b": "done"}, 1))
        self.assertIn("begun", (self.bin / "out/a.txt").read_text())

    def test_stages_for_which_no_time_is_left_are_said(self):
        outcomes, _, status = self.ran(("a", 20, f"{shutil.which('sleep')} 2"), ("b", 20, "true"),
                                       minutes=3 / 60)
        self.assertEqual((outcomes, status), ({"a": "done", "b": "left out: no time"}, 1))

    def test_stages_are_picked_and_others_are_refused(self):
        self.assertEqual(self.ran(("a", 20, "true"), ("b", 20, "true"), only=["b"])[0],
                         {"b": "done"})
        with self.assertRaisesRegex(gpu_kit.Refused, "--stages: expected some of a b, found c"):
            self.ran(("a", 20, "true"), ("b", 20, "true"), only=["c"])

    def test_all_stages_together_keep_to_their_minutes(self):
        self.assertLessEqual(gpu_kit.MINUTES, 8.5)
        page = (ROOT / "docs/gpu-lab.md").read_text()
        for stage in gpu_kit.STAGES:
            self.assertIn(f"| `{stage.name}` | {stage.limit_s} |", page)

    def test_contenders_of_stages_are_those_with_bounds(self):
        plain, kfac = gpu_kit.bounded()
        stated = {name for name, c in ON_GPUS.items() if any(a.at_most for a in c.against)}
        self.assertLessEqual(stated, {*plain, *kfac})
        self.assertEqual((plain[0], kfac[:2]), (DDP, [DDP, KAISA]))

    def test_a_kit_that_is_too_large_is_refused(self):
        (self.bin / "kit/lib").mkdir(parents=True)
        for name, size in (("lib/a.so", 30), ("kit.json", 1)):
            with (self.bin / "kit" / name).open("wb") as file:
                file.truncate(size * 10**6)
        with mock.patch("builtins.print") as printed:
            gpu_kit.check_size(self.bin / "kit")
            self.assertIn("31.0 MB of at most 40", printed.call_args[0][0])
            with (self.bin / "kit/lib/b.so").open("wb") as file:
                file.truncate(35 * 10**6)
            with self.assertRaisesRegex(gpu_kit.Refused, "66.0 MB, expected at most 40; the "
                                                         "largest part is lib/b.so with 35.0 MB"):
                gpu_kit.check_size(self.bin / "kit")

    def test_another_torch_is_refused(self):
        python = self.put("python", "echo 3.11 2.13.0+cpu")
        status, out, err = self.lab("kit", "--python", str(python), "--kit", str(self.bin / "kit"))
        self.assertEqual((status, out), (1, ""))
        self.assertIn("expected Python 3.12 with torch 2.11.0+cu130, found 3.11 with 2.13.0+cpu; "
                      "--for-python 3.11 --torch 2.13.0+cpu makes a kit for that", err)
        self.assertFalse((self.bin / "kit").exists())

    def test_libraries_that_every_machine_with_torch_has_stay(self):
        self.put(
            "ldd", "printf '\\tlinux-vdso.so.1 (0x1)\\n\\tlibfmt.so.9 => /lib/x/libfmt.so.9 "
                   "(0x1)\\n\\tlibc.so.6 => /lib/x/libc.so.6 (0x1)\\n"
            "\\tlibc10.so => /a/torch/lib/libc10.so (0x1)\\n\\tlibcudart.so.13 => not found\\n'")
        with mock.patch.dict(os.environ, PATH=str(self.bin)):
            self.assertEqual(gpu_kit.libraries_of(["x"]), {"libfmt.so.9": "/lib/x/libfmt.so.9"})
        self.put("ldd", "printf '\\tlibhwy.so.1 => not found\\n'")
        with mock.patch.dict(os.environ, PATH=str(self.bin)), self.assertRaisesRegex(
                gpu_kit.Refused, "x needs libhwy.so.1, which is not here"):
            gpu_kit.libraries_of(["x"])


class Table(unittest.TestCase):
    CONTENDERS = {DDP: Contender(None),
                  "ours": Contender(None, (Against(DDP, {SHAPED: 0.5}),), exact=True)}

    def row(self, ours, rate=SHAPED, **more):
        rows = {DDP: measured(step=[1.0, 1.0, 2.0], processor=[1.0]),
                "ours": measured(step=ours, processor=[1.0]) | more}
        return ratios.rows_of({"rows": rows, "left_out": {}}, self.CONTENDERS, rate)[1]

    def test_ratios_are_those_of_rounds(self):
        (found,) = self.row([0.5, 0.4, 1.2])["ratios"]
        self.assertEqual((found["median"], found["least"], found["largest"]), (0.5, 0.4, 0.6))

    def test_verdicts(self):
        self.assertEqual([self.row(times)["ratios"][0]["verdict"]
                          for times in ([0.5, 0.4, 1.2], [0.6, 0.4, 1.2], [0.6, 0.7, 1.2])],
                         ["holds", "not told apart", "missed"])

    def test_bounds_are_of_a_rate_and_a_setup(self):
        for rate in (UNSHAPED, None):
            self.assertEqual(self.row([9.0, 9.0, 9.0], rate)["ratios"][0]["at_most"], None)

    def test_one_kind_of_step_may_be_compared(self):
        contenders = {KAISA: Contender(None, period=2),
                      "ours": Contender(None, (Against(KAISA, 0.6, "second_order"),), period=2)}
        rows = {KAISA: measured(step=[2.0], processor=[1.0], second_order=[4.0]),
                "ours": measured(step=[1.0], processor=[1.0], second_order=[2.0])}
        _, ours = ratios.rows_of({"rows": rows, "left_out": {}}, contenders, SHAPED)
        self.assertEqual((ours["ratios"][0]["median"], ours["second_order_s"]), (0.5, 2.0))
        self.assertIn("second-order steps 0.500 (0.500 to 0.500) of KAISA fraction 1, at most "
                      "0.60: holds", ratios.lines_of(ours)[0])

    def test_those_left_out_keep_their_place_and_reason(self):
        rows = ratios.rows_of({"rows": {"ours": measured(step=[1.0], processor=[1.0])},
                               "left_out": {DDP: ["not here", "why"]}}, self.CONTENDERS, SHAPED)
        self.assertEqual([r["status"] for r in rows], ["not here", "measured"])
        self.assertEqual(ratios.lines_of(rows[0]), [f"  {DDP:26} not here: why"])

    def test_weights_that_are_not_ddps_make_it_fail(self):
        rows = [self.row([1.0, 1.0, 1.0], difference=1e-9)]
        self.assertEqual(list(gpu_peers.unsound(rows, 2)), ["ours: weights are not DDP's"])
        self.assertEqual(list(gpu_peers.unsound(rows, 4)), [])
        self.assertEqual(list(gpu_peers.unsound([self.row([1.0, 1.0, 1.0], difference=1e-3)], 4)),
                         ["ours: weights are not DDP's"])
        self.assertEqual(list(gpu_peers.unsound([{"contender": "x", "status": "failed",
                                                  "reason": "why"}], 2)), ["x: why"])

    def test_bounds_are_those_of_the_page(self):
        stated = ["| "
                  f"{'the same, steps with inverses' if a.part == 'second_order' else f'`{name}`'} "
                  f"| `{a.of}` | {rate} | {bound:.2f} |" for name, c in ON_GPUS.items()
                  for a in c.against for rate, bound in (a.at_most or {}).items()]
        page = (ROOT / "docs/gpu-lab.md").read_text().splitlines()
        self.assertEqual([line for line in page
                          if " | unshaped | " in line or " | 10Gbit/s | " in line], stated)

    def test_rows_of_recordings(self):
        result = {"alone": [0.1, 0.3, 0.2], "rows": {DDP: measured(step=[0.4, 0.5])}}
        self.assertEqual(
            list(gpu_peers.measured_rows({"model": "m"}, SHAPED, result, 2)),
            [["m", 2, "alone", "", "200.000", "100.000", "300.000", 3],
             ["m", 2, gpu_peers.DDP_CONFIGURATION, "10G", "450.000", "400.000", "500.000", 2]])


if __name__ == "__main__":
    sys.exit(unittest.main())
