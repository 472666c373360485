// SPDX-License-Identifier: Apache-2.0
// The page of docs/play: runs `yoke simulate` as WebAssembly and draws what it prints.
"use strict";

const yokePlay = (() => {
  // The simulator.

  let compiled = null;

  function load(base64) {
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    return WebAssembly.compile(bytes).then((module) => { compiled = module; });
  }

  // Runs the verb in a fresh instance. Of a system's calls it needs one, to write; the others fail.
  async function run(words) {
    const written = ["", "", ""], decoders = written.map(() => new TextDecoder());
    let memory = null;
    const write = (file, parts, count, total) => {
      const view = new DataView(memory.buffer);
      let bytes = 0;
      for (let i = 0; i < count; i++) {
        const at = view.getUint32(parts + 8 * i, true), length = view.getUint32(parts + 8 * i + 4, true);
        written[file] += decoders[file].decode(new Uint8Array(memory.buffer, at, length), {stream: true});
        bytes += length;
      }
      view.setUint32(total, bytes, true);
      return 0;
    };
    const calls = {};
    for (const {module, name} of WebAssembly.Module.imports(compiled))
      (calls[module] ??= {})[name] = name === "fd_write" ? write : () => 8;
    const {exports} = await WebAssembly.instantiate(compiled, calls);
    memory = exports.memory;
    exports._initialize();
    new Uint8Array(memory.buffer).set(new TextEncoder().encode(words.join("\n") + "\n\0"), exports.play_room());
    const code = exports.play_run();
    return {code, out: written[1], error: written[2]};
  }

  // What can be set. A list of numbers is a slider, one of texts a choice.

  const links = {own: "as the sliders say", pcie3: "PCIe 3", pcie4: "PCIe 4", pcie5: "PCIe 5", nvlink2: "NVLink 2",
    nvlink3: "NVLink 3", nvlink4: "NVLink 4", "0.125,50": "Ethernet, 1 Gbit/s", "1.25,30": "Ethernet, 10 Gbit/s"};
  const counts = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 24, 32, 48, 64];
  const usual = {profile: "v100:resnet50", first: "dp-classic", second: "ddp-ring", devices: 8, rows: 32, link: "pcie3",
    rate: 12.3, delay: 5, meet: "switch", lock: 13, slow: 1, stale: 0};
  const uses = (state, mode) => state.first === mode || state.second === mode;
  const controls = [
    {key: "first", label: "Compare", values: []},
    {key: "second", label: "with", values: []},
    {key: "profile", label: "Model and device", values: []},
    {key: "devices", label: "Devices", values: counts},
    {key: "rows", label: "Rows on each device", values: Array.from({length: 13}, (_, power) => 2 ** power)},
    {key: "link", label: "Link of each device", values: Object.keys(links), show: (value) => links[value]},
    {key: "rate", label: "Bandwidth, each way", unit: " GB/s",
      values: [0.1, 0.125, 0.25, 0.5, 1, 1.25, 2.5, 5, 12.3, 24.6, 49, 100, 150, 300, 450, 900]},
    {key: "delay", label: "Latency", unit: " µs", values: [0, 1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 500]},
    {key: "meet", label: "Links meet in", values: ["switch", "bridge"],
      show: (value) => ({switch: "a switch that never blocks", bridge: "a bridge that all share"})[value]},
    {key: "slow", label: "Device 1 computes", values: [1, 1.1, 1.25, 1.5, 2, 3, 4], of: (state) => state.devices > 1,
      show: (value) => (value === 1 ? "as fast as the others" : `${value} times as long`)},
    {key: "lock", label: "Python's lock, for each layer", unit: " µs", values: [0, 1, 2, 5, 10, 13, 20, 30, 50, 100, 200],
      of: (state) => uses(state, "dp-python")},
    {key: "stale", label: "Staleness, at most", values: [0, 1, 2, 3, 4, 6, 8, 16], of: (state) => uses(state, "dp-async"),
      show: (value) => (value === 0 ? "without a bound" : `${value} updates`)},
  ];
  const controlOf = (key) => controls.find((control) => control.key === key);
  const textOf = (control, value) => (control.show ? control.show(value) : `${value}${control.unit ?? ""}`);
  const isSlider = (control) => typeof usual[control.key] === "number";

  // The address holds what differs from the usual.

  function toHash(state) {
    const own = (key) => state.link === "own" || !["rate", "delay"].includes(key);
    return Object.keys(usual).filter((key) => own(key) && state[key] !== usual[key])
      .map((key) => `${key}=${encodeURIComponent(state[key])}`).join("&");
  }

  function fromHash(hash) {
    const state = {...usual};
    for (const [key, value] of new URLSearchParams(hash.replace(/^#/, ""))) {
      const control = controlOf(key), number = Number(value);
      if (control === undefined) continue;
      if (!isSlider(control)) state[key] = control.values.includes(value) ? value : usual[key];
      else if (value !== "" && number >= 0)
        state[key] = control.values.reduce((best, each) => (Math.abs(each - number) < Math.abs(best - number) ? each : best));
    }
    return state;
  }

  // One mode on as many devices as the slider says, and on others for the curve.

  function command(state, mode, devices) {
    const link = state.link === "own" ? `${state.rate},${state.delay}` : state.link;
    const words = ["simulate", state.profile, "--mode", mode, "--devices", `${devices}`, "--rows", `${state.rows}`,
      "--link", state.meet === "bridge" ? `${link},bridge` : link];
    if (mode === "dp-python") words.push("--interpreter-us", `${state.lock}`);
    if (mode === "dp-async" && state.stale > 0) words.push("--max-staleness", `${state.stale}`);
    if (state.slow > 1) words.push("--straggler", `1:${state.slow}`);
    return words;
  }

  async function simulate(state, mode) {
    const wanted = counts.filter((count) => count <= Math.max(8, state.devices));
    const result = await run([...command(state, mode, wanted.join(",")), "--json"]);
    if (result.code !== 0) throw new Error(result.error.split("\n")[0].replace(/^yoke: /, ""));
    return JSON.parse(result.out);
  }

  // The model of a page, as page.js draws it.

  function lanesOf(run) {
    const lanes = new Map();
    for (const span of run.spans) {
      const name = "link" in span ? `link of device ${span.link}` : `device ${span.lane}`;
      if (!lanes.has(name)) lanes.set(name, {name, kind: "link" in span ? "link" : "device", stage_ms: {}, spans: []});
      const {spans, stage_ms: spent} = lanes.get(name);
      spans.push([span.begin_ms, span.end_ms, span.stage, span.bucket ?? -1, span.bytes ?? 0, null]);
      spent[span.stage] = (spent[span.stage] ?? 0) + span.end_ms - span.begin_ms;
    }
    return [...lanes.values()];
  }

  function modesOf(state, mode, result) {
    return result.runs.map((run) => ({
      name: mode, label: `${mode} on ${run.devices}`, devices: run.devices, first: run.devices === state.devices,
      step_ms: [run.step_ms, run.step_ms, run.step_ms], shown_ms: run.step_ms,
      images_per_second: [run.rows_per_second, run.rows_per_second, run.rows_per_second],
      lanes: run.devices === state.devices ? lanesOf(run) : [],
      links: run.devices !== state.devices ? [] : (run.first_links ?? []).flatMap((link) =>
        [[`link of device ${link.device}`, "out", link.sent], [`link of device ${link.device}`, "in", link.received]]),
    }));
  }

  const chosen = (state) => (state.first === state.second ? [state.first] : [state.first, state.second]);

  function titleOf(state, runs) {
    const {number} = yokePage, [first, second] = runs, devices = `${state.devices} device${state.devices > 1 ? "s" : ""}`;
    if (state.devices === 1 || runs.length < 2) return `A step on ${devices} takes ${number(first.step_ms)} ms`;
    const gain = first.step_ms / second.step_ms, times = number(Math.max(gain, 1 / gain));
    const end = times === "1.00" ? "as fast" : `${times} times as ${gain > 1 ? "fast" : "long"}`;
    return `On ${devices} ${first.mode} takes ${number(first.step_ms)} ms, ${second.mode} ${number(second.step_ms)} ms: ${end}`;
  }

  // The page.

  const at = (id) => document.getElementById(id);
  let state = {...usual}, turn = 0;

  function fillTable(modes, runs) {
    const {element, number} = yokePage, table = element(null, "table");
    const row = (cells) => {
      const line = element(table, "tr");
      cells.forEach((cell, index) => { element(line, index === 0 || cells === head ? "th" : "td", "", cell); });
    };
    const head = ["", ...modes];
    row(head);
    for (const [name, value] of [["ms a step", (run) => number(run.step_ms)], ["rows a second", (run) => number(run.rows_per_second)],
      ["speed-up over one device", (run) => number(run.speedup)], ["efficiency", (run) => `${number(100 * run.efficiency)} %`],
      ["ms in which the root communicates", (run) => number(run.communicate_ms)],
      ["ms in which the root waits", (run) => number(run.wait_ms)], ["ms of Python", (run) => number(run.python_ms)],
      ["mean staleness", (run) => (run.mean_staleness === undefined ? "–" : number(run.mean_staleness))]])
      row([name, ...runs.map(value)]);
    document.querySelector("#numbers .table").replaceChildren(table);
  }

  function fillSentences(modes, runs) {
    at("sentences").replaceChildren(...runs.map((run, index) => {
      const line = yokePage.element(null, "p");
      yokePage.element(line, "b", "", `${modes[index]}: `);
      line.append(`${run.sentence}.`);
      return line;
    }));
  }

  async function update() {
    const own = ++turn, modes = chosen(state);
    history.replaceState(null, "", `#${toHash(state)}`);
    showControls();
    try {
      const results = await Promise.all(modes.map((mode) => simulate(state, mode)));
      if (own !== turn) return; // a later move has its own
      const runs = results.map((result) => result.runs.find((run) => run.devices === state.devices));
      const page = {simulated: true, modes: results.flatMap((result, index) => modesOf(state, modes[index], result))};
      at("title").textContent = titleOf(state, runs);
      const {model, device, rows_per_device: rows, links: link} = results[0];
      at("subject").textContent = `Simulated: ${model}, ${rows} rows on each ${device}, links of ${link}.`;
      at("results").hidden = false;
      showLink(link);
      fillSentences(modes, runs);
      fillTable(modes, runs);
      for (const place of document.querySelectorAll("[data-play]")) yokePage.draw(place, place.dataset.play, page);
      document.querySelector("#command pre").textContent =
        modes.map((mode) => `yoke ${command(state, mode, state.devices).join(" ")}`).join("\n");
    } catch (error) {
      if (own === turn) at("subject").textContent = `This cannot be simulated: ${error.message}`;
    }
  }

  function showControls() {
    for (const control of controls) {
      const input = at(`set-${control.key}`), value = state[control.key], off = control.of && !control.of(state);
      input.value = isSlider(control) ? control.values.indexOf(value) : value;
      input.disabled = Boolean(off);
      input.closest("label").classList.toggle("off", Boolean(off));
      if (!isSlider(control)) continue;
      input.setAttribute("aria-valuetext", textOf(control, value));
      input.previousElementSibling.textContent = textOf(control, value);
    }
  }

  // Of a link with a name the simulator says what it is.
  function showLink(text) {
    const [, rate, delay] = /^([^ ]+) GB\/s, ([^ ]+) us/.exec(text).map(Number);
    if (state.link === "own") return;
    Object.assign(state, {rate, delay});
    showControls();
  }

  function makeControl(control) {
    const {element} = yokePage, label = element(at("controls"), "label"), slider = isSlider(control);
    element(label, "span", "", control.label);
    if (slider) element(label, "b");
    const input = element(label, slider ? "input" : "select");
    input.id = `set-${control.key}`;
    if (slider) Object.assign(input, {type: "range", min: 0, max: control.values.length - 1, step: 1});
    else for (const value of control.values) element(input, "option", "", textOf(control, value)).value = value;
    input.oninput = () => {
      state = {...state, [control.key]: slider ? control.values[Number(input.value)] : input.value};
      if (control.key === "rate" || control.key === "delay") state.link = "own";
      update();
    };
  }

  async function start() {
    await load(at("simulator").textContent);
    const help = (await run(["simulate", "--help"])).out, list = (await run(["simulate", "--list"])).out;
    const modes = /--mode all\|(\S+)/.exec(help)[1].split("|");
    controlOf("first").values = controlOf("second").values = modes;
    controlOf("profile").values = [...[...list.matchAll(/^(\S+:\S+) /gm)].map((found) => found[1]),
      ...JSON.parse(at("profiles").textContent)];
    if (!modes.includes("dp-async")) controls.splice(controls.indexOf(controlOf("stale")), 1);
    controls.forEach(makeControl);
    const again = yokePage.element(at("controls"), "button", "", "Start again");
    again.type = "button";
    again.onclick = () => { state = {...usual}; update(); };
    addEventListener("hashchange", () => { state = fromHash(location.hash); update(); });
    state = fromHash(location.hash);
    await update();
  }

  if (globalThis.document !== undefined) start().catch((error) => { at("subject").textContent = `${error}`; });
  return {load, run, fromHash, toHash, command, usual};
})();
globalThis.yokePlay = yokePlay;
