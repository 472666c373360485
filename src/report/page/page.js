// SPDX-License-Identifier: Apache-2.0
// Draws the figures of a page from its model in JSON, and slides: yokePage. docs/report.md lists the model's keys.
"use strict";
(() => {
    const SVG = "http://www.w3.org/2000/svg";
    const STAGES = {
        python: "compute", forward: "compute", loss: "compute", backward: "compute", update: "compute",
        scatter: "communicate", replicate: "communicate", reduce: "communicate", exchange: "communicate",
        all_reduce: "communicate", gather: "communicate", load: "wait", wait: "wait", idle: "idle",
    };
    const ACTIVITIES = {compute: "computes", communicate: "communicates", wait: "waits", idle: "is idle"};
    const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
    const ROWS = 96; // of bars and of lanes; a sentence says how many more there are
    const pen = document.createElement("canvas").getContext("2d");
    let serial = 0;

    const list = (value) => (Array.isArray(value) ? value : []);
    const isNumber = (value) => Number.isFinite(value);
    const sum = (values) => values.reduce((total, value) => total + (isNumber(value) ? value : 0), 0);
    const unique = (values) => [...new Set(values)];
    const activity = (stage) => (Object.hasOwn(STAGES, stage) ? STAGES[stage] : "communicate");
    const stageClass = (stage) => (Object.hasOwn(STAGES, stage) ? `s-${stage}` : "s-other");

    // A name as text: what would hide or reorder characters shows as its code.
    function words(value, most = 300) {
        const text = value === null || value === undefined ? "" : String(value).slice(0, most + 1);
        const code = (sign) => `\\u${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
        return (text.length > most ? `${text.slice(0, most - 1)}…` : text).replace(HIDDEN, code);
    }

    const decimal = (value, decimals) =>
        value.toLocaleString("en", {minimumFractionDigits: decimals, maximumFractionDigits: decimals});

    // Three digits: 0.123, 12.3, 1,234.
    function number(value) {
        if (!isNumber(value)) return "unknown";
        const size = Math.abs(value);
        if (size > 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(2);
        return decimal(value, size > 0 ? Math.min(6, Math.max(0, 2 - Math.floor(Math.log10(size)))) : 0);
    }

    function bytes(value) {
        const units = ["B", "KiB", "MiB", "GiB", "TiB"];
        let unit = 0;
        for (; unit < 4 && value >= (unit === 0 ? 1024 : 1023.95); unit++) value /= 1024;
        return `${decimal(value, unit === 0 ? 0 : 1)} ${units[unit]}`;
    }

    const count = (value) => (Number.isInteger(value) ? decimal(value, 0) : number(value));
    const between = (low, high) => (high > low ? ` (${number(low)} to ${number(high)})` : "");
    const isPale = (name) => /-(wait|load|idle)$/.test(name);
    const UNITS = {ms: (value) => `${number(value)} ms`, bytes, percent: (value) => `${number(value)} %`, "": number};

    // Multiples of it are the ticks of an axis.
    function tickOf(range, count, base = 10) {
        if (!(range > 0)) return 1;
        const rough = range / Math.max(1, count);
        if (base === 2) return 2 ** Math.ceil(Math.log2(rough));
        const power = 10 ** Math.floor(Math.log10(rough));
        return [1, 2, 5, 10].find((times) => rough <= times * power * 1.000001) * power;
    }

    const plain = (value, tick) => decimal(value, Math.min(6, Math.max(0, -Math.floor(Math.log10(tick) + 1e-9))));

    function node(parent, name, attributes = {}, text) {
        const made = document.createElementNS(SVG, name);
        for (const [key, value] of Object.entries(attributes))
            made.setAttribute(key, typeof value === "number" ? Math.round(value * 100) / 100 : value);
        if (text !== undefined) made.textContent = text;
        parent?.append(made);
        return made;
    }

    function element(parent, name, className, text) {
        const made = document.createElement(name);
        if (className) made.className = className;
        if (text !== undefined) made.textContent = text;
        parent?.append(made);
        return made;
    }

    // A sheet is what a figure paints on: svg, width, size of text, and marks, which a reader can visit.

    function widthOf(sheet, text, weight = 400) {
        pen.font = `${weight} ${sheet.em}px ${sheet.family}`;
        return pen.measureText(text).width;
    }

    const widest = (sheet, texts, weight) => Math.max(0, ...texts.map((text) => widthOf(sheet, text, weight)));

    function fit(sheet, text, room, weight, keepsEnd) {
        let kept = text; // two browsers measure a long text a little differently
        const isWide = () => widthOf(sheet, kept === text ? text : `${kept}…`, weight) > 0.98 * room;
        while (kept && isWide()) kept = keepsEnd ? kept.slice(1) : kept.slice(0, -1);
        return kept === text || !kept ? kept : keepsEnd ? `…${kept}` : `${kept}…`;
    }

    function write(sheet, parent, x, y, text, {anchor = "start", className, room = Infinity, weight} = {}) {
        const shown = room < Infinity ? fit(sheet, text, room, weight, anchor === "end") : text;
        const made = node(parent, "text", {x, y, "font-size": sheet.em}, shown);
        if (anchor !== "start") made.setAttribute("text-anchor", anchor);
        if (className) made.setAttribute("class", className);
        return made;
    }

    // In the middle of a box.
    const inside = (sheet, x, y, height, text, pale) => write(sheet, sheet.svg, x, y + height / 2 + 0.35 * sheet.em,
        text, {anchor: "middle", className: pale ? "on-pale" : "in"});
    const line = (parent, className, x1, y1, x2, y2) => node(parent, "line", {class: className, x1, y1, x2, y2});
    const box = (x, y, width, height) =>
        `M${x.toFixed(2)} ${y.toFixed(2)}h${width.toFixed(2)}v${height.toFixed(2)}h${(-width).toFixed(2)}z`;

    // A line with a stroke at each end.
    function whisker(sheet, className, x1, y1, x2, y2, across, down) {
        line(sheet.svg, className, x1, y1, x2, y2);
        for (const [x, y] of [[x1, y1], [x2, y2]])
            line(sheet.svg, className, x - across, y - down, x + across, y + down);
    }

    const mark = (sheet, row, x, y, width, height, say) => sheet.marks.push({row, x, y, width, height, say});

    // Below a figure: what its colours mean. Returns the height.
    function legend(sheet, entries, x, y) {
        const em = sheet.em;
        let at = x, row = y;
        for (const entry of entries) {
            const name = fit(sheet, words(entry.name), sheet.width - x - 2 * em);
            const room = 1.5 * em + widthOf(sheet, name) + 1.3 * em;
            if (at > x && at + room - 1.3 * em > sheet.width) [at, row] = [x, row + 1.5 * em];
            const middle = row + 0.55 * em, style = `line ${entry.class}${entry.dashed ? " dashed" : ""}`;
            if (entry.line) line(sheet.svg, style, at, middle, at + 1.1 * em, middle);
            if (entry.marker) marker(sheet, entry.class, at + 0.55 * em, middle);
            if (!entry.line && !entry.marker)
                node(sheet.svg, "path", {class: entry.class, d: box(at, row + 0.1 * em, 1.1 * em, 0.9 * em)});
            write(sheet, sheet.svg, at + 1.5 * em, row + 0.92 * em, name);
            at += room;
        }
        return entries.length > 0 ? row - y + 1.4 * em : 0;
    }

    // Ticks below a drawing, their lines behind it. Returns the height.
    function xAxis(sheet, behind, scale, ticks, top, bottom, name) {
        const em = sheet.em;
        let free = -Infinity;
        for (const [place, text] of ticks.map(([value, text]) => [scale(value), text])) {
            const half = widthOf(sheet, text) / 2;
            line(behind, "grid", place, top, place, bottom);
            if (place - half < free) continue;
            const middle = Math.max(half, Math.min(place, sheet.wide - half));
            write(sheet, behind, middle, bottom + 1.15 * em, text, {anchor: "middle", className: "quiet"});
            free = middle + half + 0.5 * em;
        }
        const style = {className: "quiet", room: sheet.width - scale.begin};
        write(sheet, behind, scale.begin, bottom + 2.45 * em, name, style);
        return 2.8 * em;
    }

    function linear(low, high, begin, end) {
        const scale = (value) => begin + ((value - low) / (high - low || 1)) * (end - begin);
        return Object.assign(scale, {low, high, begin, end});
    }

    function logarithmic(low, high, begin, end) {
        const inner = linear(Math.log(low), Math.log(high), begin, end);
        return Object.assign((value) => inner(Math.log(value)), {low, high, begin, end});
    }

    function ticksOf(high, tick, text, low = 0) {
        const ticks = [];
        for (let k = Math.ceil(low / tick - 1e-6); k * tick <= high + tick * 1e-6 && ticks.length < 60; k++)
            ticks.push([k * tick + 0, text(k * tick + 0)]);
        return ticks;
    }

    // Figures on the screen: each paints itself anew where its place changes its width.

    const shown = new Map(); // element: {head, paint, width, at}
    const watch = new ResizeObserver((entries) => {
        for (const {target} of entries) {
            if (!target.isConnected) shown.delete(target);
            const state = shown.get(target);
            if (state && Math.abs(target.clientWidth - state.width) >= 1) repaint(target, state);
        }
    });

    function show(place, head, paint) {
        const state = {head, paint, width: 0, at: -1};
        shown.set(place, state);
        place.hidden = false;
        place.classList.add("chart");
        repaint(place, state);
        watch.observe(place);
    }

    function repaint(place, state, print) {
        const style = getComputedStyle(place), width = print?.width ?? place.clientWidth;
        if (!(width > 0)) return; // it is hidden, and paints itself when it no longer is
        const focused = place.contains(document.activeElement), id = `yoke-figure-${++serial}`, at = state.at;
        const svg = node(null, "svg", {xmlns: SVG, role: "img", tabindex: 0,
            "aria-labelledby": `${id}-title`, "aria-describedby": `${id}-text`});
        const em = print?.em ?? Math.max(14, parseFloat(style.fontSize) * 0.9);
        const root = print ? em : parseFloat(getComputedStyle(document.body).fontSize);
        const sheet = {svg, width, wide: width, em, root, family: style.fontFamily, marks: [], cuts: [], print, id};
        state.width = place.clientWidth;
        node(svg, "title", {id: `${id}-title`}, words(state.head.title));
        node(svg, "desc", {id: `${id}-text`}, words(state.head.text, 3000));
        const height = Math.ceil(state.paint(sheet));
        svg.setAttribute("viewBox", `0 0 ${Math.round(sheet.wide)} ${height}`);
        place.replaceChildren(svg);
        if (print && !place.closest(".slide")) place.replaceChildren(...rowsOf(svg, width, [0, ...sheet.cuts, height]));
        if (sheet.wide > width) {
            const pan = element(place, "div", "pan");
            svg.style.width = `${sheet.wide}px`;
            pan.onscroll = () => sheet.fixed.setAttribute("transform", `translate(${pan.scrollLeft})`);
            pan.append(svg);
        }
        state.at = at;
        const far = sheet.wide > width ? "The longest step leaves the page on the right: scroll to see its end." : [];
        const notes = list(state.head.notes).concat(far).join(" ");
        if (notes) element(place, "p", "meaning", notes);
        listen(place, sheet, state);
        if (focused) svg.focus({preventScroll: true});
    }

    // On paper a figure is a drawing for each of its rows, so that a page ends between them.
    function rowsOf(svg, width, cuts) {
        return cuts.slice(1).map((end, index) => {
            const part = svg.cloneNode(true);
            part.setAttribute("viewBox", `0 ${cuts[index]} ${width} ${end - cuts[index]}`);
            return part;
        });
    }

    // The mark at a point, or the closest one nearby; -1: none.
    function nearest(sheet, x, y) {
        let best = -1, least = 1.5 * sheet.em;
        sheet.marks.forEach((mark, index) => {
            const across = Math.max(mark.x - x, 0, x - mark.x - mark.width);
            const down = Math.max(mark.y - y, 0, y - mark.y - mark.height);
            const distance = Math.hypot(across, down) + 1e-3 * Math.abs(x - mark.x - mark.width / 2);
            if (distance < least) [best, least] = [index, distance];
        });
        return best;
    }

    // The mark that a key leads to from another.
    function follow(sheet, at, key) {
        const last = sheet.marks.length - 1, from = sheet.marks[at];
        if (key === "Home" || !from) return 0;
        if (key === "End") return last;
        if (key === "ArrowRight") return Math.min(last, at + 1);
        if (key === "ArrowLeft") return Math.max(0, at - 1);
        const rows = unique(sheet.marks.map((mark) => mark.row)), step = key === "ArrowDown" ? 1 : -1;
        const row = sheet.marks.filter((mark) => mark.row === rows[rows.indexOf(from.row) + step]);
        const far = (mark) => Math.abs(mark.x + mark.width / 2 - from.x - from.width / 2);
        return row.length > 0 ? sheet.marks.indexOf(row.reduce((a, b) => (far(b) < far(a) ? b : a))) : at;
    }

    function listen(place, sheet, state) {
        const readout = element(place, "output", "readout");
        const frame = node(sheet.svg, "path", {class: "mark", visibility: "hidden"});
        Object.assign(readout, {ariaLive: "polite", hidden: true});

        function visit(at) {
            const mark = sheet.marks[at], drawn = sheet.svg.getBoundingClientRect(), ratio = drawn.width / sheet.wide;
            state.at = mark ? at : -1;
            frame.setAttribute("visibility", mark ? "visible" : "hidden");
            readout.hidden = !mark;
            if (!mark) return;
            frame.setAttribute("d", box(mark.x - 2, mark.y - 2, mark.width + 4, mark.height + 4));
            readout.textContent = mark.say();
            const middle = drawn.left - place.getBoundingClientRect().left + (mark.x + mark.width / 2) * ratio;
            const left = middle - readout.offsetWidth / 2, above = mark.y * ratio - readout.offsetHeight - 8;
            const hidden = drawn.top + above < 0;
            readout.style.left = `${Math.max(0, Math.min(left, place.clientWidth - readout.offsetWidth))}px`;
            readout.style.top = `${hidden ? (mark.y + mark.height) * ratio + 8 : above}px`;
        }

        function point(event) {
            const drawn = sheet.svg.getBoundingClientRect(), ratio = sheet.wide / (drawn.width || 1);
            visit(nearest(sheet, (event.clientX - drawn.left) * ratio, (event.clientY - drawn.top) * ratio));
        }
        place.onpointermove = place.onpointerdown = point;
        place.onpointerleave = (event) => event.pointerType === "mouse" && visit(-1);
        sheet.svg.onblur = () => visit(-1);
        sheet.svg.onkeydown = (event) => {
            if (event.ctrlKey || event.altKey || event.metaKey) return;
            if (event.key === "Escape") sheet.svg.blur();
            else if (/^(Arrow|Home|End)/.test(event.key) && sheet.marks.length > 0) {
                visit(follow(sheet, state.at, event.key));
                frame.scrollIntoView({block: "nearest", inline: "center"});
                visit(state.at); // where it is now
                event.preventDefault();
            } else return;
            event.stopPropagation();
        };
        if (state.at >= 0) visit(Math.min(state.at, sheet.marks.length - 1));
    }

    // On paper: light, without readouts, and as wide as a page.
    addEventListener("beforeprint", () => {
        for (const [place, state] of shown) {
            if (!place.closest(".slide")) repaint(place, {...state, at: -1}, {width: 720, em: 13});
            else for (let em = 22, high = true; high && em > 7; em -= 2) {
                repaint(place, {...state, at: -1}, {width: 1000, em});
                high = place.firstChild.viewBox.baseVal.height > 340;
            }
        }
    });
    addEventListener("afterprint", () => shown.forEach((state, place) => repaint(place, state)));

    // Lanes of spans on one axis of time: of devices, and thin ones of links and of what is beside a device.
    // groups: [{name, value, length, lanes: [{name, kind, strong, spans}]}]
    // spans: [[begin, end, stage, bucket, bytes, cause]]; quiet: the colours are those of activities, not of stages.

    const hasBucket = (span) => span[3] >= 0 && span[3] !== null;
    const spanText = (lane, span) => [`${words(lane.name, 80)}: ${words(span[2], 40)}`,
        hasBucket(span) && `bucket ${span[3]}`, `${number(span[1] - span[0])} ms`,
        `from ${number(span[0])} to ${number(span[1])} ms`, span[4] > 0 && bytes(span[4]), words(span[5], 120)]
        .filter(Boolean).join(", ");
    const isSpan = (span) => Array.isArray(span) && isNumber(span[0]) && isNumber(span[1]) && span[1] >= span[0];
    const busy = (lane, of) => sum(list(lane.spans).filter(isSpan).filter((span) => !of || activity(span[2]) === of)
        .map((span) => span[1] - span[0]));

    function laneClass(chart, lane, stage) {
        if (lane.strong) return "strong";
        if (!chart.quiet || stage === "python") return stageClass(stage);
        return lane.kind === "link" ? "a-communicate" : `a-${activity(stage)}`;
    }

    // One path for each colour: a timeline may have thousands of spans. In quiet lanes neighbours of one colour join.
    function paintSpans(sheet, chart, lane, row, scale, y, height) {
        const paths = new Map(), em = sheet.em, labels = [];
        let open = null;
        const close = () => {
            if (!open) return;
            const {name, begin} = open, width = Math.max(0.4, open.end - begin);
            paths.set(name, (paths.get(name) ?? "") + box(begin, y, width, height));
            labels.push({...open, width});
            open = null;
        };
        for (const span of list(lane.spans).filter(isSpan)) {
            const name = laneClass(chart, lane, span[2]), begin = scale(span[0]), end = scale(span[1]);
            mark(sheet, row, begin, y, Math.max(1, end - begin), height, () => spanText(lane, span));
            if (name.endsWith("-idle") || (chart.quiet && end - begin < 0.2)) continue;
            const joins = open?.name === name && begin - open.end < 0.5 && (chart.quiet || end - begin < 1);
            if (!joins) close();
            const numbered = hasBucket(span) && !isPale(name), calm = chart.quiet && span[2] !== "python";
            const text = calm ? activity(span[2]) : numbered ? String(span[3]) : words(span[2], 40);
            open = joins ? {...open, end} : {name, begin, end, text};
        }
        close();
        for (const [name, d] of paths) node(sheet.svg, "path", {class: `span ${name}`, d});
        for (const {begin, width, name, text} of labels)
            if (height > em && width > 1.2 * em && widthOf(sheet, text, 600) + 0.5 * em <= width)
                inside(sheet, begin + width / 2, y, height, text, isPale(name));
    }

    function laneLegend(chart, groups) {
        const used = new Set(groups.flatMap((group) => group.lanes.flatMap((lane) => list(lane.spans).filter(isSpan)
            .map((span) => laneClass(chart, lane, span[2])))));
        const group = groups.find((one) => one.lanes.some((lane) => lane.strong));
        const lane = group?.lanes.find((one) => one.strong);
        const names = chart.quiet
            ? [["s-python", "runs Python"], ...Object.entries(ACTIVITIES).map(([key, name]) => [`a-${key}`, name])]
            : [...Object.keys(STAGES).map((stage) => [`s-${stage}`, stage]), ["s-other", "other"]];
        if (group) names.unshift(["strong", `the busiest link: ${number(busy(lane))} of ${number(group.length)} ms`]);
        const isShown = ([key]) => used.has(key) && !key.endsWith("-idle");
        return names.filter(isShown).map(([key, name]) => ({class: key, name}));
    }

    function lanes(place, chart) {
        const groups = list(chart.groups).map((group) => ({...group, lanes: list(group.lanes)}));
        const most = Math.max(0, ...groups.map((group) => group.length || 0), chart.length || 0,
            ...groups.flatMap((group) => group.lanes.flatMap((lane) => list(lane.spans).filter(isSpan)
                .reduce((last, span) => Math.max(last, span[1]), 0)))) || 1;
        show(place, {...chart, text: chart.text ?? laneWords(groups)}, (sheet) => {
            const em = sheet.em, behind = node(sheet.svg, "g");
            const names = chart.names ?? groups.flatMap((group) => group.lanes.map((lane) => lane.name));
            // As wide as in a larger figure of the page, so that a moment has one length.
            const wide = 1.03 * widest(sheet, unique(names).map((name) => words(name, 80)), 700) / em + 0.6;
            const left = Math.min(wide * Math.max(em, sheet.root), 0.34 * sheet.width), rest = 1.2 * sheet.root;
            // On the screen a step longer than `fill` leaves the width, and the reader scrolls.
            const fill = sheet.print || !chart.fill ? most : Math.min(most, Math.max(chart.fill, most / 8));
            const scale = linear(0, fill, left, sheet.width - rest), fixed = sheet.fixed = node(null, "g");
            const last = Math.max(fill, ...groups.map((group) => group.length || 0));
            sheet.wide = last > fill ? Math.ceil(scale(last) + rest) : sheet.width;
            let y = 0, row = 0;
            for (const group of groups) {
                const value = words(group.value), room = sheet.width - widthOf(sheet, value, 700);
                const title = fit(sheet, words(group.name), room, 700) + value;
                if (y > 0) sheet.cuts.push(y);
                write(sheet, fixed, 0, y + 1.15 * em, title, {className: "group"});
                y += 1.65 * em;
                const begin = y;
                for (const lane of group.lanes) {
                    const thin = lane.kind === "link" || lane.kind === "beside";
                    const pitch = (thin ? 1.22 : 1.62) * em, height = (thin ? 0.72 : 1.38) * em;
                    const top = y + (pitch - height) / 2, width = scale(group.length || most) - left;
                    const style = lane.strong ? {className: "strong-text", weight: 700}
                        : thin ? {className: "quiet"} : {};
                    node(behind, "path", {class: "lane", d: box(left, top, width, height)});
                    write(sheet, fixed, left - 0.5 * em, y + pitch / 2 + 0.35 * em, words(lane.name, 80),
                        {anchor: "end", room: left - 0.5 * em, ...style});
                    paintSpans(sheet, chart, lane, row++, scale, top, height);
                    y += pitch;
                }
                if (last > fill) fixed.prepend(node(null, "path", {class: "page", d: box(0, begin, left, y - begin)}));
                if (group.length > 0) line(sheet.svg, "axis", scale(group.length), begin, scale(group.length), y);
                y += 0.5 * em;
            }
            sheet.svg.append(fixed);
            const tick = tickOf(fill, (scale.end - left) / (5 * em));
            y += xAxis(sheet, behind, scale, ticksOf(last, tick, (value) => plain(value, tick)), 1.5 * em, y,
                chart.x ?? "ms since the step began");
            return y + 0.4 * em + legend(sheet, laneLegend(chart, groups), 0, y + 0.4 * em);
        });
    }

    function laneWords(groups) {
        const spent = (lane) => Object.entries(ACTIVITIES).filter(([of]) => busy(lane, of) > 0)
            .map(([of, verb]) => `${verb} for ${number(busy(lane, of))} ms`).join(", ") || "does nothing";
        const laneText = (lane) => `${words(lane.name, 80)} ` +
            (lane.kind === "link" ? `is busy for ${number(busy(lane))} ms` : spent(lane));
        return `A lane for each device and each link, along the time of a step. ${groups.slice(0, 4).map((group) =>
            `${words(group.name, 80)}: ${group.lanes.slice(0, 8).map(laneText).join("; ")}.`).join(" ")}`;
    }

    // Bars from left to right, in parts.
    // rows: [{group, name, parts: [{name, class, value}], low, high}]; unit: a key of UNITS; most: the end of the axis

    function bars(place, chart) {
        const all = list(chart.rows), rows = all.slice(0, ROWS), unit = UNITS[chart.unit ?? ""] ?? number;
        const partsOf = (row) => list(row.parts).filter((part) => part.value > 0 && isNumber(part.value));
        const total = (row) => sum(partsOf(row).map((part) => part.value));
        const valueText = (row) => unit(total(row)) + between(row.low, row.high);
        const nameOf = (row) => words(row.group ? `${row.group}, ${row.name}` : row.name, 120);
        const most = chart.most || Math.max(0, ...rows.map((row) => Math.max(total(row), row.high || 0))) || 1;
        const keyOf = (part) => `${part.class} ${part.name}`, used = new Set(rows.flatMap(partsOf).map(keyOf));
        const named = new Map(rows.flatMap((row) => list(row.parts)).map((part) => [keyOf(part), part]));
        const entries = [...named.values()].filter((part) => used.has(keyOf(part)));
        const cut = all.length > ROWS ? `Only the first ${ROWS} of ${decimal(all.length, 0)} bars are drawn.` : [];
        const notes = list(chart.notes).concat(cut);
        const text = chart.text ?? `A bar for each row. ${rows.slice(0, 16).map((row) =>
            `${nameOf(row)}: ${valueText(row)}`).join("; ")}.`;
        show(place, {...chart, text, notes}, (sheet) => {
            const em = sheet.em, behind = node(sheet.svg, "g");
            const names = widest(sheet, rows.map((row) => words(row.name, 80)));
            const ends = widest(sheet, rows.map((row) => unit(total(row))), 600);
            const above = names + 0.6 * em > 0.36 * sheet.width; // long names stand above their bars
            const left = above ? 0 : names + 0.6 * em;
            const scale = linear(0, most, left, sheet.width - ends - 0.8 * em);
            let y = 0;
            rows.forEach((row, index) => {
                const isFirst = row.group && row.group !== rows[index - 1]?.group;
                if (index > 0 && (row.group ? isFirst : index % 4 === 0)) sheet.cuts.push(y);
                if (isFirst) {
                    write(sheet, sheet.svg, 0, y + 1.15 * em, words(row.group),
                        {className: "group", room: sheet.width, weight: 700});
                    y += 1.65 * em;
                }
                const style = above ? {room: sheet.width} : {anchor: "end"};
                write(sheet, sheet.svg, above ? 0 : left - 0.5 * em, y + 1.1 * em, words(row.name, 200), style);
                y += above ? 1.3 * em : 0;
                const height = 1.4 * em, top = y + 0.1 * em;
                let value = 0;
                for (const part of partsOf(row)) {
                    const begin = scale(value), width = Math.max(0.5, scale(value + part.value) - begin);
                    const name = words(part.name, 80);
                    node(sheet.svg, "path", {class: `span ${part.class}`, d: box(begin, top, width, height)});
                    if (entries.length > 1 && widthOf(sheet, name, 600) + 0.6 * em <= width)
                        inside(sheet, begin + width / 2, top, height, name, isPale(part.class));
                    mark(sheet, index, begin, top, Math.max(1, width), height, () => `${nameOf(row)}: ` +
                        (entries.length > 1 ? `${name} ${unit(part.value)}, of ${unit(total(row))}` : valueText(row)));
                    value += part.value;
                }
                const middle = top + height / 2, high = row.high > row.low ? row.high : 0;
                const end = Math.min(scale(Math.max(value, high)) + 0.5 * em, sheet.width - ends);
                if (high) whisker(sheet, "whisker", scale(row.low), middle, scale(high), middle, 0, 0.3 * em);
                write(sheet, sheet.svg, end, y + 1.15 * em, unit(total(row)), {className: "value"});
                y += 1.7 * em;
            });
            const count = (scale.end - left) / ((chart.unit === "bytes" ? 8 : 5) * em);
            const tick = tickOf(most, count, chart.unit === "bytes" ? 2 : 10);
            const ticks = ticksOf(most, tick, chart.unit === "bytes" ? bytes : (value) => plain(value, tick));
            y += xAxis(sheet, behind, scale, ticks, 0, y, chart.x ?? "");
            return y + (entries.length > 1 ? 0.4 * em + legend(sheet, entries, 0, y + 0.4 * em) : 0);
        });
    }

    // Lines and points over two axes.
    // series: [{name, class, points: [[x, y, low, high]], markers, apart, guide, dashed, upright}]
    // x: {name, log, counts}; y: {name, zero, most}. apart: no line joins the points. guide: it scales no axis.
    // counts: ticks stand only at values of x that a series has.

    const SHAPES = ["m-.3 0a.3 .3 0 1 0 .6 0a.3 .3 0 1 0 -.6 0z", "m-.27 -.27h.54v.54h-.54z",
        "m0 -.38l.38 .38l-.38 .38l-.38 -.38z", "m0 -.35l.35 .62h-.7z", "m0 .35l.35 -.62h-.7z"];

    function marker(sheet, className, x, y) {
        const shape = SHAPES[(Number(className.at(-1)) || 0) % SHAPES.length];
        const d = `M${x.toFixed(1)} ${y.toFixed(1)}` +
            shape.replace(/-?\d*\.\d+/g, (part) => (Number(part) * sheet.em).toFixed(1));
        node(sheet.svg, "path", {class: `dot ${className}`, d});
    }

    function rangeOf(chart, series) {
        const points = series.filter((one) => !one.guide).flatMap((one) => one.points);
        const ends = (all) => [Math.min, Math.max].map((of) => all.reduce((a, b) => of(a, b), of()));
        const [low, high] = ends(points.flatMap((point) => point.slice(1).filter(isNumber)));
        const x = ends(points.map((point) => point[0]));
        const y = [chart.y?.zero ? Math.min(0, low) : low, chart.y?.most > 0 ? Math.min(high, chart.y.most) : high];
        if (x[0] === x[1]) x[1] = chart.x?.log ? 10 * x[0] : x[0] + 1;
        return {x, y: y[0] < y[1] ? y : [Math.min(0, low), Math.max(0, high) || 1]};
    }

    function countTicks(chart, series, range) {
        if (chart.x?.counts) {
            const counts = unique(series.filter((one) => !one.guide).flatMap((one) => one.points.map(([x]) => x)));
            return counts.sort((a, b) => a - b).map((value) => [value, count(value)]);
        }
        const ticks = [];
        for (let k = Math.ceil(Math.log10(range.x[0]) - 1e-9); 10 ** k <= range.x[1] * 1.000001; k++)
            ticks.push([10 ** k, k >= -3 && k < 6 ? String(Number((10 ** k).toPrecision(1))) : `1e${k}`]);
        return ticks;
    }

    // The names of lines at their ends, apart from each other.
    function nameEnds(sheet, chart, series, place, right) {
        const em = sheet.em, labels = series.filter((one) => !one.guide && one.points.length > 0).map((one) =>
            ({one, y: place.y(Math.min(one.points.at(-1)[1], place.y.high))})).sort((a, b) => a.y - b.y);
        labels.forEach((label, index) => {
            if (index > 0) label.y = Math.max(label.y, labels[index - 1].y + 1.2 * em);
        });
        const over = labels.length > 0 ? Math.max(0, labels.at(-1).y - place.y.begin) : 0;
        for (const {one, y} of labels)
            write(sheet, sheet.svg, right + 0.6 * em, y - over + 0.35 * em, words(one.name),
                {className: `name ${one.class}`, room: sheet.width - right - 0.6 * em, weight: 600});
    }

    function paintSeries(sheet, chart, one, row, place, clip) {
        const em = sheet.em, {x, y} = place;
        if (!one.apart && one.points.length > 1)
            node(clip, "path", {class: `line ${one.class}${one.dashed ? " dashed" : ""}`,
                d: one.points.map((point, index) => `${index ? "L" : "M"}${x(point[0]).toFixed(1)} ` +
                    Math.max(-1e4, Math.min(1e4, y(point[1]))).toFixed(1)).join("")});
        if (one.guide) return nameGuide(sheet, one, place);
        const stride = Math.ceil(one.points.length / 500);
        one.points.forEach((point, index) => {
            const [at, value, low, high] = point, left = x(at), top = y(value);
            if (value > y.high * (1 + 1e-9) || (index % stride && index + 1 < one.points.length)) return;
            if (one.upright) line(sheet.svg, `line ${one.class}`, left, y.end, left, y.begin);
            if (high > low) whisker(sheet, `line ${one.class}`, left, y(low), left, y(high), 0.25 * em, 0);
            if (one.markers) marker(sheet, one.class, left, top);
            mark(sheet, row, left - 0.3 * em, top - 0.3 * em, 0.6 * em, 0.6 * em, () =>
                `${words(one.name, 80)}: ${number(value)}${between(low, high)} ` +
                `${words(chart.y?.name ?? "", 40)} at ${words(chart.x?.name ?? "x", 40)} ${count(at)}`);
        });
    }

    // Where a guide leaves the drawing, or at its end.
    function nameGuide(sheet, guide, {x, y}) {
        const last = guide.points.at(-1), seen = guide.points.findLast((point) => point[1] <= y.high) ?? last;
        const text = `${words(guide.name, 40)}: ${number(last[1])} at ${count(last[0])}`, left = x(seen[0]);
        const isRoom = left + widthOf(sheet, text) + sheet.em < x.end;
        write(sheet, sheet.svg, left + (isRoom ? 0.5 : -0.9) * sheet.em, y(seen[1]) + 1.1 * sheet.em, text,
            {anchor: isRoom ? "start" : "end", className: "quiet"});
    }

    function xy(place, chart) {
        const isPoint = (point) => Array.isArray(point) && isNumber(point[0]) && isNumber(point[1]) &&
            (!chart.x?.log || point[0] > 0);
        const series = list(chart.series).map((one) => ({...one, points: list(one.points).filter(isPoint)}))
            .filter((one) => one.points.length > 0);
        const end = ([x, y]) => `${number(y)} at ${count(x)}`;
        const ends = (one) => `${words(one.name, 80)}: from ${end(one.points[0])} to ${end(one.points.at(-1))}`;
        const text = chart.text ?? `${words(chart.y?.name ?? "values")} against ${words(chart.x?.name ?? "x")}. ` +
            `${series.slice(0, 12).map(ends).join("; ")}.`;
        show(place, {...chart, text}, (sheet) => {
            const em = sheet.em, range = rangeOf(chart, series), behind = node(sheet.svg, "g");
            const drawn = series.filter((one) => !one.guide);
            const names = widest(sheet, drawn.map((one) => words(one.name, 80)), 600);
            const direct = drawn.length > 1 && drawn.length <= 8 && !drawn.some((one) => one.apart) &&
                names + 0.8 * em < 0.3 * sheet.width;
            const height = Math.min(19 * em, Math.max(11 * em, 0.5 * sheet.width)), top = 1.9 * em;
            const tick = tickOf(range.y[1] - range.y[0], 5);
            const low = Math.floor(range.y[0] / tick + 1e-6) * tick, high = Math.ceil(range.y[1] / tick - 1e-6) * tick;
            const ticks = ticksOf(high, tick, (value) => (tick < 1e-4 || tick >= 1e9 ? number(value)
                : plain(value, tick)), low);
            const left = widest(sheet, ticks.map(([, text]) => text)) + 0.7 * em;
            const right = sheet.width - (direct ? names + 0.8 * em : 0.9 * em), bottom = top + height;
            const inset = chart.x?.counts ? 1.2 * em : 0;
            const log = chart.x?.log || (chart.x?.counts && range.x[0] > 0 && range.x[1] > 32 * range.x[0]);
            const x = (log ? logarithmic : linear)(range.x[0], range.x[1], left + inset, right - inset);
            const scales = {x, y: linear(low, high, bottom, top)}, width = right - left;
            const viewBox = `${left} ${top} ${width} ${height}`;
            const clip = node(sheet.svg, "svg", {x: left, y: top, width, height, viewBox});
            write(sheet, behind, 0, 1.05 * em, words(chart.y?.name ?? ""), {className: "quiet", room: sheet.width});
            for (const [value, text] of ticks) {
                const at = scales.y(value);
                line(behind, "grid", left, at, right, at);
                write(sheet, behind, left - 0.5 * em, at + 0.35 * em, text, {anchor: "end", className: "quiet"});
            }
            const step = tickOf(range.x[1] - range.x[0], (right - left) / (5 * em));
            const across = chart.x?.counts || chart.x?.log ? countTicks(chart, series, range)
                : ticksOf(range.x[1], step, (value) => plain(value, step), range.x[0]);
            let y = bottom + xAxis(sheet, behind, scales.x, across, bottom, bottom + 0.3 * em, words(chart.x?.name));
            for (const apart of [true, false]) // lines lie over points that none joins
                series.forEach((one, row) => !one.apart !== apart && paintSeries(sheet, chart, one, row, scales, clip));
            sheet.marks.sort((a, b) => a.row - b.row);
            if (direct) nameEnds(sheet, chart, series, scales, right);
            else if (drawn.length > 1) y += 0.5 * em + legend(sheet, drawn.map((one) =>
                ({...one, line: !one.apart, marker: one.markers})), 0, y + 0.5 * em);
            return y + 0.3 * em;
        });
    }

    // Counts by row and column; the colour is the share of the row.
    // names: [classes]; counts: [classes][classes]

    function matrix(place, chart) {
        const counts = list(chart.counts).map(list), size = counts.length;
        const names = counts.map((_, index) => words(list(chart.names)[index] ?? index, 80));
        const rights = sum(counts.map((row, index) => row[index])), all = sum(counts.map(sum));
        const text = chart.text ?? `A cell for each true class and each predicted class. ${decimal(rights, 0)} of ` +
            `${decimal(all, 0)} rows are on the diagonal, where both are equal.`;
        show(place, {...chart, text}, (sheet) => {
            const em = sheet.em, longest = widest(sheet, names);
            const left = Math.min(longest + 1.8 * em, 0.36 * sheet.width);
            const head = Math.min(longest + 0.8 * em, 9 * em), top = 1.6 * em + head;
            const cell = Math.min((sheet.print ? 2.8 : 4.2) * em, (sheet.width - left - 2) / (size || 1));
            const every = Math.max(1, Math.ceil((1.15 * em) / cell)), paths = new Map(), numbers = [];
            const axes = "row: true class; column: predicted class";
            write(sheet, sheet.svg, 0, em, axes, {className: "quiet", room: sheet.width});
            counts.forEach((row, label) => {
                const total = sum(row), y = top + label * cell, x = left + (label + 0.5) * cell + 0.35 * em;
                if (label % every === 0) {
                    write(sheet, sheet.svg, left - 0.5 * em, y + cell / 2 + 0.35 * em,
                        fit(sheet, names[label], left - 0.5 * em), {anchor: "end"});
                    write(sheet, sheet.svg, x, top - 0.4 * em, names[label], {room: head - 0.6 * em})
                        .setAttribute("transform", `rotate(-90 ${x.toFixed(1)} ${(top - 0.4 * em).toFixed(1)})`);
                }
                for (let predicted = 0; predicted < size; predicted++) {
                    const count = row[predicted] > 0 ? row[predicted] : 0, share = total > 0 ? count / total : 0;
                    const x = left + predicted * cell, level = count > 0 ? Math.min(5, 1 + Math.floor(share * 5)) : 0;
                    paths.set(level, (paths.get(level) ?? "") + box(x, y, cell, cell));
                    if (count > 0 || label === predicted)
                        mark(sheet, label, x, y, cell, cell, () => `${decimal(count, 0)} of the ${decimal(total, 0)} ` +
                            `rows of class ${names[label]} (${number(100 * share)} %) taken for ${names[predicted]}`);
                    if (count > 0 && cell >= 1.2 * em && widthOf(sheet, String(count), 600) + 0.3 * em <= cell)
                        numbers.push([x + cell / 2, y, String(count), level < 4]);
                }
            });
            for (const [level, d] of paths) node(sheet.svg, "path", {class: `cell k${level}`, d});
            for (const [x, y, text, pale] of numbers) inside(sheet, x, y, cell, text, pale);
            return top + size * cell + 3;
        });
    }

    // Wrong rows with their pictures.
    function pictures(place, {rows, name}) {
        const all = element(null, "ul", "pictures");
        for (const row of rows) {
            const item = element(all, "li"), percent = `${decimal(100 * (row.probability || 0), 0)}\u00a0%`;
            const [label, predicted] = [name(row.label), name(row.predicted)];
            const alt = `row ${row.row}: ${label}, taken for ${predicted} with ${percent}`;
            if (/^data:image\/(png|jpeg);base64,/.test(row.picture ?? ""))
                Object.assign(element(item, "img"), {src: row.picture, alt});
            element(item, "b", "", label);
            element(item, "span", "", `taken for ${predicted}, ${percent}`);
            element(item, "span", "quiet", `row ${count(row.row)}, loss ${number(row.loss)}`);
        }
        place.hidden = false;
        place.replaceChildren(all);
    }

    // From the model of a page to figures. Each returns whether it has the data.

    const modesOf = (page) => list(page.modes).filter((mode) => mode && typeof mode === "object");
    const labelOf = (mode) => mode.label || mode.name || "";
    const lanesOf = (mode, ...kinds) => list(mode.lanes).filter((lane) => kinds.includes(lane?.kind));
    const value = (interval) => (Array.isArray(interval) && interval[0] > 0 ? interval[0] : 0);
    const lengthOf = (mode) => mode.shown_ms || value(mode.step_ms) || mode.mean_step_ms || 0;
    const hasSpans = (lane) => list(lane?.spans).length > 0;
    const longest = (modes) => Math.max(0, ...modes.filter((mode) => list(mode.lanes).length > 0).map(lengthOf));
    // Of every timeline of a page: the longest step, the longest one of the first picture, the names beside the axis.
    const axisOf = (page, all = modesOf(page)) => ({
        length: longest(all), fill: longest(all.filter((mode) => mode.first)),
        names: all.flatMap((mode) => list(mode.lanes).map((lane) => lane?.name))});

    function give(how, place, chart) {
        const heading = place.closest("section")?.querySelector("h2, h1") ?? document.querySelector("h1");
        how(place, {title: heading?.textContent ?? document.title, ...chart});
        return true;
    }

    function groupOf(mode, kept) {
        const drawn = lengthOf(mode), step = value(mode.step_ms) || mode.mean_step_ms || drawn;
        const other = Math.abs(drawn - step) > 0.03 * step ? ` (this step: ${number(drawn)} ms)` : "";
        return {name: labelOf(mode), value: `: ${number(step)} ms${other}`, length: drawn, lanes: kept};
    }

    // The picture of the first screen: as many devices as it has room for, and their links.
    function drawFirst(place, page) {
        const isFirst = (mode) => mode.first && lengthOf(mode) > 0 && list(mode.lanes).some(hasSpans);
        const modes = modesOf(page).filter(isFirst).slice(0, 4), links = modes.flatMap((mode) => lanesOf(mode, "link"));
        const others = ["rates", "accuracy", "loss", "classes", "throughput"];
        if (modes.length === 0) // of several runs their speed, of one what it learned
            return (modesOf(page).length > 1 ? others.reverse() : others).some((name) => draw(place, name, page));
        const height = place.closest(".slide") ? 22 : 34; // of a screen, in letters
        const room = Math.max(2, Math.floor((height / modes.length - 2.2) / (links.length > 0 ? 2.84 : 1.62)));
        const most = Math.max(0, ...links.map((lane) => busy(lane))), isBusiest = (lane) => busy(lane) >= 0.98 * most;
        // Where most links are busy alike, or none is busy for long, none is the busiest.
        const any = most > 0.05 * longest(modes) && 2 * links.filter(isBusiest).length <= Math.max(2, links.length);
        const groups = modes.map((mode) => {
            const own = lanesOf(mode, "link").map((lane) => ({...lane, strong: any && isBusiest(lane)}));
            const isKept = (_, k) => k < room || k === own.findIndex((lane) => lane.strong);
            return groupOf(mode, [...lanesOf(mode, "device").filter(isKept), ...own.filter(isKept)]);
        });
        const cut = modes.some((mode) => lanesOf(mode, "device").length > room);
        const notes = cut ? [`This picture has the first ${room} devices of each run.`] : [];
        return give(lanes, place, {groups, ...axisOf(page), quiet: true, notes});
    }

    function drawTimeline(place, page) {
        const all = modesOf(page).map((mode) => groupOf(mode, list(mode.lanes).filter(hasSpans)));
        const count = sum(all.map((group) => group.lanes.length));
        let room = ROWS;
        for (const group of all) room -= (group.lanes = group.lanes.slice(0, room)).length;
        const groups = all.filter((group) => group.lanes.length > 0);
        const notes = count > ROWS ? [`Only the first ${ROWS} of ${decimal(count, 0)} lanes are drawn.`] : [];
        return groups.length > 0 && give(lanes, place, {groups, ...axisOf(page), notes});
    }

    // Bars in order of speed where each mode has one number of devices; curves where one has several.
    function drawScaling(place, page, name) {
        const rate = name === "throughput", key = rate ? "images_per_second" : "step_ms";
        const modes = modesOf(page).filter((mode) => value(mode[key]) > 0), unit = rate ? "rows a second" : "ms a step";
        const counts = unique(modes.filter((mode) => mode.devices > 0).map((mode) => mode.devices));
        const on = (mode) => (counts.length > 1 && !/ on \d+$/.test(labelOf(mode)) ? ` on ${count(mode.devices)}` : "");
        const names = unique(modes.map((mode) => String(mode.name)));
        if (counts.length < 2 || names.length === modes.length) {
            const rows = [...modes].sort((a, b) => (rate ? 1 : -1) * (value(a[key]) - value(b[key]))).map((mode) => ({
                name: labelOf(mode) + on(mode), low: mode[key][1], high: mode[key][2],
                parts: [{name: unit, class: "amount", value: value(mode[key])}]}));
            return rows.length > 0 && give(bars, place, {x: unit, unit: rate ? "" : "ms", rows});
        }
        const series = names.map((one, index) => ({
            name: one, class: `m${index % 8}`, markers: true, dashed: index >= 8,
            points: modes.filter((mode) => String(mode.name) === one && mode.devices > 0)
                .map((mode) => [mode.devices, ...mode[key]]).sort((a, b) => a[0] - b[0])}));
        const base = modes.find((mode) => mode.devices === 1), most = Math.max(...counts);
        // A simulation's devices keep their rows; those of a race share a batch.
        const ideal = (devices) => value(base[key]) * (rate ? devices : page.simulated ? 1 : 1 / devices);
        const steps = Array.from({length: 65}, (_, index) => most ** (index / 64));
        if (base) series.push({name: "ideal", class: "guide", guide: true, dashed: true,
            points: steps.map((devices) => [devices, ideal(devices)])});
        return give(xy, place, {series, x: {name: "devices", counts: true}, y: {name: unit, zero: true}});
    }

    const someParts = (rows) => rows.filter((row) => row.parts.some((part) => part.value > 0));

    function drawStages(place, page) {
        const mean = (all, stage) => sum(all.map((lane) => lane.stage_ms?.[stage])) / (all.length || 1);
        const partsOf = (all) => Object.keys(STAGES).map((stage) =>
            ({name: stage, class: stageClass(stage), value: mean(all, stage)}));
        const rows = someParts(modesOf(page).map((mode) =>
            ({name: labelOf(mode), parts: partsOf(lanesOf(mode, "device"))})));
        return rows.length > 0 && give(bars, place, {rows, unit: "ms", x: "ms in a step, mean over devices"});
    }

    function drawDevices(place, page) {
        const spent = (lane, of) => sum(Object.entries(lane.stage_ms ?? {}).filter(([stage]) => activity(stage) === of)
            .map(([, ms]) => ms));
        const rows = someParts(modesOf(page).flatMap((mode) => lanesOf(mode, "device").map((lane) => ({
            group: labelOf(mode), name: lane.name, parts: Object.entries(ACTIVITIES).map(([of, verb]) =>
                ({name: verb, class: `a-${of}`, value: spent(lane, of)}))}))));
        return rows.length > 0 && give(bars, place, {rows, unit: "ms", x: "ms in a step"});
    }

    function drawAmounts(place, page, name) {
        const kinds = ["weights", "gradients", "optimizer", "activations", "out", "in"];
        const classOf = (what) => (kinds.includes(what) ? `b-${what}` : stageClass(what));
        const partsOf = (all) => all.map(([, what, value]) => ({name: what, class: classOf(what), value}));
        const rows = modesOf(page).flatMap((mode) => {
            const all = list(mode[name]).filter(Array.isArray), places = unique(all.map(([where]) => where));
            return places.map((where) => ({group: labelOf(mode), name: where,
                parts: partsOf(all.filter((one) => one[0] === where))}));
        });
        const x = name === "memory" ? "bytes at the peak" : "bytes in a step";
        return someParts(rows).length > 0 && give(bars, place, {rows, unit: "bytes", x});
    }

    const CURVES = {
        loss: ["loss", "loss", "test-loss"], accuracy: ["% of the rows", "training-accuracy", "accuracy"],
        "test-loss": ["loss of the test split"], "learning-rate": ["learning rate"], "step-ms": ["ms a step"],
        images: ["rows a second"],
    };

    // Of one run, the batches and the test split share a figure.
    function drawCurve(place, page, name) {
        const modes = modesOf(page), [unit, batches, test] = CURVES[name];
        const lineOf = (mode, key, label, index) => ({name: label, class: `m${index % 8}`, dashed: index % 2 === 1,
            points: list(mode.curves?.[key]), markers: list(mode.curves?.[key]).length <= 12});
        const series = (modes.length === 1 && test
            ? [lineOf(modes[0], batches, "training batches", 0), lineOf(modes[0], test, "test split", 1)]
            : modes.map((mode, index) => lineOf(mode, name, labelOf(mode), index)))
            .filter((one) => one.points.length > 0);
        return series.some((one) => one.points.length > 1) && give(xy, place, {series, x: {name: "step"},
            y: {name: unit, zero: ["learning-rate", "step-ms", "images"].includes(name)}});
    }

    function drawRates(place, page) {
        const {rates, losses, smoothed, suggested} = page.rates ?? {}, values = list(smoothed);
        if (list(rates).length < 2) return false;
        const high = Math.max(...values.slice(0, values.indexOf(Math.min(...values)) + 1));
        const low = Math.min(...list(losses).filter(isNumber));
        const pairs = (all) => rates.map((rate, k) => [rate, all?.[k]]);
        const series = [{name: "loss of a batch", class: "m1", apart: true, markers: true, points: pairs(losses)},
            {name: "smoothed loss", class: "m0", points: pairs(values)}];
        if (suggested >= 0 && isNumber(values[suggested])) series.push({
            name: `suggested rate ${number(rates[suggested])}`, class: "m2", markers: true, upright: true, apart: true,
            points: [[rates[suggested], values[suggested]]]});
        const x = {name: "learning rate", log: true};
        return give(xy, place, {series, x, y: {name: "loss", most: 2 * high - low}});
    }

    const className = (page) => (index) => words(list(page.predictions?.names)[index] ?? index, 80);

    function drawClasses(place, page) {
        const {counts, rows: tested, right} = page.predictions ?? {}, name = className(page);
        const rowsOf = list(tested ?? list(counts).map(sum)), rightOf = right ?? list(counts).map((row, k) => row[k]);
        const part = (k) => ({name: "classified correctly", class: "amount", value: (100 * rightOf[k]) / rowsOf[k]});
        const all = rowsOf.map((_, k) => ({name: name(k), parts: [part(k)]})).filter((_, k) => rowsOf[k] > 0);
        const sorted = [...all].sort((a, b) => a.parts[0].value - b.parts[0].value);
        const rows = all.length <= 32 ? all : [...sorted.slice(0, 12).map((row) => ({...row, group: "lowest"})),
            ...sorted.slice(-12).map((row) => ({...row, group: "highest"}))];
        const x = "% of the rows of the class", notes = rows.length < all.length &&
            ["The figure has the 12 classes of the lowest accuracy and the 12 of the highest; the table has all."];
        return rows.length > 0 && give(bars, place, {rows, unit: "percent", most: 100, x, notes});
    }

    function drawConfusion(place, page) {
        const counts = list(page.predictions?.counts), names = counts.map((_, index) => className(page)(index));
        return counts.length > 0 && counts.length <= 100 && give(matrix, place, {counts, names});
    }

    function drawMisclassified(place, page) {
        const rows = list(page.predictions?.misclassified).slice(0, 64);
        return rows.length > 0 && give(pictures, place, {rows, name: className(page)});
    }

    const FIGURES = {
        first: drawFirst, throughput: drawScaling, "step-time": drawScaling, timeline: drawTimeline, stages: drawStages,
        devices: drawDevices, memory: drawAmounts, links: drawAmounts, moved: drawAmounts, rates: drawRates,
        classes: drawClasses, confusion: drawConfusion, misclassified: drawMisclassified,
        ...Object.fromEntries(Object.keys(CURVES).map((name) => [name, drawCurve])),
    };

    // Draws a figure of a page's model; hides the element where its data are missing, and returns whether it drew.
    function draw(place, name, page) {
        const drawn = Object.hasOwn(FIGURES, name) && Boolean(FIGURES[name](place, page ?? {}, name));
        if (!drawn) place.hidden = true;
        return drawn;
    }

    // Slides of Markdown: headings, lists, tables, quotes, code, images, links and emphasis, with "---" between slides.

    // An address that runs nothing.
    const isSafe = (url) => !/^[a-z][a-z0-9+.-]*:/i.test(url) || /^(https?:|mailto:|data:image\/)/i.test(url);

    function inline(parent, text) {
        const sign = /`([^`]+)`|\*\*(.+?)\*\*|\*([^*\s][^*]*)\*|(!?)\[([^\]]*)\]\(([^)\s]+)\)/.exec(text);
        if (!sign) return parent.append(text);
        const [all, code, strong, emphasis, bang, name, url] = sign;
        parent.append(text.slice(0, sign.index));
        if (code) element(parent, "code", "", code);
        else if (strong || emphasis) inline(element(parent, strong ? "strong" : "em"), strong || emphasis);
        else if (!isSafe(url)) parent.append(name);
        else if (bang) Object.assign(element(parent, "img"), {src: url, alt: name});
        else inline(Object.assign(element(parent, "a"), {href: url}), name);
        return inline(parent, text.slice(sign.index + all.length));
    }

    const ITEM = /^\s*([-*+]|\d+[.)])\s+/;

    function items(parent, lines) {
        const indent = lines[0].search(/\S/), all = element(parent, /^\s*\d/.test(lines[0]) ? "ol" : "ul");
        for (let k = 0; k < lines.length;) {
            const item = element(all, "li"), head = lines[k++].replace(ITEM, ""), rest = [];
            while (k < lines.length && lines[k].search(/\S/) > indent) rest.push(lines[k++]);
            const inner = rest.findIndex((one) => ITEM.test(one)), own = inner < 0 ? rest : rest.slice(0, inner);
            inline(item, [head, ...own.map((one) => one.trim())].join(" "));
            if (inner >= 0) items(item, rest.slice(inner));
        }
    }

    function table(parent, lines) {
        const all = element(parent, "table"), cells = (row) => row.replace(/^\||\|\s*$/g, "").split("|");
        lines.filter((row) => !/^[|\s:-]+$/.test(row)).forEach((row, index) => {
            const made = element(all, "tr");
            for (const cell of cells(row)) inline(element(made, index > 0 ? "td" : "th"), cell.trim());
        });
    }

    // A block of code; or "figure NAME PAGE" draws a figure of an embedded page, with the block's text below it.
    function fenced(parent, kind, text, pages) {
        const [what, name, file] = kind.trim().split(/\s+/);
        if (what !== "figure") return element(element(parent, "pre"), "code", "", text);
        const all = element(parent, "figure"), page = pages[file] ?? Object.values(pages)[0];
        if (!draw(element(all, "div", "chart"), name, page))
            element(all, "p", "note", `${file ?? "the page"} has no figure ${name}.`);
        return text.trim() && inline(element(all, "figcaption"), text);
    }

    function blocks(parent, lines, pages) {
        let k = 0;
        const take = (test) => {
            const from = k;
            while (k < lines.length && test(lines[k])) k++;
            return lines.slice(from, k);
        };
        while (k < lines.length) {
            const first = lines[k], fence = /^(```+)(.*)$/.exec(first), heading = /^(#{1,4})\s+(.*)$/.exec(first);
            if (fence) {
                k++;
                fenced(parent, fence[2], take((one) => !one.startsWith(fence[1])).join("\n"), pages);
                k++;
            } else if (heading) {
                inline(element(parent, `h${heading[1].length}`), heading[2]);
                k++;
            } else if (ITEM.test(first)) items(parent, take((one) => one.trim() !== ""));
            else if (first.startsWith("|")) table(parent, take((one) => one.startsWith("|")));
            else if (first.startsWith(">")) {
                const quoted = take((one) => one.startsWith(">")).map((one) => one.replace(/^> ?/, ""));
                blocks(element(parent, "blockquote"), quoted, pages);
            } else if (first.trim() === "") k++;
            else inline(element(parent, "p"), take((one) => !/^(\s*$|```|#{1,4}\s|\||>)/.test(one)).join(" "));
        }
    }

    // The lines of each slide and of its notes, which begin with "Note:".
    function parts(text) {
        const all = [{lines: [], notes: []}];
        let fence = false;
        for (const one of text.replace(/\r/g, "").split("\n")) {
            const slide = all.at(-1);
            fence = one.startsWith("```") ? !fence : fence;
            if (!fence && /^---+\s*$/.test(one)) all.push({lines: [], notes: []});
            else if (slide.notes.length > 0 || (!fence && /^Notes?:/.test(one)))
                slide.notes.push(one.replace(/^Notes?:\s*/, ""));
            else slide.lines.push(one);
        }
        return all.filter((slide) => slide.lines.some((one) => one.trim() !== ""));
    }

    // Smaller text where a slide is fuller than the screen.
    function shrink(slide) {
        for (const scale of [1, 0.92, 0.84, 0.76, 0.68, 0.6, 0.52, 0.45]) {
            slide.style.setProperty("--scale", scale);
            shown.forEach((state, place) => slide.contains(place) && repaint(place, state));
            if (slide.scrollHeight <= slide.clientHeight + 1 && slide.scrollWidth <= slide.clientWidth + 1) return;
        }
    }

    // pages: {"lesson.html": the model of the page}
    function slides(place, text, pages = {}) {
        const deck = element(null, "div", "deck"), all = parts(text).map(({lines, notes}) => {
            const slide = element(deck, "section", "slide");
            slide.tabIndex = -1;
            blocks(slide, lines, pages);
            if (notes.length > 0) blocks(element(slide, "aside", "notes"), notes, pages);
            return slide;
        });
        const bar = element(deck, "nav", "bar"), back = element(bar, "button", "", "‹");
        const progress = element(bar, "progress"), label = element(bar, "span"), on = element(bar, "button", "", "›");
        const again = () => all[at] && shrink(all[at]);
        let at = 0;
        function go(to) {
            at = Math.max(0, Math.min(all.length - 1, to));
            all.forEach((slide, index) => slide.classList.toggle("now", index === at));
            Object.assign(progress, {max: all.length, value: at + 1});
            label.textContent = `${at + 1} / ${all.length}`;
            history.replaceState(null, "", `#${at + 1}`);
            again();
            all[at]?.focus({preventScroll: true});
        }
        const keys = {ArrowRight: 1, PageDown: 1, " ": 1, ArrowLeft: -1, PageUp: -1, Home: -1e6, End: 1e6};
        addEventListener("keydown", (event) => {
            const typing = event.target.matches?.(event.key === " " ? "input, textarea, button" : "input, textarea");
            if (event.ctrlKey || event.altKey || event.metaKey || typing) return;
            if (event.key === "n") deck.classList.toggle("with-notes");
            if (event.key === "n") again();
            if (!Object.hasOwn(keys, event.key)) return;
            event.preventDefault();
            go(at + keys[event.key]);
        });
        Object.assign(back, {ariaLabel: "the slide before", onclick: () => go(at - 1)});
        Object.assign(on, {ariaLabel: "the next slide", onclick: () => go(at + 1)});
        addEventListener("hashchange", () => go(Number(location.hash.slice(1)) - 1 || 0));
        for (const kind of ["resize", "afterprint"]) addEventListener(kind, again);
        place.append(deck);
        go(Number(location.hash.slice(1)) - 1 || 0);
    }

    globalThis.yokePage = {draw, lanes, bars, xy, matrix, slides, words, number, bytes, element};

    const source = document.getElementById("yoke-page"), deck = document.getElementById("yoke-slides");
    if (source) {
        const page = JSON.parse(source.textContent);
        for (const place of document.querySelectorAll("[data-figure]")) draw(place, place.dataset.figure, page);
    }
    if (deck) {
        const models = [...document.querySelectorAll("script[data-page]")];
        deck.hidden = true;
        slides(document.body, deck.textContent.replace(/<\\(?=\/script|!--)/gi, "<"),
            Object.fromEntries(models.map((model) => [model.dataset.page, JSON.parse(model.textContent)])));
    }
})();
