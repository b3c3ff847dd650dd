"""What a wrapped model is made of, looked at once a step: what came into it after it was
wrapped."""
import warnings

import torch

_NAMED = 3  # in one warning


def _listed(names):
    more = len(names) - _NAMED
    return ", ".join(f'"{n}"' for n in names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _same_layout(a, b):
    return (a.shape == b.shape and a.dtype == b.dtype and a.stride() == b.stride()
            and a.device == b.device)


def _copy(source, to):
    with torch.inference_mode(to.is_inference()), torch.no_grad():
        if to.is_inference():
            to.copy_(source)
            return
        # as DDP: a graph that is kept may hold the buffer
        with torch.autograd._unsafe_preserve_version_counter(to):
            to.copy_(source)


def _identities(tensors):
    return [(name, id(t)) for name, t in tensors]


class Members:
    """The parameters and buffers that are exchanged, and where the model has others.

    A step looks into the dictionaries of each module, 20 µs for a ResNet-18; the model is walked
    only when one of them has changed. Then parameters are those of the model as it is: layers may
    be replaced, added and removed. A buffer that a module has put another tensor in the place of
    (`self.mean = ...`) is exchanged in that place, as DDP does. Buffers that no checkpoint has
    (caches) and the parameters of a class derived from the wrapper are not exchanged if they came
    later, and are named once.
    """

    def __init__(self, who, model, ignored, follows_buffers):
        """`who`: in warnings. `follows_buffers`: else each rank keeps its own."""
        self._who, self._ignored, self._follows_buffers = who, ignored, follows_buffers
        self._named = set()
        self._take(*self._found(model.module))
        self._walk(model)

    def _found(self, module):
        return ([(n, p) for n, p in module.named_parameters() if n not in self._ignored], [(
            n, b) for n, b in module.named_buffers() if n not in self._ignored and b is not None])

    def _take(self, parameters, buffers):
        self.parameters, self.buffers = parameters, buffers  # (name, tensor) of what is exchanged
        self.exchanged = {id(p): n for n, p in parameters}
        self._replaced = []  # (held, what is in its place)

    def _walk(self, model):
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

    def look(self, model):
        """Takes up what the model is made of; whether others are exchanged from now on. `model`:
        the wrapper."""
        if not self._changed():
            return False
        self._walk(model)
        parameters, buffers = self._found(model.module)
        others = (_identities(parameters) != _identities(self.parameters)
                  or self._are_others(model.module, buffers))
        if others:
            self._take(parameters, buffers)
        self._name_new(model)
        self._find_replaced(model.module)
        return others

    def bring(self):
        """Before an exchange: what is in the place of buffers."""
        for held, now in self._replaced:
            _copy(now, held)

    def _are_others(self, module, buffers):
        """Whether buffers that a checkpoint has were added, removed or changed their layout.
        `buffers`: of now."""
        if not self._follows_buffers:
            return False
        passing = {f"{prefix}.{n}" if prefix else n for prefix, m in module.named_modules()
                   for n in getattr(m, "_non_persistent_buffers_set", ())}
        held, now = ({n: b for n, b in some if n not in passing}
                     for some in (self.buffers, buffers))
        return held.keys() != now.keys() or not all(_same_layout(held[n], now[n]) for n in held)

    def give_back(self):
        """After an exchange: buffers that were replaced get what came."""
        for held, now in self._replaced:
            _copy(held, now)

    def _name_new(self, model):
        inner = {id(p) for p in self.all}
        self._say("parameter", [n for n, p in model.named_parameters() if id(p) not in inner
                                and n not in self._ignored],  # a derived class's own
                  "neither its gradient nor its value is exchanged, and every rank has its own")

    def _find_replaced(self, module):
        if not self._follows_buffers:
            return
        now = dict(module.named_buffers(remove_duplicate=False))
        self._replaced, known = [], {id(b) for _, b in self.buffers}
        for name, held in self.buffers:
            at = now.get(name)
            if at is not None and at is not held and _same_layout(held, at):
                self._replaced.append((held, at))
                known.add(id(at))
        self._say("buffer",
                  [n for n, b in now.items() if id(b) not in known and n not in self._ignored],
                  "it is not broadcast, and every rank keeps its own")

    def _say(self, kind, names, what):
        names = [n for n in names if (kind, n) not in self._named]
        if not names:
            return
        self._named.update((kind, n) for n in names)
        warnings.warn(f"{self._who}: {kind} {_listed(names)} came into the model after it was "
                      f"wrapped, or took another's place: {what}. Wrap the model again to train it "
                      "on all ranks: dp.close(), then lt.DataParallel(model)", stacklevel=5)
