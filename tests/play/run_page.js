// SPDX-License-Identifier: Apache-2.0
// Runs commands by the simulator in a page of docs/play, without a browser.
// usage: node run_page.js PAGE. On stdin lists of words, or hashes of addresses, as JSON, one a line; so are the results.
"use strict";
const fs = require("fs");
const page = fs.readFileSync(process.argv[2], "utf8");
const part = (id) => new RegExp(` id="${id}">([^<]*)<`).exec(page)[1];
const scripts = [...page.matchAll(/<script>([^]*?)<\/script>/g)];
(0, eval)(scripts[scripts.length - 1][1]);

async function main() {
    await yokePlay.load(part("simulator"), part("settings"));
    for (const line of fs.readFileSync(0, "utf8").split("\n").filter((each) => each !== "")) {
        const words = JSON.parse(line);
        const found = Array.isArray(words) ? await yokePlay.run(words) : yokePlay.fromHash(words);
        process.stdout.write(`${JSON.stringify(found)}\n`);
    }
}

main().catch((error) => { console.error(error); process.exit(1); });
