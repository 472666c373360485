# SPDX-License-Identifier: Apache-2.0
"""Models of pages made by hand, and the template that holds one: what the script must draw, and what it must survive."""
import base64
import json
import pathlib
import struct
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "src/report/page"
FIGURES = ["throughput", "step-time", "timeline", "stages", "devices", "memory", "links", "moved", "loss", "test-loss",
           "accuracy", "learning-rate", "step-ms", "images", "rates", "classes", "confusion", "misclassified"]
EVIL = ["</script><script>throw 1</script>", "\"quoted\" 'name' &amp; <b>", "\u202ereversed\u202c", "long " * 2000]


def picture():
    """A PNG of four colours, as the C writes them."""
    def chunk(kind, data):
        return struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes(row) for row in ([200, 40, 40, 40, 160, 60], [50, 60, 200, 230, 200, 60]))
    data = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack("!2I5B", 2, 2, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def escaped(model):
    text = json.dumps(model)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def page_of(model, title="Sample", figures=FIGURES):
    """A page as the C writes it, with the script and the style of the tree."""
    sections = "".join(f'<section class="figure{" wide" if name in ("timeline", "misclassified") else ""}" id="{name}">'
                       f'<h2>{name.capitalize()}</h2><div class="chart" data-figure="{name}"></div>'
                       "<details><summary>Data</summary><table><tr><td>1</td></tr></table></details></section>"
                       for name in figures)
    return ('<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{title}</title><style>{(PAGE / 'page.css').read_text()}</style></head><body><main><h1>{title}</h1>"
            '<p class="subject">resnet20 on 4 devices, synthetic rows, link 0.3 GB/s</p>'
            '<div class="chart first" data-figure="first"></div>'
            f'<div class="figures">{sections}</div></main>'
            f'<script type="application/json" id="yoke-page">{escaped(model)}</script>'
            f"<script>{(PAGE / 'page.js').read_text()}</script></body></html>")


def mode(name, devices, stages, links, first=True, rate=300000):
    """A step of `stages` [(stage, ms of the root, ms of another)] and of `links` [(begin, end) of the root's, of another's]."""
    lanes, step = [], max(sum(stage[1] for stage in stages), sum(stage[2] for stage in stages))
    for device in range(devices):
        spans, at, spent = [], 0, {}
        for number, (stage, root, other) in enumerate(stages):
            ms = other if device else root
            if ms > 0:
                bucket = number if stage in ("reduce", "all_reduce") else -1
                spans.append([at, at + ms, stage, bucket, 1 << 18, f"while cpu:0 runs {stage}" if stage == "wait" else None])
                spent[stage] = spent.get(stage, 0) + ms
            at += ms
        lanes.append({"name": f"cpu:{device}", "kind": "device", "stage_ms": spent, "spans": spans})
    for device in range(devices):
        lanes.append({"name": f"link of cpu:{device}", "kind": "link",
                      "spans": [[begin, end, "reduce", -1, int(rate * (end - begin)), None] for begin, end in links[min(device, 1)]]})
    rows = 64000 / step
    return {"name": name, "label": name, "devices": devices, "first": first, "step_ms": [step, 0.95 * step, 1.06 * step],
            "images_per_second": [rows, 0.95 * rows, 1.05 * rows], "speedup": [1, 1, 1], "mean_step_ms": step,
            "median_ms": step, "shown_ms": step, "steps": 20, "weights_hash": "abc", "lanes": lanes,
            "memory": [[f"cpu:{d}", what, size * (2 if d == 0 else 1)] for d in range(devices)
                       for what, size in (("weights", 1 << 20), ("gradients", 1 << 20), ("optimizer", 1 << 20),
                                          ("activations", 5 << 20))],
            "links": [[f"cpu:{d}", way, (3 << 20) if d == 0 else 1 << 20] for d in range(devices) for way in ("out", "in")],
            "moved": [[f"cpu:{d}", "reduce", 1 << 20] for d in range(devices)],
            "curves": {"loss": [[k, 2.3 / (1 + k / 9)] for k in range(20)]}}


def lesson():
    """What a race of classic, overlap and DDP looks like."""
    modes = [
        mode("single", 1, [("forward", 2.1, 0), ("backward", 4.3, 0), ("update", .4, 0)], [[], []], first=False),
        mode("python", 4, [("python", 14, 14), ("forward", 3.1, 3.3), ("loss", .2, .2), ("backward", 6, 6.2),
                           ("wait", 2, 8.3), ("reduce", 6.9, 0), ("update", .8, .8), ("replicate", 5.5, 5.5)],
             [[(.2, 1.1), (23, 38.2)], [(.3, .6), (24, 29)]], first=False),
        mode("dp classic", 4, [("scatter", .8, .3), ("forward", 3.1, 3.3), ("loss", .2, .2), ("backward", 6, 6.2),
                               ("wait", 1, 15.2), ("reduce", 13.9, 0), ("update", .8, 0), ("replicate", 5.5, 5.5)],
             [[(.2, 1.1), (11, 31)], [(.3, .6), (12, 17), (26, 30)]]),
        mode("dp overlap", 4, [("scatter", .8, .3), ("forward", 3.1, 3.3), ("loss", .2, .2), ("backward", 6.4, 6.6),
                               ("exchange", 3.9, 1.2), ("wait", .4, 3.2)], [[(.2, 1.1), (5, 13.9)], [(.3, .6), (6, 10)]], rate=100000),
        mode("ddp", 4, [("forward", 3.2, 3.2), ("loss", .2, .2), ("backward", 6.3, 6.4), ("all_reduce", 2.1, 2.1),
                        ("wait", .8, .7), ("update", .4, .4)], [[(4.5, 12.5)], [(4.5, 12.5)]], rate=90000),
    ]
    return {"yoke_page": 1, "title": "classic 31.3 ms, DDP 13.0 ms", "subject": "resnet20", "simulated": False,
            "no_verdict": False, "interval": "95 % interval", "link": "0.3 GB/s, 20 us, switch", "modes": modes}


def scaling():
    """A simulation on several numbers of devices."""
    modes = []
    for name, share in (("dp-classic", .9), ("dp-overlap", .35), ("ddp", .1), ("sharded", .12)):
        for devices in (1, 2, 4, 8):
            step = 88 * (1 + share * (devices - 1))
            made = mode(name, min(devices, 8), [("forward", 30, 30), ("backward", 58, 58), ("reduce", step - 88, 0),
                                                ("wait", 0, step - 88)], [[(88, step)], [(88, 88 + (step - 88) / 2)]],
                        first=devices == 8 and name in ("dp-classic", "ddp"))
            made.update(devices=devices, label=f"{name} on {devices}",
                        images_per_second=[64000 * devices / step] * 3, step_ms=[step] * 3)
            modes.append(made)
    return {**lesson(), "simulated": True, "title": "8 GPUs: classic 642 ms, DDP 150 ms", "modes": modes}


def training(classes=10):
    run = mode("run", 2, [("load", 1, 1), ("forward", 4, 4), ("backward", 8, 8), ("all_reduce", 2, 2), ("update", 1, 1)],
               [[(5, 14)], [(5, 14)]])
    run["curves"] = {
        "loss": [[k, 2.3 / (1 + k / 40) + .1 * ((k * 7919) % 13) / 13] for k in range(300)],
        "test-loss": [[k, 2.2 / (1 + k / 45)] for k in range(60, 301, 60)],
        "training-accuracy": [[k, 100 - 90 / (1 + k / 40)] for k in range(300)],
        "accuracy": [[k, 98 - 88 / (1 + k / 45)] for k in range(60, 301, 60)],
        "learning-rate": [[k, .1 * (1 - k / 300)] for k in range(300)],
        "step-ms": [[k, 16 + (k * 31) % 5] for k in range(300)], "images": [[k, 4000 - (k * 31) % 500] for k in range(300)]}
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    counts = [[900 - 40 * (a % 4) if a == b else (a * 7 + b * 3) % 17 for b in range(classes)] for a in range(classes)]
    wrong = [{"row": 17 * k, "label": k % classes, "predicted": (k + 3) % classes, "probability": .99 - .01 * k,
              "loss": 9.1 - .3 * k, "picture": picture()} for k in range(12)]
    return {**lesson(), "title": "resnet20 reaches 86.4 %", "modes": [run],
            "predictions": {"absent": "", "step": 300, "classes": classes, "names": names if classes == 10 else None,
                            "counts": counts, "misclassified": wrong},
            "rates": {"rates": [1e-7 * 1.2 ** k for k in range(100)],
                      "losses": [2.3 - .02 * min(k, 70) + (.4 * (k - 80) ** 2 if k > 80 else 0) + .05 * (k % 3) for k in range(100)],
                      "smoothed": [2.35 - .02 * min(k, 70) + (.3 * (k - 80) ** 2 if k > 80 else 0) for k in range(100)],
                      "suggested": 60, "cautious": .001}}


def hostile():
    """Names that are markup, quotes, bidi marks and long; empty lists, zeros, one span, nulls and values of a wrong type."""
    model = lesson()
    for number, made in enumerate(model["modes"]):
        made["label"] = made["name"] = EVIL[number % 4]
        for lane in made["lanes"]:
            lane["name"] = EVIL[(number + 1) % 4] + lane["name"]
            for span in lane["spans"]:
                span[5] = EVIL[number % 4]
    model["modes"] += [
        {"name": "empty", "label": "empty", "devices": 4, "first": True, "lanes": [], "step_ms": None, "curves": {}},
        {"name": None, "devices": 0, "lanes": [{"name": None, "kind": "device", "spans": [], "stage_ms": {}}]},
        {"name": "zeros", "label": "zeros", "devices": 4, "first": True, "step_ms": [0, 0, 0], "shown_ms": 0, "images_per_second": None,
         "lanes": [{"name": "one", "kind": "device", "stage_ms": {"forward": 0, "wait": None, "nonsense": 2},
                    "spans": [[0, 0, "forward", -1, 0, None], [1, None, "x", None, None, None], None]}],
         "memory": [["cpu:0", "weights", 0]], "links": None, "moved": [["cpu:0", EVIL[0], 5]],
         "curves": {"loss": [[0, None], [1, 2]], "accuracy": []}}]
    model["predictions"] = {**training()["predictions"], "names": [EVIL[k % 4] for k in range(10)]}
    model["predictions"]["counts"][3] = [0] * 10
    model["predictions"]["misclassified"][0]["picture"] = "javascript:alert(1)"
    model["predictions"]["misclassified"][1]["picture"] = None
    model["rates"] = {"rates": [], "losses": [], "smoothed": [], "suggested": -1}
    return model


def many():
    """4,096 devices, and more bars and lanes than a figure draws."""
    model = lesson()
    model["modes"] = [mode("ddp", 300, [("forward", 3, 3), ("backward", 6, 6), ("all_reduce", 2, 2)], [[(3, 9)], [(3, 9)]])]
    model["modes"][0]["devices"] = 4096
    return model


SAMPLES = {"lesson": lesson, "scaling": scaling, "training": training, "hostile": hostile, "many": many,
           "nothing": lambda: {"yoke_page": 1}}
