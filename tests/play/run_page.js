// SPDX-License-Identifier: Apache-2.0
// Runs commands by the simulator in a page of docs/play, without a browser.
// usage: node run_page.js PAGE, and lists of words as JSON, one a line, on stdin. Writes results as JSON, one a line.
"use strict";
const fs = require("fs");
const page = fs.readFileSync(process.argv[2], "utf8");
const simulator = /<script type="application\/octet-stream" id="simulator">([^<]*)</.exec(page)[1];
const scripts = [...page.matchAll(/<script>([^]*?)<\/script>/g)];
(0, eval)(scripts[scripts.length - 1][1]);

async function main() {
  await yokePlay.load(simulator);
  for (const line of fs.readFileSync(0, "utf8").split("\n").filter((each) => each !== "")) {
    const words = JSON.parse(line);
    process.stdout.write(`${JSON.stringify(Array.isArray(words) ? await yokePlay.run(words) : yokePlay.fromHash(words))}\n`);
  }
}

main().catch((error) => { console.error(error); process.exit(1); });
