/* SPDX-License-Identifier: Apache-2.0 */
/* The style sheet, with the one list of colours. A colour has one meaning: no two of the list are
 * alike, for those who cannot tell red from green neither, and each has a contrast of 4.5 : 1 and
 * more with the page; so has a number in a fill. test_report_page computes all this from these
 * lines. In print the page is light. */
#include "report/html.h"

#include <stddef.h>

/* name, light, dark */
#define COLOURS(X)                                                                                 \
    X("page", "#ffffff", "#10151c")                                                                \
    X("text", "#1b1f24", "#e8ecf1")                                                                \
    X("quiet", "#57606a", "#aab4c0")                                                               \
    X("link", "#0b57d0", "#8ab4f8")                                                                \
    X("wrong", "#c40d1e", "#ff5c50")                                                               \
    X("s-load", "#4e4239", "#c2c2a5")                                                              \
    X("s-scatter", "#277b7f", "#97e4ba")                                                           \
    X("s-replicate", "#6b46cf", "#e291f4")                                                         \
    X("s-python", "#323226", "#e4ddcf")                                                            \
    X("s-forward", "#133fbb", "#4e9dfe")                                                           \
    X("s-loss", "#c83b85", "#e77693")                                                              \
    X("s-backward", "#058657", "#a4f886")                                                          \
    X("s-reduce", "#877444", "#eabc49")                                                            \
    X("s-update", "#162a4d", "#a8e4fd")                                                            \
    X("s-exchange", "#c44f21", "#fea881")                                                          \
    X("s-all_reduce", "#087eaf", "#58b7c5")                                                        \
    X("s-gather", "#2a4300", "#f8ed60")                                                            \
    X("s-other", "#211201", "#818181")                                                             \
    X("s-compute", "#3f263b", "#dcbcd6")                                                           \
    X("s-communicate", "#412f75", "#9a8c38")                                                       \
    X("s-wait", "#57606a", "#aab4c0")                                                              \
    X("m0", "#220d90", "#a19bfd")                                                                  \
    X("m1", "#7e5907", "#fb9016")                                                                  \
    X("m2", "#1e6233", "#65c980")                                                                  \
    X("m3", "#63059c", "#ad53fb")                                                                  \
    X("m4", "#733560", "#e84574")                                                                  \
    X("m5", "#17527d", "#51dcf9")                                                                  \
    X("m6", "#5a6536", "#4f8e1a")                                                                  \
    X("m7", "#230136", "#be76dd")                                                                  \
    X("b-weights", "#030052", "#4f81d5")                                                           \
    X("b-gradients", "#774207", "#fff8bf")                                                         \
    X("b-optimizer", "#9232b1", "#a987a1")                                                         \
    X("b-activations", "#184c4d", "#23909a")                                                       \
    X("b-out", "#4f0801", "#e37007")                                                               \
    X("b-in", "#4c68e8", "#9074c0")                                                                \
    X("right", "#00473a", "#14b8a6")

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
    "h1,h2{overflow-wrap:anywhere}\n"
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
    ".note{border-left:4px solid var(--wrong);padding-left:10px}\n"
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
    /* The classes of COLOURS. A line's class comes later and wins. */
    COLOURS(FILL) "path.line,line.line{fill:none;stroke-width:2}\n"
                  ".dashed{stroke-dasharray:6 4}\n"
                  /* Levels of a heat map: a colour over the page. */
                  ".k1,.k2,.k3,.k4,.k5{stroke-width:0}\n"
                  ".k1{fill-opacity:.1}.k2{fill-opacity:.2}.k3{fill-opacity:.32}"
                  ".k4{fill-opacity:.43}.k5{fill-opacity:1}\n"
                  /* Waiting is pale, idle time empty; both have an outline. */
                  "rect.s-wait{fill-opacity:.16;stroke-width:1}"
                  "rect.s-wait+.in{fill:var(--text)}\n"
                  "rect.s-idle{fill:none;stroke:var(--s-wait);stroke-dasharray:2 2;stroke-width:1}"
                  "\n",
    NULL};

const char *const *yoke_html_style(void) {
    return parts;
}
