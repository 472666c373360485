/* SPDX-License-Identifier: Apache-2.0 */
/* The style sheet. Text, fills and lines have a contrast of 4.5 : 1 and more with the page, and so
 * has a number in a fill; test_html computes it from these lines. In print the page is light. */
#include "report/html.h"

#include <stddef.h>

/* name, light, dark */
#define COLOURS(X)                                                                                 \
    X("page", "#ffffff", "#10151c")                                                                \
    X("text", "#1b1f24", "#e8ecf1")                                                                \
    X("quiet", "#57606a", "#aab4c0")                                                               \
    X("link", "#0b57d0", "#8ab4f8")                                                                \
    X("s-load", "#57534e", "#d6d3d1")                                                              \
    X("s-scatter", "#0f766e", "#5eead4")                                                           \
    X("s-replicate", "#7e22ce", "#d8b4fe")                                                         \
    X("s-python", "#111111", "#fafafa")                                                            \
    X("s-forward", "#1d4ed8", "#93c5fd")                                                           \
    X("s-loss", "#be185d", "#f9a8d4")                                                              \
    X("s-backward", "#15803d", "#86efac")                                                          \
    X("s-reduce", "#a16207", "#fde68a")                                                            \
    X("s-update", "#334155", "#e2e8f0")                                                            \
    X("s-exchange", "#b45309", "#fdba74")                                                          \
    X("s-all_reduce", "#0e7490", "#67e8f9")                                                        \
    X("s-wait", "#dc2626", "#fca5a5")                                                              \
    X("s-gather", "#4d7c0f", "#bef264")                                                            \
    X("s-evaluate", "#404040", "#d4d4d4")                                                          \
    X("s-other", "#57534e", "#cbd5e1")                                                             \
    X("s-waiting", "#e11d48", "#fda4af")                                                           \
    X("s-idle", "#6b7280", "#9ca3af")                                                              \
    X("m0", "#1d4ed8", "#93c5fd")                                                                  \
    X("m1", "#b45309", "#fcd34d")                                                                  \
    X("m2", "#15803d", "#86efac")                                                                  \
    X("m3", "#7e22ce", "#d8b4fe")                                                                  \
    X("m4", "#be185d", "#f9a8d4")                                                                  \
    X("m5", "#334155", "#e2e8f0")                                                                  \
    X("m6", "#57534e", "#d6d3d1")                                                                  \
    X("m7", "#4d7c0f", "#bef264")                                                                  \
    X("ideal", "#57606a", "#aab4c0")

#define LIGHT(name, light, dark) "--" name ":" light ";"
#define DARK(name, light, dark) "--" name ":" dark ";"
#define FILL(name, light, dark) "." name "{fill:var(--" name ");stroke:var(--" name ")}\n"

