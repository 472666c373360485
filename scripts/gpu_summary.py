# SPDX-License-Identifier: Apache-2.0
"""The report of gpu-check.sh for a reader: its verdicts first, then the machine, the checks and the tables."""
import collections

SIMULATED = "SIMULATED GPUs, sizes reduced: results are compared, but no time or ratio here says anything about a GPU"
LONGEST = 12  # rows of a table of kernels


def summary(report):
    lines = [f"{report['date']}, commit {report.get('commit')}, preset {report['preset']}, {report['seconds']:.0f} s",
             ", ".join(f"{number} {verdict}" for verdict, number in report["count"].items() if number)]
    if "stopped" in report:
        lines.append(f"stopped by {report['stopped']}")
    if report["simulated"]:
        lines.append(SIMULATED)
    lines += [f"warning: {text}" for text in report["warnings"]] + report.get("advice", [])
    if "again" in report:
        lines.append(f"for what is missing: {report['again']}")
    lines += machine_lines(report) + check_lines(report)
    for table in ("kernels_text", "probe_text"):
        if table in report:
            lines += ["", *report[table]]
    return "\n".join(lines) + "\n"


def machine_lines(report):
    lines = [""]
    for gpu in report.get("gpus", []):
        lines.append(f"GPU     {gpu['name']}, {gpu['memory.total']} MiB, compute capability "
                     f"{gpu['compute_cap']}, driver {gpu['driver_version']}")
    for moment, rows in report.get("clocks", {}).items():
        lines += [f"clocks  {moment}: SM {now['clocks.sm']} MHz, memory {now['clocks.mem']} MHz, "
                  f"{now['temperature.gpu']} C, {now['power.draw']} W" for now in rows]
    lines.append(f"CPU     {report.get('processor')}, {report.get('cores')} cores")
    width = max(map(len, report.get("versions", {})), default=0)
    return lines + [f"{name:{max(width, 7)}} {version or 'not on this machine'}"
                    for name, version in report.get("versions", {}).items()]


def check_lines(report):
    lines, place = [], None
    for check in report["checks"]:
        if (check["piece"], check["part"]) != place:
            place = check["piece"], check["part"]
            about = report["parts"].get(check["part"])
            lines += ["", ": ".join(filter(None, place)) + (f" ({about})" if about else "")]
        earlier = f" ({check['from']})" if "from" in check else ""
        reason = f": {check['reason']}" if check["reason"] else ""
        lines.append(f"  {check['verdict']:11} {check['name']}{reason}{earlier}")
    return lines


def kernel_lines(found):
    """The longest of what `yoke bench --kernels --json` prints; calls that differ in their layer alone are one row."""
    rows = collections.defaultdict(lambda: [0, 0.0, 0.0])
    for call in found["calls"]:
        row = rows[call["operation"], call["direction"], call.get("algorithm", "-"), call["shape"]]
        row[:] = row[0] + 1, row[1] + call["ms"], row[2] + call["roofline_ms"]
    lines = []
    for kind, (count, ms, least_ms) in sorted(rows.items(), key=lambda row: -row[1][1])[:LONGEST]:
        words = "{:13} {:16} {:14} {}".format(*kind)
        lines.append(f"{ms:10.4f} {count:5} {100 * least_ms / ms if ms else 0:5.0f} %  {words}")
    return [f"the longest kernels of a step of {found['model']}, {found['rows']} rows, {found['precision']}",
            "        ms calls    roof  operation     direction        algorithm      shape of a row", *lines]
