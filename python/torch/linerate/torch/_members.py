"""What a wrapped model is made of, looked at once a step: what came into it after it was wrapped."""
import warnings

import torch

_NAMED = 3  # in one warning


def _listed(names):
    more = len(names) - _NAMED
    return ", ".join(f'"{n}"' for n in names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _same_layout(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and a.stride() == b.stride() and a.device == b.device


def _copy(source, to):
    with torch.inference_mode(to.is_inference()), torch.no_grad():
        if to.is_inference():
            to.copy_(source)
            return
        with torch.autograd._unsafe_preserve_version_counter(to):  # as DDP: a graph that is kept may hold the buffer
            to.copy_(source)


class Members:
    """The parameters and buffers that are exchanged, and where the model has others.

    A step looks into the dictionaries of each module, 20 µs for a ResNet-18; the model is walked only when one of them has changed. A
    buffer that a module has put another tensor in the place of (`self.mean = ...`) is exchanged in that place, as DDP does; parameters and
    buffers that came later are not exchanged, as DDP does not, and are named once.
    """

    def __init__(self, who, model, ignored, parameters, buffers):
        """`who`: in warnings. `parameters`, `buffers`: (name, tensor) of what is exchanged; `buffers` is None if each rank keeps its own."""
        self._who, self._ignored = who, ignored
        self.exchanged = {id(p): n for n, p in parameters}
        self._held = parameters  # an address is not another's as long as its tensor lives
        self._buffers = buffers
        self._replaced = []  # (held, what is in its place)
        self._named = set()
        self._look(model)

    def _look(self, model):
        places, sizes = [], []
        for module in model.modules():
            for kind in ("_parameters", "_buffers", "_modules"):
                entries = module.__dict__.get(kind)
                if isinstance(entries, dict):  # a ScriptModule's is none
                    sizes.append((entries, len(entries)))
                    places += [(entries, name, held) for name, held in entries.items()]
        self._places, self._sizes = places, sizes
        self.all = list(model.module.parameters())  # those that are not exchanged, too

    def _changed(self):
        for entries, size in self._sizes:
            if len(entries) != size:
                return True
        for entries, name, held in self._places:
            if entries.get(name) is not held:
                return True
        return False

    def follow(self, model):
        """Before an exchange. `model`: the wrapper."""
        if self._changed():
            self._look(model)
            self._name_new(model)
            self._find_replaced(model.module)
        for held, now in self._replaced:
            _copy(now, held)

    def give_back(self):
        """After an exchange: buffers that were replaced get what came."""
        for held, now in self._replaced:
            _copy(held, now)

    def _name_new(self, model):
        found = list(model.module.named_parameters())
        inner = {id(p) for _, p in found}
        found += [(n, p) for n, p in model.named_parameters() if id(p) not in inner]  # a derived class's own
        self._say("parameter", [n for n, p in found if id(p) not in self.exchanged and n not in self._ignored],
                  "neither its gradient nor its value is exchanged, and every rank has its own")

    def _find_replaced(self, module):
        if self._buffers is None:
            return
        now = dict(module.named_buffers(remove_duplicate=False))
        self._replaced, known = [], {id(b) for _, b in self._buffers}
        for name, held in self._buffers:
            at = now.get(name)
            if at is not None and at is not held and _same_layout(held, at):
                self._replaced.append((held, at))
                known.add(id(at))
        self._say("buffer", [n for n, b in now.items() if id(b) not in known and n not in self._ignored],
                  "it is not broadcast, and every rank keeps its own")

    def _say(self, kind, names, what):
        names = [n for n in names if (kind, n) not in self._named]
        if not names:
            return
        self._named.update((kind, n) for n in names)
        warnings.warn(f"{self._who}: {kind} {_listed(names)} came into the model after it was wrapped, or took another's place: {what}. "
                      "Wrap the model again to train it on all ranks: dp.close(), then lt.DataParallel(model)", stacklevel=5)