static const char *const parts[] = {
    ":root{color-scheme:light dark;--faint:#d8dee4;" COLOURS(
        LIGHT) "}\n"
               "@media (prefers-color-scheme:dark){:root{--faint:#333c47;" COLOURS(
                   DARK) "}}\n"
                         "@media print{:root{color-scheme:light;--faint:#d8dee4;" COLOURS(
                             LIGHT) "}}\n",
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--page);color:var(--text);"
    "font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu "
    "Sans',sans-serif}\n"
    "main{max-width:1240px;margin:0 auto;padding:16px 20px 48px}\n"
    "h1{font-size:28px;line-height:1.2;margin:16px 0 8px}\n"
    "h2{font-size:19px;line-height:1.3;margin:0 0 6px}\n"
    "p{margin:0 0 8px;max-width:80ch}\n"
    "a{color:var(--link)}\n"
    "code{font:14px/1.4 ui-monospace,'DejaVu Sans "
    "Mono',monospace;overflow-wrap:anywhere}\n"
    ".figures{display:grid;grid-template-columns:repeat(auto-fit,"
    "minmax(min(100%,440px),1fr));"
    "gap:40px 40px;margin-top:32px}\n"
    ".figure{min-width:0;border-top:2px solid "
    "var(--faint);padding-top:14px}\n"
    ".wide{grid-column:1/-1}\n"
    ".meaning,.source,figcaption{color:var(--quiet);font-size:14px}\n"
    ".note{border-left:4px solid var(--s-wait);padding-left:10px}\n"
    ".facts{display:grid;grid-template-columns:max-content 1fr;gap:2px "
    "16px;margin:12px 0}\n"
    ".facts dt{color:var(--quiet)}.facts "
    "dd{margin:0;overflow-wrap:anywhere}\n"
    ".chart{margin:10px 0}\n"
    ".scroll{overflow-x:auto}\n"
    ".scroll:focus-visible{outline:2px solid var(--link)}\n"
    "svg{display:block;width:100%;height:auto;max-width:640px}\n"
    ".wide svg{max-width:none;min-width:760px}\n"
    "svg text{font:12px system-ui,-apple-system,'Segoe "
    "UI',Roboto,'DejaVu Sans',sans-serif;"
    "fill:var(--text)}\n"
    "svg .group{font-weight:600;font-size:13px}\n"
    "svg "
    ".in{fill:var(--page);font-size:11px;font-weight:600;pointer-"
    "events:none}\n"
    "rect{stroke-width:0}\n"
    "svg .cell{font-size:11px;pointer-events:none}\n"
    ".grid{stroke:var(--faint)}.axis{stroke:var(--quiet)}\n"
    "table{border-collapse:collapse;font-size:14px;font-variant-"
    "numeric:tabular-nums}\n"
    "caption{text-align:left;color:var(--quiet);padding:4px 0}\n"
    "th,td{padding:3px 14px 3px 0;text-align:right;white-space:nowrap;"
    "border-bottom:1px solid var(--faint)}\n"
    "th{font-weight:600}th[scope=row],th:first-child{text-align:left;"
    "font-weight:400}\n"
    "thead th{color:var(--quiet);vertical-align:bottom}\n"
    ".words td{text-align:left;white-space:normal}\n"
    "summary{cursor:pointer;color:var(--link);padding:2px 0}\n"
    ".pictures{display:grid;grid-template-columns:repeat(auto-fill,minmax(132px,1fr));"
    "gap:20px 16px;list-style:none;margin:12px 0;padding:0}\n"
    ".pictures li{font-size:13px;line-height:1.35;overflow-wrap:anywhere}\n"
    ".pictures img{display:block;width:96px;height:auto;margin-bottom:4px;"
    "image-rendering:pixelated}\n"
    ".pictures b{font-weight:600}.pictures span{color:var(--quiet)}\n",
    "@media (max-width:500px){main{padding:8px 14px "
    "32px}h1{font-size:23px}"
    ".facts{grid-template-columns:1fr}.facts dd{margin-bottom:6px}}\n"
    "@media print{body{font-size:11pt}main{max-width:none;padding:0}"
    "*{-webkit-print-color-adjust:exact;print-color-adjust:exact}"
    ".figures{display:block}.figure{break-inside:avoid;margin-bottom:"
    "24px}"
    "table{font-size:8.5pt}th,td{white-space:normal;padding-right:8px}svg{max-width:480px}"
    "details{display:none}.scroll{overflow:visible}.wide "
    "svg{min-width:0}.pictures li{break-inside:avoid}}\n",
    /* COLOURS again: the classes. A line's class comes later and wins. */
    COLOURS(FILL) "path.line,line.line{fill:none;stroke-width:2}\n"
                  ".dashed{stroke-dasharray:6 4}\n"
                  /* Levels of a heat map: a colour over the page. */
                  ".k1,.k2,.k3,.k4,.k5{stroke-width:0}\n"
                  ".k1{fill-opacity:.1}.k2{fill-opacity:.2}.k3{fill-opacity:.32}"
                  ".k4{fill-opacity:.43}.k5{fill-opacity:1}\n"
                  /* Idle time is empty, with an outline. */
                  "rect.s-idle{fill:none;stroke-width:1}\n",
    NULL};

const char *const *yoke_html_style(void) {
    return parts;
}
