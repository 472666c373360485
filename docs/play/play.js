// SPDX-License-Identifier: Apache-2.0
// The page of docs/play: runs `yoke simulate` as WebAssembly, and draws what it prints by page.js.
"use strict";
globalThis.yokePlay = (() => {
    let compiled = null, settings = null, state = null, turn = 0, drawn = -1;
    const at = (id) => document.getElementById(id);
    const controlOf = (key) => settings.controls.find((control) => control.key === key);
    const isSlider = (control) => typeof settings.usual[control.key] === "number";
    const textOf = ({texts, before, unit}, value) => texts?.[value] ?? `${before ?? ""}${value}${unit ?? ""}`;

    async function load(base64, json) {
        settings = JSON.parse(json);
        compiled = await WebAssembly.compile(Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0)));
    }

    // Runs the tool with these words in a fresh instance. Of a system's calls it gets one, to write; all others fail.
    async function run(words) {
        const written = ["", "", ""], calls = {}, decoder = new TextDecoder();
        let memory = null;
        function write(file, parts, count, total) {
            const words = new Uint32Array(memory.buffer), from = parts / 4, sum = total / 4;
            for (let i = words[sum] = 0; i < 2 * count; words[sum] += words[from + i + 1], i += 2) {
                const bytes = new Uint8Array(memory.buffer, words[from + i], words[from + i + 1]);
                written[file] += decoder.decode(bytes, {stream: true});
            }
            return 0;
        }
        for (const {module, name} of WebAssembly.Module.imports(compiled))
            (calls[module] ??= {})[name] = name === "fd_write" ? write : () => 8;
        const {exports} = await WebAssembly.instantiate(compiled, calls);
        memory = exports.memory;
        exports._initialize();
        new Uint8Array(memory.buffer).set(new TextEncoder().encode(`${words.join("\n")}\n\0`), exports.play_room());
        return {code: exports.play_run(), out: written[1], error: written[2]};
    }

    // The address holds what differs from the usual.
    function fromHash(hash) {
        const found = {...settings.usual};
        for (const [key, value] of new URLSearchParams(hash.replace(/^#/, ""))) {
            const control = controlOf(key), far = (each) => Math.abs(each - Number(value));
            if (!control) continue;
            if (!isSlider(control) && control.values.includes(value)) found[key] = value;
            if (isSlider(control) && value !== "" && Number(value) >= Math.min(...control.values))
                found[key] = control.values.reduce((best, each) => (far(each) < far(best) ? each : best));
        }
        return found;
    }

    function command(mode, devices) {
        const link = state.link === "own" ? `${state.rate},${state.delay}` : state.link;
        const words = ["simulate", state.profile, "--mode", mode, "--devices", `${devices}`, "--rows", `${state.rows}`,
            "--link", state.meet === "bridge" ? `${link},bridge` : link];
        if (mode === "dp-python") words.push("--interpreter-us", `${state.lock}`);
        if (mode === "dp-async" && state.stale >= 0)
            words.push("--max-staleness", `${Math.max(1, state.devices - 1 + state.stale)}`);
        if (state.spread >= 0) words.push("--spread", `${state.spread}`);
        return state.slow > 1 && `${devices}` !== "1" ? [...words, "--straggler", `1:${state.slow}`] : words;
    }

    // One mode: on the devices of the slider, and on others for the curve. A bound is for at most so many devices.
    async function simulate(mode) {
        const most = mode === "dp-async" && state.stale >= 0 ? state.devices : Math.max(8, state.devices);
        const counts = controlOf("devices").values.filter((count) => count <= most);
        const result = await run([...command(mode, counts.join(",")), "--json"]);
        if (result.code !== 0) throw new Error(result.error.split("\n")[0].replace(/^yoke: /, ""));
        return JSON.parse(result.out);
    }

    // A mode of a page's model, as page.js takes it.
    const modelOf = (name) => (run) => {
        const lanes = {}, shown = run.devices === state.devices, {rows_per_second: rate, step_ms: step} = run;
        for (const {lane, link, stage, bucket, bytes, begin_ms: begin, end_ms: end} of shown ? run.spans : []) {
            const kind = link === undefined ? "device" : "link", name = `${kind} ${link ?? lane}`;
            (lanes[name] ??= {name, kind, spans: []}).spans.push([begin, end, stage, bucket ?? -1, bytes ?? 0, null]);
        }
        return {
            name, label: `${name} on ${run.devices}`, devices: run.devices, first: shown, lanes: Object.values(lanes),
            step_ms: [step, step, step], shown_ms: step, images_per_second: [rate, rate, rate],
            links: ((shown && run.first_links) || []).flatMap(({device, sent, received}) =>
                [[`link ${device}`, "out", sent], [`link ${device}`, "in", received]]),
        };
    };

    function titleOf(modes, [first, second]) {
        const {number} = yokePage, ms = (run) => `${number(run.step_ms)} ms`;
        if (state.devices === 1) return `A step on one device takes ${ms(first)}`;
        if (!second) return `A step on ${state.devices} devices takes ${ms(first)}`;
        const gain = first.step_ms / second.step_ms, times = number(Math.max(gain, 1 / gain));
        return `On ${state.devices} devices ${modes[0]} takes ${ms(first)}, ${modes[1]} ${ms(second)}: ` +
            (times === "1.00" ? "equally fast" : `${times} times as ${gain > 1 ? "fast" : "long"}`);
    }

    function fillTable(modes, runs) {
        const {element, number} = yokePage, table = element(null, "table");
        const head = element(element(table, "thead"), "tr"), body = element(table, "tbody");
        for (const name of ["", ...modes]) element(head, name ? "th" : "td", "", name).scope = "col";
        for (const [key, name] of settings.numbers.filter(([key]) => runs.some((run) => key in run))) {
            const row = element(body, "tr");
            element(row, "th", "", name).scope = "row";
            for (const {[key]: value = "–"} of runs)
                element(row, "td", "", Number.isInteger(value) || value === "–" ? `${value}` : number(value));
        }
        document.querySelector("#numbers .table").replaceChildren(table);
    }

    function fillSentences(modes, runs) {
        at("sentences").replaceChildren(...runs.map((run, index) => {
            const line = yokePage.element(null, "p"), what = settings.modes[modes[index]] ?? "a mode";
            yokePage.element(line, "b", "", modes[index]);
            line.append(` (${what}): ${run.sentence.replaceAll(" %", "\u00a0%")}.`);
            return line;
        }));
    }

    async function update() {
        const now = ++turn, modes = [...new Set([state.first, state.second])], {devices} = state;
        const own = (key) => state.link === "own" || !/rate|delay/.test(key);
        const words = Object.keys(state).filter((key) => state[key] !== settings.usual[key] && own(key))
            .map((key) => `${key}=${encodeURIComponent(state[key])}`);
        history.replaceState(null, "", `#${words.join("&")}`); // a link to these settings
        showControls();
        try {
            const results = await Promise.all(modes.map(simulate));
            if (now !== turn) return; // a later move has its own results
            const runs = results.map((result) => result.runs.find((run) => run.devices === devices));
            const {model, device, rows_per_device: rows, links} = results[0];
            const [, rate, delay] = /^([^ ]+) GB\/s, ([^ ]+) us/.exec(links).map(Number);
            if (state.link !== "own") Object.assign(state, {rate, delay});
            showControls();
            at("title").textContent = titleOf(modes, runs).replaceAll("-", "\u2011"); // names stay whole
            at("subject").textContent = `Simulated: ${model}, ${rows} rows on each ${device}, links of ${links}.`;
            document.querySelector("main").classList.add("ready");
            fillSentences(modes, runs);
            fillTable(modes, runs);
            const page = {simulated: true, modes: results.flatMap((result, k) => result.runs.map(modelOf(modes[k])))};
            document.querySelectorAll("[data-play]").forEach((place) => yokePage.draw(place, place.dataset.play, page));
            at("words").textContent = modes.map((mode) => `yoke ${command(mode, devices).join(" ")}`).join("\n");
        } catch (error) {
            document.querySelector("main").classList.remove("ready");
            at("title").textContent = "This cannot be simulated";
            at("subject").textContent = error.message;
        }
        drawn = Math.max(drawn, now);
    }

    function showControls() {
        for (const control of settings.controls) {
            const {key, values, of} = control, input = at(`set-${key}`), text = textOf(control, state[key]);
            input.value = isSlider(control) ? values.filter((value) => value <= state[key]).length - 1 : state[key];
            input.disabled = Boolean(of) && state.first !== of && state.second !== of;
            input.parentElement.classList.toggle("off", input.disabled);
            input.setAttribute("aria-valuetext", text);
            if (isSlider(control)) input.previousElementSibling.textContent = text;
        }
    }

    function change(values) {
        state = {...state, ...values};
        return update();
    }

    function listen({key, values}) {
        at(`set-${key}`).oninput = ({target}) => change({
            [key]: target.type === "range" ? values[Number(target.value)] : target.value,
            ...(/rate|delay/.test(key) ? {link: "own"} : {}),
        });
    }

    async function start() {
        const set = (hash) => change(fromHash(hash));
        await load(at("simulator").textContent, at("settings").textContent);
        document.forms[0].hidden = false;
        settings.controls.forEach(listen);
        at("again").onclick = () => set("");
        addEventListener("hashchange", () => set(location.hash));
        await set(location.hash);
    }

    if (globalThis.document) start().catch((error) => { at("subject").textContent = `This page fails: ${error}`; });
    return {load, run, fromHash, change, busy: () => drawn !== turn};
})();
