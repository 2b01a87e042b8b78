"""Quantization-aware training on the exported graph, the same for every runtime.

Batch norms are folded into the convolutions before them: their statistics stay as they are. Ranges are calibrated as static
int8's, anew at each epoch. Every step sees weights and activations rounded as the int8 file will round them, and gradients
pass straight through. What comes of it are float weights; every runtime quantizes them its own way.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Dim, Model, Warn
from edgesdk.data import Sample, Store
from edgesdk.errors import InputError, missing_library
from edgesdk.quantize import _kept
from edgesdk.quantize._goal import Goal, choose_goal
from edgesdk.quantize._pt2e import _calibrate as calibrate
from edgesdk.quantize._pt2e import _graph as graphs
from edgesdk.quantize._pt2e._annotate import Wishes, quantizer
from edgesdk.quantize._pt2e._finite import LARGEST
from edgesdk.quantize._pt2e._norms import fold_norms
from edgesdk.quantize._pt2e._sites import path_of
from edgesdk.quantize._pt2e._widen import widen
from edgesdk.quantize.qat_int8 import QatInt8
from edgesdk.quantize.static_int8 import StaticInt8

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule

    from edgesdk.runtimes._base import LowerConfig

Report = Callable[[str], None]

JUDGED = 512
"""Samples that the table of stages is computed on, at most."""
LOOKED_AT = 32
"""Samples whose outputs tell what they are: scores, probabilities or their logarithms."""


@dataclass(frozen=True)
class Stages:
    """The same metric after each stage (pitfall Q-13); the lowered file's is the guard's to measure."""

    metric: str
    samples: int
    float_: float
    fake_quantized: float
    converted: float

    def __str__(self) -> str:
        return (
            f"{self.metric} on {self.samples} of the training samples: float {self.float_:.4g}, fake-quantized "
            f"{self.fake_quantized:.4g}, converted {self.converted:.4g}"
        )


def fine_tune(model: Model, config: LowerConfig, report: Report | None = None) -> Model:
    """``model`` with float weights that bear int8 better, batch norms folded; for every runtime's own static int8.

    Args:
        config: ``quantization`` is ``qat-int8``; ``calibration`` a store whose samples carry labels.
        report: is told the loss once an epoch.

    Raises:
        InputError: samples or labels are missing or don't fit an output, or the first step gave no finite number.
        MissingToolError: torchao or executorch is not installed.
    """
    for library in ("torchao", "executorch"):
        if importlib.util.find_spec(library) is None:
            raise missing_library(library, "executorch", "quantization-aware training")
    place = _kept.place_of(model, config)
    with graphs.quiet(), _kept.one_at_a_time(place):
        trainer = Trainer(model, config)
        kept = _kept.read(place)
        if kept is None:
            kept = _trained(trainer, report)
            _kept.write(place, kept)
        else:
            trainer.load(kept["state"])
        trainer.finish()
        stages = Stages(**kept["stages"])
        stopped = (Warn(**kept["stopped"]),) if kept["stopped"] else ()
        warnings = (*model.warnings, Warn("qat_stages", f"{stages}."), *stopped)
        return replace(
            model, program=trainer.float_program(), module=None, script=None, onnx=None, no_program=None,
            warnings=warnings,
        )  # fmt: skip


def _trained(trainer: Trainer, report: Report | None) -> dict[str, Any]:
    """Train to the end; the state then, and the metric at each stage."""
    before = trainer.judge(trainer.prepared, rounded=False)
    stopped = trainer.train(report)
    state = trainer.state()
    trainer.finish()
    after = trainer.judge(trainer.prepared, rounded=True)
    converted = trainer.judge(trainer.converted(), rounded=True)
    stages = {
        "metric": trainer.goal.metric, "samples": min(len(trainer.store), JUDGED),
        "float_": before, "fake_quantized": after, "converted": converted,
    }  # fmt: skip
    return {"state": state, "stages": stages, "stopped": stopped.to_json() if stopped else None}


def labelled(config: LowerConfig) -> Store:
    """The store of training samples.

    Raises:
        InputError: it is missing or empty, or its samples carry no labels.
    """
    store = calibrate.opened(config.calibration)
    if not store.labelled:
        raise InputError(
            "no_labels", "qat-int8 trains, and the calibration samples carry no labels.",
            why="Training needs to know what each sample should give.",
            fix="Give an .npz with an array 'label', or a folder with one sub-folder for each class; or use static-int8.",
        )  # fmt: skip
    return store


class Trainer:
    """Trains one net; :meth:`state` and :meth:`load` allow to stop and to go on as if nothing had happened (Q-11)."""

    def __init__(self, model: Model, config: LowerConfig) -> None:
        from edgesdk.quantize import find

        self._model, self._seed = model, config.seed
        scheme = find(config.quantization, config.options)
        if not isinstance(scheme, QatInt8):
            raise TypeError(f"{config.quantization} does not train")
        self._scheme = scheme
        self.store = labelled(config)
        self._count = min(len(self.store), self._scheme.samples)
        self._wishes = Wishes(
            mode="qat", per_channel=self._scheme.per_channel, observer=self._scheme.observer,
            keep=frozenset(config.keep_float),
        )  # fmt: skip
        self._program, self._device = _placed(model.program)
        self._prepare()
        self.goal = self._goal()
        self._calibrate()
        self._parameters = [p for p in self.prepared.parameters() if p.is_floating_point()]
        self._optimizer = _adam(self._parameters, self._scheme.learning_rate)
        self._batch = self._stacked(_stackable(model, self.store, self._scheme.batch))
        self.step = 0

    # -- the graph -----------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e

        module = _folded(graphs.module_of(self._program), self._wishes)
        self._state = {name: graphs.attribute(module, name).clone() for name in graphs.written_buffers(module)}
        self._original = graphs.module_of(self._program)
        chosen, self.record = quantizer(self._wishes)
        self.prepared: Any = prepare_qat_pt2e(graphs.detached(module), chosen)
        if not any(site.weight is not None for site in self.record.quantized):
            from edgesdk.quantize._pt2e._layers import nothing_quantized

            raise nothing_quantized("qat-int8", self.record.sites, self.record.why, "--quantize weight-int8")
        activations = [fake for fake in _fakes(self.prepared) if not _of_weights(fake)]
        self._observers = [(fake, copy.deepcopy(fake.activation_post_process)) for fake in activations]
        for parameter in self.prepared.parameters():
            parameter.requires_grad_(parameter.is_floating_point())

    def _goal(self) -> Goal:
        import torch

        _switch(self.prepared, observing=False, rounding=False)
        samples = list(self.store.first(LOOKED_AT))
        with torch.no_grad():
            outputs = [self._outputs(self.prepared, [sample]) for sample in samples]
        labels = [self._label([sample]) for sample in samples]
        goal = choose_goal(outputs, labels, [spec.name for spec in self._model.signature.outputs])
        for sample in self.store.first(self._count):
            wrong = goal.refuses(outputs[0], self._label([sample]))
            if wrong:
                raise InputError(
                    "label_out_of_range", f"{sample.where}: the label is {wrong}.",
                    why="Labels are class numbers counted from 0.", fix="Correct the labels, or use static-int8.",
                )  # fmt: skip
        return goal

    def _stacked(self, wanted: int) -> int:
        """``wanted``, or 1 where the first size is no batch: two sequences would become one, and give one answer."""
        import torch

        if wanted == 1 or len(self.store) == 1:
            return wanted
        samples = [self.store[0], self.store[1]]
        _switch(self.prepared, observing=False, rounding=False)
        with torch.no_grad():
            rows = [self._outputs(self.prepared, one)[self.goal.index].numel() for one in (samples[:1], samples)]
        _switch(self.prepared, observing=True, rounding=True)
        return wanted if rows[1] == 2 * rows[0] else 1

    def _calibrate(self) -> None:
        """Take the ranges of activations from the unrounded net, as static int8 does; training will name a bad sample."""
        import torch

        _switch(self.prepared, observing=False, rounding=False)
        for fake, fresh in self._observers:
            fake.activation_post_process = copy.deepcopy(fresh)
        hooks = [fake.register_forward_pre_hook(_see) for fake, _ in self._observers]
        with torch.no_grad():
            for sample in self.store.first(min(StaticInt8.samples, self._count)):
                self._outputs(self.prepared, [sample])
        for hook in hooks:
            hook.remove()
        calibrate.fixed_values(self.prepared)
        calibrate.check_observers(self.prepared, self.record.quantized)
        for fake, _ in self._observers:
            scale, zero_point = fake.calculate_qparams()
            fake.scale.copy_(scale)
            fake.zero_point.copy_(zero_point)
        _switch(self.prepared, observing=True, rounding=True)

    def finish(self) -> None:
        """Move to the CPU, and take the ranges of the final weights."""
        self.prepared.to("cpu")
        self._device = "cpu"
        _switch(self.prepared, observing=True, rounding=True)
        calibrate.fixed_values(self.prepared)
        _switch(self.prepared, observing=False, rounding=True)
        if self._program is not self._model.program:
            self._program = self._model.program

    def converted(self) -> GraphModule:
        """A converted copy; the graph itself stays as it is."""
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

        made: GraphModule = convert_pt2e(graphs.detached(self.prepared))
        return made

    def float_program(self) -> Any:
        """The program with the tuned weights, batch norms folded, nothing quantized."""
        import torch

        program: Any = self._model.program
        module = _folded(graphs.module_of(program), replace(self._wishes, mode="static"), wide=False)
        tuned = dict(self.prepared.named_parameters())
        for name, old in list(module.named_parameters()):
            if name in tuned:
                owner, _, leaf = name.rpartition(".")
                value = tuned[name].detach().cpu().reshape(old.shape).clone()
                setattr(module.get_submodule(owner), leaf, torch.nn.Parameter(value, requires_grad=False))
        return graphs.exported(module, program)

    # -- training ------------------------------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """Steps of the whole training."""
        return int(self._scheme.epochs * math.ceil(self._count / self._scheme.batch))

    def train(self, report: Report | None = None, until: int | None = None) -> Warn | None:
        """Go on to step ``until``, or to the end.

        Returns:
            a warning when a step gave no finite number: training stopped there, with the weights before it (Q-10).
        """
        per_epoch = math.ceil(self._count / self._scheme.batch)
        total, last = 0.0, self.steps if until is None else until
        while self.step < last:
            epoch, place = divmod(self.step, per_epoch)
            if epoch and not place:
                self._calibrate()
            chosen = self._order(epoch)[place * self._scheme.batch : (place + 1) * self._scheme.batch]
            loss = self._one_step([self.store[int(i)] for i in chosen])
            if isinstance(loss, Warn):
                return loss
            total += loss
            self.step += 1
            if report and self.step % per_epoch == 0:
                report(f"epoch {epoch + 1} of {self._scheme.epochs}: {self._loss_name} {total / per_epoch:.4g}")
                total = 0.0
        if self.step == self.steps:
            self._calibrate()
        return None

    def state(self) -> dict[str, Any]:
        """Everything that :meth:`load` needs, for ``torch.save``."""
        found = {"step": self.step, "net": self.prepared.state_dict(), "optimizer": self._optimizer.state_dict()}
        return copy.deepcopy(found)

    def load(self, state: Mapping[str, Any]) -> None:
        """Go back to what :meth:`state` returned."""
        self.step = int(state["step"])
        self.prepared.load_state_dict(state["net"])
        self._optimizer.load_state_dict(state["optimizer"])

    def _order(self, epoch: int) -> Any:
        import numpy as np

        return np.random.default_rng([self._seed, epoch]).permutation(self._count)

    def _one_step(self, samples: list[Sample]) -> float | Warn:
        import torch

        self._optimizer.zero_grad()
        total = 0.0
        with self._strict() as broken:
            for part in _parts(samples, self._batch):
                loss = self._loss(part) * (len(part) / len(samples))
                loss.backward()
                total += float(loss.detach())
        sound = all(bool(torch.isfinite(p.grad).all()) for p in self._parameters if p.grad is not None)
        if broken or not sound or not math.isfinite(total):
            return self._broken(samples)
        for group in self._optimizer.param_groups:
            group["lr"] = self._scheme.learning_rate * 0.5 * (1 + math.cos(math.pi * self.step / self.steps))
        self._optimizer.step()
        return total

    @contextlib.contextmanager
    def _strict(self) -> Iterator[list[Any]]:
        """Notes the fake quantizations that are given NaN or infinity, of which they make ordinary numbers."""
        import torch

        broken: list[Any] = []

        def look(fake: Any, inputs: Any) -> None:
            if not bool(torch.isfinite(inputs[0]).all()):
                broken.append(fake)

        hooks = [fake.register_forward_pre_hook(look) for fake, _ in self._observers]
        try:
            yield broken
        finally:
            for hook in hooks:
                hook.remove()

    def _loss(self, samples: list[Sample]) -> Any:
        import torch

        share = self._scheme.distill
        outputs = self._outputs(self.prepared, samples)
        if share == 0:
            return self.goal.loss(outputs, self._label(samples))
        with torch.no_grad():
            wanted = self._outputs(self._original, samples)
        distance = self.goal.distance(outputs, wanted)
        return (
            distance if share == 1 else share * distance + (1 - share) * self.goal.loss(outputs, self._label(samples))
        )

    @property
    def _loss_name(self) -> str:
        return f"{self.goal.name} and distance to the float net" if self._scheme.distill else self.goal.name

    def _broken(self, samples: list[Sample]) -> Warn:
        """Where the first number that isn't finite arose."""
        place = next((found for s in samples if (found := self._first_bad(s))), "in the gradients")
        text = f"A number that isn't finite was first seen at step {self.step + 1} {place}"
        if self.step == 0:
            raise InputError(
                "qat_diverged", f"{text}; there are no good weights to keep.",
                why="A sample holds NaN or infinity, or the learning rate is far too large.",
                fix="Check that sample, or lower the learning rate; static-int8 needs no training.",
            )  # fmt: skip
        return Warn("qat_stopped", f"{text}; training stopped there, with the weights of step {self.step}.")

    def _first_bad(self, sample: Sample) -> str | None:
        import numpy as np
        import torch

        for name, value in sample.feed.items():
            if not np.isfinite(value).all():
                return f"in the input '{name}' of {sample.where}"

        found: list[str] = []

        class Watch(torch.fx.Interpreter):
            def run_node(self, n: torch.fx.Node) -> Any:
                result = super().run_node(n)
                if not found and isinstance(result, torch.Tensor) and not bool(torch.isfinite(result).all()):
                    found.append(f"in the layer '{path_of(n)}' for {sample.where}")
                return result

        _switch(self.prepared, observing=False, rounding=True)
        with torch.no_grad():
            Watch(self.prepared).run(*self._leaves([sample]), enable_io_processing=False)
        _switch(self.prepared, observing=True, rounding=True)
        return found[0] if found else None

    # -- calls ---------------------------------------------------------------------------------------------------------

    def judge(self, module: GraphModule, *, rounded: bool) -> float:
        """The metric over the samples; higher is better for accuracy, lower for errors."""
        import torch

        _switch(module, observing=False, rounding=rounded)
        with torch.no_grad():
            pairs = ((self._outputs(module, [s]), self._label([s])) for s in self.store.first(JUDGED))
            values = [self.goal.score(*pair) for pair in pairs if self.goal.counts(*pair)]
        _switch(module, observing=True, rounding=True)
        return math.fsum(values) / max(len(values), 1)

    def _outputs(self, module: GraphModule, samples: Sequence[Sample]) -> list[Any]:
        import torch

        for name, value in self._state.items():
            owner, _, leaf = name.rpartition(".")
            setattr(module.get_submodule(owner), leaf, value.clone().to(self._device))
        args, kwargs = torch.utils._pytree.tree_unflatten(self._leaves(samples), self._program.call_spec.in_spec)
        return list(torch.utils._pytree.tree_leaves(module(*args, **kwargs)))

    def _leaves(self, samples: Sequence[Sample]) -> list[Any]:
        import torch

        rows = [graphs.leaves_of(self._model, sample.feed) for sample in samples]
        columns = zip(*rows, strict=True)
        whole = [torch.cat(c) if isinstance(c[0], torch.Tensor) and len(c) > 1 else c[0] for c in columns]
        return [v.to(self._device) if isinstance(v, torch.Tensor) else v for v in whole]

    def _label(self, samples: Sequence[Sample]) -> Any:
        import numpy as np
        import torch

        arrays = [np.asarray(s.label) for s in samples]
        whole = np.concatenate([a[None] if a.ndim == 0 else a for a in arrays])
        return torch.from_numpy(whole.copy()).to(self._device)


