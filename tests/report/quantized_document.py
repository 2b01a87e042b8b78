"""A package with every part that quantization adds to its document, as `edgesdk package` writes it."""

from __future__ import annotations

from typing import Any

from tests.report.conftest import Json, package, variant


def output(snr_db: float, **changes: Any) -> Json:
    return {"name": "logits", "max_abs_error": 0.41, "mean_abs_error": 0.038, "max_abs_reference": 14.2, "snr_db": snr_db,
            "cosine": 0.9991, "top1_agreement": 0.987, **changes}  # fmt: skip


def evaluation(value: float | None = 91.38, **changes: Any) -> Json:
    score = (
        {"name": "top1", "original": 91.62, "value": value, "drop": 91.62 - value, "samples": 10_000} if value else None
    )
    return {
        "samples": 10_000, "data": "evaluation", "where": "x86_64 host", "score": score, "top1": 0.987, "top5": 0.9998,
        "rows": 10_000, "flipped": 130,
        "flips": [{"where": f"images/{i:05d}.png", "was": was, "became": became, "margin": 0.021 * (i + 1)} for i, (was, became) in
                  enumerate([("shirt", "T-shirt/top"), ("coat", "pullover"), ("sneaker", "ankle boot")] * 2)],
        "outputs": [output(31.4)], "lost": {"logits": 0.0}, **changes,
    }  # fmt: skip


def errors(count: int = 30) -> list[Json]:
    """The third layer is the worst."""
    names = [f"features.{i}.{'depthwise' if i % 2 else 'pointwise'}" for i in range(count)]
    found = [
        {"name": n, "op": "conv2d", "snr_db": 18.0 + 0.9 * i, "alone_db": 26.0 + 1.1 * i} for i, n in enumerate(names)
    ]
    found[2].update(snr_db=3.2, alone_db=7.9)
    found[-1].update(snr_db=None, alone_db=None)
    return found


def layers() -> list[Json]:
    made = [{"name": e["name"], "op": "conv2d", "precision": "int8", "bytes": 36_864 + 1024 * i, "why": None}
            for i, e in enumerate(errors())]  # fmt: skip
    made[2].update(precision="float32", why="Put back to float by the guard (--max-drop 0.5).")
    made[5].update(why="One scale for the whole weight: the kernel takes no scale per channel with 3 groups.")
    return [
        *made,
        {"name": "embedding", "op": "embedding", "precision": "float32", "bytes": 204_800,
         "why": "No kernel of this runtime takes an int8 embedding."},
        {"name": "features.4.add", "op": "add", "precision": "int8", "bytes": 0, "why": None},
        {"name": "softmax", "op": "softmax", "precision": "float32", "bytes": 0, "why": "Probabilities need float."},
        {"name": "reshape", "op": "view", "precision": "float32", "bytes": 0, "why": None},
    ]  # fmt: skip


def race(ratio: float = 0.58, **changes: Any) -> Json:
    return {"ratio": ratio, "low": ratio - 0.03, "high": ratio + 0.04, "float_p50": 3.21, "p50": 3.21 * ratio,
            "p90": 3.4 * ratio, "where": "x86_64 host, 1 thread", "rounds": 24, **changes}  # fmt: skip


def guard(**changes: Any) -> Json:
    return {
        "evaluation": evaluation(),
        "arm64": evaluation(90.6, samples=64, where="arm64 (emulated)", top1=0.984, top5=1.0, flipped=1, flips=[],
                            outputs=[output(30.9)]),
        "arm64_why": None, "errors": errors(), "restored": ["features.2.pointwise"],
        "probes": [
            {"restored": 0, "holds": False, "drop": 4.81, "top1": 0.921, "snr_db": 12.3},
            {"restored": 2, "holds": True, "drop": 0.2, "top1": 0.988, "snr_db": 31.9},
            {"restored": 1, "holds": True, "drop": 0.24, "top1": 0.987, "snr_db": 31.4},
        ],
        "float_bytes": 6_020_000, "race": race(), "tried": {}, **changes,
    }  # fmt: skip


def quantized(id_: str = "executorch-xnnpack-static-int8", found: Json | None = None, **changes: Any) -> Json:
    """One int8 file; ``found`` is its guard."""
    found = guard() if found is None else found
    plain = variant(id_)
    details = {**plain["details"], "layers": layers(), "guard": found, **changes.pop("details", {})}
    metric = found["evaluation"]["score"]
    latency = found.get("race")
    return {
        **plain, "quantization": id_.split("-", 2 if id_.startswith("executorch") else 1)[-1], "bytes": 1_640_000,
        "outputs": [output(29.7)], "top1_agreement": found["evaluation"]["top1"], "details": details,
        "metric": {k: metric.get(k) for k in ("name", "original", "value", "samples")} if metric else None,
        "latency_ms": {k: latency.get(k) for k in ("p50", "p90", "where")} if latency else None, **changes,
    }  # fmt: skip


STAGES = [
    {"name": "float", "value": 91.62}, {"name": "fake_quantized", "value": 91.55}, {"name": "converted", "value": 91.31},
    {"name": "lowered", "value": 91.30},
]  # fmt: skip


def document() -> Json:
    """Float judged on labels; static int8 mended by the guard; a slower ONNX file; trained int8; what auto chose."""
    plain = {"evaluation": evaluation(91.62, top1=1.0, top5=1.0, flipped=0, flips=[], outputs=[output(118.4, max_abs_error=1.2e-5, mean_abs_error=2e-6, cosine=1.0, top1_agreement=1.0)]), "arm64": None,
             "arm64_why": None, "errors": [], "restored": [], "probes": [{"restored": 0, "holds": True, "drop": 0.0, "top1": 1.0,
             "snr_db": 118.4}], "float_bytes": None, "race": None, "tried": {}}  # fmt: skip
    float_ = variant(bytes=6_020_000)
    float_["details"] = {**float_["details"], "layers": [], "guard": plain}
    slow = guard(
        evaluation=evaluation(91.6), arm64=None, errors=[], restored=[], probes=[], float_bytes=6_050_000, race=race(1.41),
        arm64_why="qemu-aarch64 is not installed. Set it up with: edgesdk doctor --setup arm64",
    )  # fmt: skip
    trained = guard(
        evaluation=evaluation(91.30), errors=[], restored=[], probes=[], stages=STAGES, arm64=None,
        tried={"executorch-xnnpack-weight-int8": "not smaller than float32 (6100000 bytes)",
               "executorch-xnnpack-dynamic-int8": "Nothing in this model could be quantized.",
               "executorch-xnnpack-fp16": "good, and larger", "executorch-xnnpack-qat-int8": "kept"},
    )  # fmt: skip
    whole = [{**x, "precision": "int8", "why": None} for x in layers() if x["op"] == "conv2d"]
    return package(
        float_, quantized(), quantized("onnx-static-int8", slow, bytes=1_720_000, details={"layers": whole, "leftovers": {}}),
        quantized("executorch-xnnpack-qat-int8", trained, details={"layers": whole, "leftovers": {}}),
        name="fashion-mobile", original_bytes=6_110_000,
        warnings=[
            {"code": "slower_than_float", "message": "onnx-static-int8 is slower than float32: 4.53 ms against 3.21 ms in float32."},
            {"code": "auto_choice", "message": "executorch-xnnpack-qat-int8: kept; a very long line"},
            {"code": "large_float_weights", "message": "embedding (204,800 bytes, 10 % of the weights) stays float32."},
        ],
    )  # fmt: skip
