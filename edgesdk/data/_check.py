"""Are the samples fit to calibrate with, or to measure on? A warning or an error for every fault, naming the place."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Literal

import numpy as np

from edgesdk.artifacts import TensorSpec, Warn
from edgesdk.data._check_labels import check_labels, missing_labels
from edgesdk.data._facts import ModelFacts
from edgesdk.data._stats import InputStats, gather, is_picture
from edgesdk.data._store import Sample, Store
from edgesdk.errors import InputError

Role = Literal["calibration", "evaluation"]

FEW = 32
"""Fewer samples leave the ranges of activations to chance; a measured accuracy then steps by more than 3 points."""
_NO_NEIGHBOURS = 0.1  # photos, scans and speech have 0.5 and more; white noise has 0 ± 1/√values
_HUGE = 1e4
_SHARED = 0.05
"""Share of calibration samples from which it is told that they are in the evaluation data."""
_END = 8192
_OPTION: dict[Role, str] = {"calibration": "--calibration", "evaluation": "--eval"}


def check_samples(store: Store, model_facts: ModelFacts, role: Role, *, free_labels: bool = False) -> tuple[Warn, ...]:
    """Judge a store for its role. Reads the samples one at a time.

    Args:
        free_labels: the user's own metric reads the labels, so they may be anything.

    Raises:
        InputError: ``no_samples``, ``non_finite_sample``, ``constant_calibration`` (only for calibration),
            ``id_out_of_range``, and the label faults of :func:`check_labels`.
    """
    if not len(store):
        raise InputError(
            "no_samples", f"{_OPTION[role]} holds no samples.", why="Nothing can be measured on nothing.",
            fix="Give 100 to 500 typical inputs.",
        )  # fmt: skip
    stats = gather(store, model_facts.signature)
    _check_ids(store, model_facts)
    warnings = [
        *_few(store, role),
        *_constant(stats, store, role),
        *(w for spec in model_facts.signature.inputs for w in _range(stats[spec.name], spec, model_facts, store, role)),
        *_random(stats, store, role),
        *missing_labels(store, role),
        *([] if free_labels else check_labels(store, model_facts, role)),
    ]
    return tuple(warnings)


def compare_samples(calibration: Store, evaluation: Store, model_facts: ModelFacts) -> tuple[Warn, ...]:
    """Do both come from the same world? A calibration in another range than the evaluation data makes useless ranges.

    Raises:
        InputError: ``non_finite_sample``.
    """
    one, other = gather(calibration, model_facts.signature), gather(evaluation, model_facts.signature)
    found = list(_shared(calibration, evaluation))
    for name, stats in one.items():
        seen = other.get(name)
        if seen is None or stats.kind != "f" or not seen.std or not stats.std:
            continue
        ratio, shift = stats.std / seen.std, abs(stats.mean - seen.mean) / max(stats.std, seen.std)
        if not 0.25 <= ratio <= 4 or shift > 3:
            found.append(
                Warn(
                    "suspicious_range",
                    f"--calibration and --eval differ in input '{name}': mean {stats.mean:.3g} ± {stats.std:.3g} against "
                    f"{seen.mean:.3g} ± {seen.std:.3g}. One of them was prepared (scaled, normalised) differently.",
                )
            )
    return tuple(found)


def _shared(calibration: Store, evaluation: Store) -> Iterator[Warn]:
    """Samples that are in both."""
    known = {_ends(sample) for sample in evaluation}
    count = sum(_ends(sample) in known for sample in calibration)
    if count >= max(1, _SHARED * len(calibration)):
        yield Warn(
            "same_samples", f"{count} of the {len(calibration)} calibration samples are in the evaluation data, too: ranges were "
            "chosen for the very inputs that the file is judged on, so it will do worse on others.",
        )  # fmt: skip


def _ends(sample: Sample) -> bytes:
    """Beginning and end of each input: enough to know a sample again, and quick for large ones."""
    digest = hashlib.sha256()
    for name in sorted(sample.feed):
        data = np.ascontiguousarray(sample.feed[name]).reshape(-1).view(np.uint8)
        digest.update(f"{name}{data.size}".encode() + data[:_END].tobytes() + data[-_END:].tobytes())
    return digest.digest()


def _few(store: Store, role: Role) -> list[Warn]:
    count = len(store)
    if count >= FEW:
        return []
    places = {store[i].where for i in range(min(count, 2))}
    of = f"{_OPTION[role]} ({sorted(places)[0]} …)"
    if role == "calibration":
        text = f"{of} holds {count} sample(s); the ranges of activations then depend on chance. Give 100 to 500."
    else:
        text = f"{of} holds {count} sample(s); one wrong answer is {100 / count:.1f} points. Give some hundred."
    return [Warn("few_samples", text)]


def _constant(stats: dict[str, InputStats], store: Store, role: Role) -> list[Warn]:
    found: list[Warn] = []
    floats = [s for s in stats.values() if s.kind in "fu" and s.values > s.samples]
    blank = [s for s in floats if s.blank == s.samples]
    if floats and len(blank) == len(floats):
        found.append(_useless(f"every sample is blank: all values of '{blank[0].name}' are equal in each", store, role))
    elif len(store) > 1 and all(s.alike for s in stats.values()):
        found.append(_useless(f"all {len(store)} samples are equal", store, role))
    else:
        for s in floats:
            if s.blank == s.samples:
                text = f"input '{s.name}' holds one single value in every sample ({s.first_blank} …); is it meant to?"
                found.append(Warn("constant_input", f"{_OPTION[role]}: {text}"))
            elif s.blank:
                text = f"{s.blank} of {s.samples} samples are blank in '{s.name}' (all values equal), the first is {s.first_blank}."
                found.append(Warn("blank_samples", f"{_OPTION[role]}: {text}"))
    return found


def _useless(what: str, store: Store, role: Role) -> Warn:
    """Raises for calibration, which can find no range there; a measurement on such data is only worth little."""
    message = f"{_OPTION[role]}: {what} ({store[0].where} …)."
    if role == "calibration":
        raise InputError(
            "constant_calibration", message,
            why="Ranges of activations can't be found on data that don't vary; a default would be used, and the model be wrong.",
            fix="Give 100 to 500 different, typical inputs.", details={"where": store[0].where},
        )  # fmt: skip
    return Warn("constant_evaluation", f"{message} What is measured on them says nothing about real data.")


def _check_ids(store: Store, facts: ModelFacts) -> None:
    for spec in facts.signature.inputs:
        limits = facts.int_ranges.get(spec.name)
        if limits is None or not spec.dtype.startswith(("int", "uint")):
            continue
        low, high = limits
        for sample in store:
            array = sample.feed[spec.name]
            if array.size and (int(array.min()) < low or int(array.max()) >= high):
                bad = int(array[(array < low) | (array >= high)].reshape(-1)[0])
                raise InputError(
                    "id_out_of_range", f"{sample.where}: input '{spec.name}' holds {bad}; the model takes {low}…{high - 1}.",
                    why="It looks the number up in a table of that size.",
                    fix="Use the tokenizer or the mapping that the model was trained with.", details={"where": sample.where},
                )  # fmt: skip


# --- ranges -----------------------------------------------------------------------------------------------------------


def _range(stats: InputStats, spec: TensorSpec, facts: ModelFacts, store: Store, role: Role) -> list[Warn]:
    if stats.kind != "f" or not stats.values:
        return []
    fault = _against_spec(stats, spec, facts) if _prepared_by_spec(spec, facts) else _by_itself(stats, spec, store)
    if not fault:
        return []
    seen = f"{_OPTION[role]}: input '{spec.name}' holds values {stats.low:.4g}…{stats.high:.4g} ({store[0].where} …); "
    return [Warn("suspicious_range", seen + fault)]


def _prepared_by_spec(spec: TensorSpec, facts: ModelFacts) -> bool:
    known = facts.preprocess
    return known is not None and known.input in (spec.name, None)


def _against_spec(stats: InputStats, spec: TensorSpec, facts: ModelFacts) -> str | None:
    """What the data's range says when the model's own preprocessing would make another one."""
    from edgesdk.preprocess import AudioSpec, ImageSpec

    if isinstance(facts.preprocess, AudioSpec):
        return _against_sound(stats, facts.preprocess.normalize)
    if not isinstance(facts.preprocess, ImageSpec):
        return None
    table = facts.preprocess.table()
    low, high = float(table.min()), float(table.max())
    width = high - low
    wanted = f"the model's preprocessing makes {low:.3g}…{high:.3g}"
    if stats.low < low - 0.05 * width or stats.high > high + 0.05 * width:
        if stats.low >= 0 and high < 20 < stats.high <= 256:
            return f"{wanted}. They look like pixels 0…255 that were never divided by 255 and normalised."
        if stats.low >= 0 and stats.high <= 1.001:
            return f"{wanted}. They look like pixels scaled to 0…1 that were never normalised with mean and std."
        if low >= 0 > stats.low:
            return f"{wanted}. They look normalised with a mean and std that this model doesn't take."
        return f"{wanted}. Prepare them as in training."
    if low < -0.1 * width and stats.low >= 0 and stats.high <= 1.001:
        return f"{wanted}. They look like pixels scaled to 0…1 that were never normalised with mean and std."
    if stats.ends is not None and _swapped(stats.ends, table):
        return f"{wanted}, with limits of its own for each channel. They fit in the opposite order: red and blue are swapped."
    if stats.high - stats.low < 0.05 * width and stats.samples > 1:
        return f"{wanted}, twenty times as wide. They were scaled down once too often, or hardly vary."
    return None


def _swapped(ends: np.ndarray, table: np.ndarray) -> bool:
    """Whether channels leave the range that black and white have in theirs, and none does in the opposite order."""
    if table.shape[0] != ends.shape[0]:
        return False
    slack = 0.03 * float(table.max() - table.min())  # an unclipped bicubic resize overshoots

    def fit(given: np.ndarray) -> bool:
        return bool((given[:, 0] >= table.min(1) - slack).all() and (given[:, 1] <= table.max(1) + slack).all())

    return not fit(ends) and fit(ends[::-1])


def _against_sound(stats: InputStats, normalize: str) -> str | None:
    if normalize == "standard":
        far = not 0.5 <= stats.std <= 2 or abs(stats.mean) > 0.5
        return (
            f"they have mean {stats.mean:.2g} and deviation {stats.std:.2g}, the model's preprocessing makes 0 and 1."
            if far
            else None
        )
    if max(abs(stats.low), abs(stats.high)) > 1.5:
        return "the model's preprocessing makes -1…1. They look like integer samples: divide 16-bit ones by 32768."
    return None


def _by_itself(stats: InputStats, spec: TensorSpec, store: Store) -> str | None:
    """Without a preprocessing to compare with, only what is odd for any network."""
    if spec.name in store.facts.get("from_bytes", ()):
        return "they are bytes, fed as the numbers 0…255. Most networks take 0…1 or normalised values: prepare them as in training."
    if is_picture(spec) and stats.low >= 0 and (32 if stats.whole else 64) < stats.high <= 256:
        return (
            "they look like pixels 0…255. If the model doesn't normalise inside, divide by 255 and normalise "
            "as in training (or give image files with --image, --mean and --std)."
        )
    if max(abs(stats.low), abs(stats.high)) > _HUGE:
        return "values so large leave few of int8's 256 steps to the rest. Scale them as in training."
    return None


def _random(stats: dict[str, InputStats], store: Store, role: Role) -> list[Warn]:
    found = []
    for s in stats.values():
        if s.neighbours is not None and abs(s.neighbours) < _NO_NEIGHBOURS and s.blank < s.samples:
            text = (
                f"input '{s.name}' looks random ({store[0].where} …): neighbouring values have nothing to do with each other (correlation "
                f"{s.neighbours:.2f}). Ranges found on noise don't hold for real data; give typical inputs."
            )
            found.append(Warn("looks_random", f"{_OPTION[role]}: {text}"))
    return found