def _switch(module: Any, *, observing: bool, rounding: bool) -> None:
    """Whether the ranges of weights are measured, and whether values are rounded. Those of activations stay as they are."""
    for fake in _fakes(module):
        fake.enable_observer(observing and _of_weights(fake))
        fake.enable_fake_quant(rounding)


def _fakes(module: Any) -> Iterator[Any]:
    from torchao.quantization.pt2e.fake_quantize import FakeQuantizeBase

    return (m for m in module.modules() if isinstance(m, FakeQuantizeBase))


def _see(fake: Any, inputs: Any) -> None:
    import torch

    values = inputs[0].detach()
    if bool(torch.isfinite(values).all()) and float(values.abs().max()) <= LARGEST:
        fake.activation_post_process(values)


def _of_weights(fake: Any) -> bool:
    """Weights are measured at every step, by an observer that forgets; those of activations come from a calibration."""
    return hasattr(fake.activation_post_process, "averaging_constant")


def _folded(module: GraphModule, wishes: Wishes, *, wide: bool = True) -> GraphModule:
    fold_norms(module)
    if wide:
        widen(module, wishes.keep)
    return module


def _adam(parameters: list[Any], rate: float) -> Any:
    import torch

    return torch.optim.Adam(parameters, lr=rate, foreach=False)


def _placed(program: Any) -> tuple[Any, str]:
    """On the GPU where there is one."""
    import torch

    if not torch.cuda.is_available():
        return program, "cpu"
    from torch.export.passes import move_to_device_pass

    return move_to_device_pass(copy.deepcopy(program), "cuda"), "cuda"


def _parts(samples: list[Sample], size: int) -> Iterator[list[Sample]]:
    return (samples[i : i + size] for i in range(0, len(samples), size))


def _stackable(model: Model, store: Store, wanted: int) -> int:
    """How many samples fit into one call: all when every input's first size is one dynamic batch, else one at a time."""
    dims = [spec.shape[0] if spec.shape else None for spec in model.signature.inputs]
    first = store[0]
    shapes = {name: value.shape for name, value in first.feed.items()}
    alike = all({n: v.shape for n, v in store[i].feed.items()} == shapes for i in range(len(store)))
    if not alike or not all(isinstance(d, Dim) for d in dims):
        return 1
    most = min(d.max for d in dims if isinstance(d, Dim))
    rows = max(shape[0] for shape in shapes.values())
    return int(max(1, min(wanted, most // rows)))


__all__ = ["Stages", "Trainer", "fine_tune", "labelled"]
