"""DataParallel: an nn.Module around the user's, as torch.nn.parallel.DistributedDataParallel is."""
import contextlib
import html
import json
import os
import sys
import time
import warnings

import torch

from . import _core, _graphs, _scaling, _world
from ._from_ddp import unknown_options, why_not_trainable
from ._kfac import KFAC
from ._members import Members
from ._optimizers import PartialStep, described, is_unscaled, steps_by_parameter
from ._pickling import settle_before_pickling

_RECORDED = 20  # steps


def _compiled_anything():
    """Whether torch.compile has made code in this process that reads weights past ATen's operators,
    or is about to."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is None:
        return False
    if dynamo.counters["stats"]["unique_graphs"] > 0 or dynamo.counters["frames"]["total"] > 0:
        return True
    return torch._C._dynamo.eval_frame.get_eval_frame_callback() not in (None, False)


class DataParallel(torch.nn.Module):
    """Trains `module` on all ranks of `process_group`. Every rank starts with rank 0's weights and
    buffers, and every step uses the mean of the ranks' gradients. The constructor is collective, as
    are step(), finish(), skip_step() and the two functions of the exchange state.

    `strategy`: a line of text (`linerate list strategies`). "auto" begins as "ddp". After
    `measured_steps` steps it takes the exchange whose step is predicted shortest. It plans again if
    steps depart from that prediction by more than `replan_above`.
    `most_above_ddp`: "dear", "optimal" and "mg-wfbp" are tried against "ddp" in the job's own
    steps. After the first step both run in turn, two blocks each of `measured_steps` and one more.
    "ddp" stays, with the same wire format and the same parts after +, if the strategy's steps are
    longer by more than this share. A warning, `str(dp)` and report() say so. float("inf") skips the
    trial; there is none with "auto" and K-FAC. The results differ only in the order of sums, on
    more than two ranks.
    `buffers`: "broadcast" (rank 0's after each step, as DDP does) or "keep".
    `cluster`: the JSON text of a calibration, for strategies that plan by cost. By default the
    group is probed. `loss_average`, `accumulate`, `skip` and `scaler`: as of lt.KFAC, for kfac(...)
    in the strategy. Its layers are found by themselves (`dp.kfac`).
    `record`: report() keeps this many steps, once the plan is final.
    `device_group`: the process group whose collectives move the parameters' memory. It has the
    ranks of `process_group`, and is that group itself if the parameters are not on the CPU. Then
    steps are enqueued, and recorded times are the device's. Under a compressor or K-FAC, gradients
    that are not finite count as zero, and `late_infinite` of a later report says so
    (docs/devices.md; not run on a GPU).
    """

    def __init__(self, module, strategy="ddp", *, process_group=None, buffers="broadcast",
                 cluster=None, measured_steps=5, replan_above=0.2, most_above_ddp=0.01, seed=0,
                 name="", record=_RECORDED, loss_average="batch", accumulate=None, skip=(),
                 scaler=None, device_group=None, **others):
        if others:
            raise TypeError(unknown_options(others))
        super().__init__()
        if buffers not in ("broadcast", "keep"):
            raise _core.UsageError(
                f"DataParallel: buffers=: expected \"broadcast\" or \"keep\", found {buffers!r}")
        if not isinstance(strategy, str):
            raise _core.UsageError("DataParallel: strategy=: expected a line of text such as "
                                   f"\"ddp\", found {strategy!r}")
        problem = why_not_trainable(module)
        if problem and not _world.has_ranks():
            raise _core.UsageError(f"DataParallel: {problem}")
        self._world = _world.world_of(process_group)
        _settle_all()  # weights are read past operators
        self._world.require_no_problem("DataParallel", problem)  # on every rank, whichever has it
        self._world.require_same("DataParallel: options",
                                 [f"record={bool(record)}", f"seed={seed}",
                                  f"loss_average={loss_average}", f"accumulate={accumulate}",
                                  f"skip={sorted(skip)}"])
        self.module = module
        self.strategy = strategy
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        self._members = Members(f'DataParallel "{name}"' if name else "DataParallel", self, ignored,
                                buffers == "broadcast")
        parameters, held = self._members.parameters, self._members.buffers
        if (device_group is None
            and any(p.device.type not in ("cpu", "meta") for _, p in parameters)):
            device_group = _world.group_of(process_group)
        if device_group is not None:
            _world.hurry(process_group)
            for place in {p.device for _, p in parameters}:
                _world.note_priority(device_group, place)
        self.kfac = (KFAC(module, strategy, loss_average=loss_average, accumulate=accumulate,
                          skip=skip, seed=seed, scaler=scaler,
                          _shared=True)
                     if _core.preconditions(strategy) else None)
        self._scaler = scaler
        self.keeps_units = _core.compresses(strategy)  # of the loss, between steps
        self._core = _core.Parallel(
            parameters, held, self._world, strategy, buffer_policy=buffers, cluster=cluster,
            measured_steps=measured_steps, replan_above=replan_above,
            most_above_ddp=float(most_above_ddp), seed=seed, name=name, records=bool(record),
            kfac=self.kfac and self.kfac._core,
            device_group="" if device_group is None else device_group.group_name)
        # Moments of the recorder: nanoseconds, or what stands for a device's.
        self._record, self._recorded, self._steps, self._start = record, 0, 0, None
        self._recording, self._computed, self._ended_at = False, None, None
        self._enqueues = device_group is not None
        # parts: seconds of forward, backward, what is outside, and the step with its exchange, by
        # recorded step; if those are the host's
        self._plans, self._parts = 0, []
        self._forward_ns = self._backward_ns = 0
        self._join, self._problem = None, ""
        self._said_compiled = False
        self.last_report = None
        _world.keep(self)

    # nn.Module

    def forward(self, *inputs, **options):
        self._before_forward()
        if not self._recording or not torch.is_grad_enabled():
            return self.module(*inputs, **options)
        start = self._note_backward()
        result = self.module(*inputs, **options)
        self._computed = self._core.moment()
        self._core.add_compute(False, start, self._computed)
        self._forward_ns += self._computed - start
        return result

    def _note_backward(self):
        """What follows a recorded forward pass, until the next or until the gradients are needed:
        loss and backward pass."""
        now = self._core.moment()
        if self._computed is not None:
            self._core.add_compute(True, self._computed, now)
            self._backward_ns += now - self._computed
            self._computed = None
        return now

    def _before_forward(self):
        core = self._core
        if self._start is None:
            self._start = self._core.moment()
        unseen = "compiled code" if _compiled_anything() else "a graph" if _graphs.exist() else None
        if unseen and core.updates_pending():
            if not self._said_compiled:
                self._said_compiled = True
                warnings.warn(f"DataParallel: strategy {self.strategy}: {unseen} reads weights "
                              "unseen, so updates are done before each forward pass: results are "
                              "right, the exchange does not overlap with it", stacklevel=3)
            self.settle()
        if torch.is_grad_enabled():
            core.renew_hooks()
            if self._join is not None and self.training:
                self._join.announce()

    def state_dict(self, *arguments, **options):
        self.settle()
        return super().state_dict(*arguments, **options)

    def load_state_dict(self, *arguments, **options):
        self.settle()
        return super().load_state_dict(*arguments, **options)

    def _apply(self, fn, recurse=True):
        self.settle()
        return super()._apply(fn, recurse)

    # Steps

    def finish(self):
        """Waits until every gradient is the mean over the ranks. Call it once a step, after
        backward() and before anything reads gradients (clipping, the optimizer).
        """
        self._refuse_capture("finish()")
        scaler = self._tell_scale()
        # A plain backward pass with an optimizer's own step() may follow one that was scaled: then
        # .grad is undefined, as without a scaler.
        hears = (_scaling.is_scaling(scaler)
                 and (self._core.knows_loss_scale() or not self._core.gradients_came()))
        report = self._exchange()
        if hears and (report.infinite or report.late_infinite):
            self._spoil()
        return report

    def _exchange(self):
        self._note_backward()
        self._follow()
        report = self._ended(self._core.finish())
        self._members.give_back()
        return report

    def _tell_scale(self):
        """The scaler whose scale the step's gradients have: that of their backward pass; without
        one, the last that there was."""
        seen = _scaling.scaler_of(self._core.scaler_seen())
        scaler = self._scaler if seen is None else seen
        if scaler is not None and not self._core.knows_loss_scale():
            self._core.set_loss_scale(scaler.get_scale() if _scaling.is_scaling(scaler) else None)
        return scaler

    def forget_cleared_scale(self):
        """Another scaled backward pass begins."""
        if self._core.is_open() and self._core.gradients_came():
            self._core.forget_cleared_scale()

    def _spoil(self):
        """Gradients were thrown away, or under K-FAC those of a step before taken for zero:
        whichever optimizer a scaler steps, it has to hear of it."""
        for p in self._members.all:
            if p.requires_grad and id(p) in self._members.exchanged:
                p.grad = torch.full_like(p, float("inf"))

    def step(self, optimizer, *, scaler=None, closure=None):
        """Calls finish() and the optimizer's step, in the strategy's order. Afterwards .grad is
        None. With "dear" a weight is updated just before it is next used. `scaler`: a
        torch.amp.GradScaler, which is stepped and updated too. `closure`: for optimizers that
        compute gradients themselves, such as LBFGS.
        """
        self._refuse_capture("step()")
        scaled = _scaling.is_scaling(scaler)
        self._require_steppable(optimizer, scaler if scaled else None, closure)
        if closure is not None:
            return self._step_with(optimizer, closure)
        self._expect(optimizer)
        if scaled:
            return self._step_scaled(optimizer, scaler)
        if self.kfac is not None:
            self.kfac.take_rate(optimizer)
        if not self._core.knows_loss_scale():
            self._core.set_loss_scale(None)  # nobody unscales what this step exchanges
        if self._core.gradients_may_follow() and steps_by_parameter(optimizer):
            self._note_backward()
            self._follow()
            report = self._ended(self._core.step_in_parts(PartialStep(optimizer)))
            self._members.give_back()
            self._discard()  # of parameters that are not exchanged, too
            return report
        report = self._exchange()
        if not report.infinite:
            self._precondition()
            optimizer.step()
        self._discard()
        return report

    def _refuse_capture(self, act):
        _graphs.refuse_capture(f"DataParallel: step {self._steps}: {act}")

    def _look_at_module(self):
        if self._members.look(self):
            self._problem = why_not_trainable(self.module)
            self._core.set_tensors(self._members.parameters, self._members.buffers)

    def _follow(self):
        """Before an exchange: layers may have been replaced, added or removed."""
        self._look_at_module()
        if self._problem:
            self._core.refuse_step(self._problem)
        self._members.bring()

    def _require_steppable(self, optimizer, scaler, closure):
        """Before anything is exchanged: what would end in other weights than DDP's."""
        why = None
        if not callable(getattr(optimizer, "step", None)):
            why = (f"expected an optimizer, found {type(optimizer).__name__}; with several: "
                   "finish(), then step() and zero_grad() of each")
        elif closure is not None and (scaler is not None or self.kfac is not None):
            why = ("closure= computes gradients that "
                   f"{'a scaler' if scaler is not None else 'K-FAC'} does not see: leave it out")
        elif scaler is not None and is_unscaled(scaler, optimizer) and self._core.gradients_came():
            why = ("scaler.unscale_() saw this rank's gradients before they were exchanged: call "
                   "finish() first, then scaler.unscale_(), clip, scaler.step(), scaler.update() "
                   "and zero_grad()")
        else:
            why = self._gradients_of_others(optimizer)
        if why:
            raise _core.UsageError(f"DataParallel: step {self._steps}: {why}")

    def _expect(self, optimizer):
        """The optimizer's turn comes next: if it does not fit, finish() raises on every rank."""
        name, identity, holds, steps_by = described(optimizer)
        if not any(id(p) in self._members.exchanged for p in holds):
            of_model = {id(p) for p in self.module.parameters()}
            if any(id(p) in of_model for p in holds):
                holds = []  # of those that each rank has for itself: nothing is known of it
        for doubt in self._core.expect(name, identity, holds, steps_by):
            warnings.warn(doubt, stacklevel=4)

    def _gradients_of_others(self, optimizer):
        """Why not, if the optimizer would take gradients that another DataParallel has not
        exchanged yet; None if not."""
        others = [dp for dp in _world.kept(DataParallel)
                  if dp is not self and dp._core.gradients_came()]
        if not others:
            return None
        for group in getattr(optimizer, "param_groups", ()):
            for p in group["params"]:
                for other in others:
                    if (p.grad is not None and id(p) not in self._members.exchanged
                        and id(p) in other._members.exchanged):
                        return (
                            f"the optimizer also steps \"{other._members.exchanged[id(p)]}\" of "
                            "another DataParallel, whose gradients are not exchanged yet: call "
                            "finish() of both, then the optimizer's step() and zero_grad()")
        return None

    def _precondition(self):
        if self.kfac is not None:
            self.kfac_step = self.kfac._core.step()

    def _step_scaled(self, optimizer, scaler):
        if self.kfac is not None:
            self.kfac.take_rate(optimizer)
            self.kfac._require(scaler, "DataParallel")
        if not self._core.knows_loss_scale():
            self._core.set_loss_scale(scaler.get_scale())
        report = self._exchange()
        if not report.infinite:
            self._precondition()
        if (report.infinite or report.late_infinite
            or (self.kfac is not None and self.kfac_step.skipped)):
            self._spoil()
        scaler.step(optimizer)
        scaler.update()
        self._discard()
        return report

    def _step_with(self, optimizer, closure):
        report = None

        def exchanged():
            nonlocal report
            loss = closure()
            self._expect(optimizer)
            report = self.finish()
            return loss

        self.settle()
        optimizer.step(exchanged)
        self._discard()
        return report

    def _discard(self):
        for p in self._members.all:
            if p.requires_grad:
                p.grad = None

    def skip_step(self):
        """Instead of finish(), on every rank: throws the step's gradients away."""
        self._refuse_capture("skip_step()")
        self._core.skip_step()
        self._start = None

    def settle(self):
        """Does the updates that wait for their weights' next use. Call it before weights are read
        without PyTorch's operators, and before they are captured into a graph.
        """
        if self._core.updates_pending():
            self._refuse_capture("settle()")
        self._core.settle()

    def set_batch(self, samples):
        """Says how many samples this rank's batch has; its gradients weigh accordingly. Call it
        before backward(), on every rank in a step or on none.
        """
        self._refuse_capture("set_batch()")
        self._core.set_batch(int(samples))

    @contextlib.contextmanager
    def no_sync(self):
        """Backward passes inside only accumulate; the first outside exchanges the sum."""
        self._core.enter_no_sync()
        try:
            yield
        finally:
            self._core.exit_no_sync()

    def refuse_step(self, reason):
        """This rank cannot finish the step: finish() raises this reason on every rank."""
        self._core.refuse_step(str(reason))

    def require_same_weights(self, what="weights"):
        """Raises CommError on every rank if any bit of the model as it is now differs.
        Collective."""
        self._look_at_module()
        self._core.require_same_weights(what)

    # What it knows

    @property
    def plan_is_final(self):
        return self._core.plan_is_final()

    @property
    def plan_number(self):
        """Plans made from measured steps so far, with "auto" and K-FAC."""
        return self._core.measured_plans()

    def plan(self):
        """The Plan in force, as the JSON document."""
        return json.loads(self._core.plan_json())

    def workload(self):
        """What the run has measured of its gradients, as the JSON document."""
        return json.loads(self._core.workload_json())

    @property
    def trial(self):
        """What the trial against "ddp" has found (`most_above_ddp`), in words; empty before, and if
        there is none."""
        return self._core.trial_in_words()

    def extra_repr(self):
        if not self._core.is_open():
            return f"strategy={self.strategy!r}, closed"
        now = self._core.strategy()
        return f"strategy={self.strategy!r}" + (f", now {now!r}" if now != self.strategy
                                                else "") + (f"\n{self.trial}" if self.trial else "")

    def report(self):
        """The recorded Timeline of all ranks. Collective."""
        return Report(self._core.timeline_json(), self._world.rank, self._core.strategy(),
                      self.trial)

    def advise(self, *, ranks=None, bandwidth=None, strategy=(), framework=None, steps_to_target=(),
               least_gain=0.02, codecs=False, budget=3.0):
        """Says what to change in this script, after some measured steps. Returns an Advice. It
        comes from the times of the recorded steps and a calibration of the live group, which is
        measured once in a program, in about `budget` seconds. Collective.

        `codecs`: also time compressors, which takes some seconds more. By default their cost is
        that of another machine. The other options are those of `linerate advise`: `ranks` and
        `bandwidth` ("10Gbit/s") of another job, strategies to consider next to those that are
        searched, the steps that they take relative to an uncompressed run ("topk=1.1"), and the
        least gain that is worth a change. framework="pytorch" considers only what
        DistributedDataParallel can do, in its words. If the measured step and its prediction
        disagree, nothing is advised as certain. A strategy that lost its trial against "ddp"
        (`most_above_ddp`) is not advised.
        """
        from ._advice import advise
        return advise(self, ranks, bandwidth, strategy, framework, steps_to_target, least_gain,
                      codecs, float(budget))

    def _ended(self, report):
        self.last_report = report
        now = self._core.moment()
        start = now if self._start is None else self._start
        if self._recording:
            self._core.add_step(self._steps, start, now, report.variant)
            self._recorded += 1
            if not self._enqueues:
                self._parts.append((max(self._forward_ns * 1e-9 - report.held_s, 0.0),
                                    self._backward_ns * 1e-9, max(start - self._ended_at, 0) * 1e-9,
                                    (now - min(start, self._ended_at)) * 1e-9))
        self._forward_ns = self._backward_ns = 0
        self._ended_at = now
        self._steps += 1
        self._start = None
        plans = self._core.measured_plans()
        if plans != self._plans:  # what was recorded is of another plan
            self._plans, self._recorded, self._parts = plans, 0, []
            self._core.forget_recorded()
        self._recording = (self._recorded < self._record
                           and (plans > 0 or self._core.plan_is_final()))
        self._core.record(self._recording)
        self._core.begin_recorded_step(self._steps)
        return report

    # State for a checkpoint

    def exchange_state(self):
        """The state of the exchange between steps, of all ranks, for a checkpoint. Any number of
        ranks may load it. Collective.
        """
        return {"format": 1, "strategy": self.strategy, "steps": self._steps,
                "compression": self._core.compression_state(),
                "curvature": [] if self.kfac is None else self._core.curvature_state()}

    def load_exchange_state(self, state):
        """Loads what exchange_state() returned. Collective."""
        if state.get("format") != 1:
            raise _core.InputError(
                f"exchange state: expected format 1, found {state.get('format')!r}")
        # what is owed goes on under any strategy
        self.keeps_units = self.keeps_units or bool(state["compression"])
        self._core.load_compression_state(state["compression"], "exchange state")
        if state.get("curvature"):
            self._core.load_curvature_state(state["curvature"])
        self._steps = state["steps"]

    def join(self, divide_by_initial_world_size=True):
        """A scope for ranks with unequal numbers of batches. A rank that has left it takes part in
        the steps of the others without gradients of its own. At the end it gets the weights of a
        rank that was there last. Collective.
        """
        from ._join import Join
        return Join(self, divide_by_initial_world_size)

    def close(self):
        """Removes the hooks. The module stays as it is."""
        self._core.close()
        _world.forget(self)

    def __reduce_ex__(self, protocol):
        raise _core.UsageError(
            "DataParallel: it cannot be copied or pickled, since ranks step it together: copy or "
            "save dp.module, and dp.exchange_state() for what the exchange remembers")


def _settle_all():
    for dp in _world.kept(DataParallel):
        if dp._core.updates_pending():
            dp.settle()


settle_before_pickling(_settle_all)
_graphs.settle_before_graphs(_settle_all)


class Report:
    """A recorded Timeline: rank 0 has it, other ranks an empty one. `strategy`: that of the plan in
    force, with "auto" the one chosen. `trial`: DataParallel.trial."""

    def __init__(self, text, rank, strategy, trial):
        self._text, self._rank = text, rank
        self.strategy, self.trial = strategy, trial

    def to_json(self):
        return self._text

    def __repr__(self):
        return (f"<linerate.torch.Report {self.strategy}: "
                f"{'recorded steps of all ranks' if self._text else 'rank 0 has it'}>")

    def _repr_html_(self):
        return f"<pre>{html.escape(repr(self))}</pre>"

    def save(self, path):
        """Writes it on rank 0, for linerate explain, compare and report. A reader sees the old file
        or the new one, never a part."""
        if self._rank == 0:
            _core.save_timeline(self._text, os.fspath(path))
