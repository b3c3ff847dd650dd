// The style sheet of the page.
#pragma once

#include <string_view>

namespace linerate::report {

/// Eight colours that stay apart for the common kinds of colour blindness, in a light and a dark
/// form; text always keeps the ink colour, colour only fills.
inline constexpr std::string_view kPageStyle = R"css(
:root{color-scheme:light dark;--paper:#fcfcfb;--ink:#1a1a19;--soft:#5f5e5a;--hair:#e3e2dd;--track:#f1f0ec;
--c0:#2a78d6;--c1:#008300;--c2:#d9568f;--c3:#c98500;--c4:#0f9d78;--c5:#e2571e;--c6:#5b49c0;--c7:#d03339;--n:#8a8984}
@media(prefers-color-scheme:dark){:root{--paper:#161615;--ink:#ececea;--soft:#a8a7a1;--hair:#34342f;--track:#222220;
--c0:#4a95ea;--c1:#3aa33a;--c2:#e06f9f;--c3:#d29a1e;--c4:#2bb48e;--c5:#ea6c36;--c6:#9085e9;--c7:#e86a6a;--n:#8f8e88}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0 auto;max-width:872px;padding:28px 16px 48px;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;overflow-wrap:anywhere}
h1{font-size:26px;line-height:1.2;font-weight:650;margin:0 0 6px;letter-spacing:-.01em}
h2{font-size:19px;line-height:1.3;font-weight:650;margin:44px 0 8px;padding-top:18px;border-top:1px solid var(--hair)}
section:first-of-type h2{margin-top:22px;border-top:0;padding-top:0}
h3{font-size:16px;line-height:1.35;font-weight:600;margin:26px 0 2px}
p{margin:0 0 10px;max-width:66ch}
figure{margin:0 0 18px}
figcaption{color:var(--soft);font-size:14px;max-width:72ch;margin:2px 0 10px}
.narrow{display:none}
figure svg{display:block;width:100%;height:auto}
svg text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;fill:var(--ink);
font-variant-numeric:tabular-nums}
svg .tick,svg .label{fill:var(--soft)}
svg .strong{font-weight:650}
svg .in{font-size:11px;pointer-events:none}
.grid{stroke:var(--hair);stroke-width:1}
.axis{stroke:var(--soft);stroke-width:1}
.end{stroke:var(--ink);stroke-width:1;stroke-dasharray:2 3}
.track{fill:var(--track)}
.line{stroke:var(--c);stroke-width:2;fill:none;stroke-linejoin:round}
.band{fill:var(--c);opacity:.16}
.whisker{stroke:var(--c);stroke-width:5;stroke-opacity:.32;stroke-linecap:round}
.mark{fill:var(--c)}
.cell{fill:var(--c);fill-opacity:.2}
.bar{fill:var(--c);fill-opacity:.42}
.bar.edged{stroke:var(--c);stroke-width:1;stroke-opacity:.45}
.c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}.c4{--c:var(--c4)}.c5{--c:var(--c5)}
.c6{--c:var(--c6)}.c7{--c:var(--c7)}.n{--c:var(--n)}
.d1{stroke-dasharray:7 3}.d2{stroke-dasharray:2 3}.d3{stroke-dasharray:9 3 2 3}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 18px;margin:4px 0 8px;padding:0;font-size:13px}
.legend li{display:flex;align-items:center}
figure svg.key{display:inline-block;width:28px;height:12px;margin-right:7px;flex:none}
.scroll{overflow-x:auto;margin:8px 0 4px}
table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums;overflow-wrap:normal}
th,td{text-align:left;vertical-align:top;padding:5px 16px 5px 0;border-bottom:1px solid var(--hair)}
th{font-weight:600;color:var(--soft);white-space:nowrap}
th.r,td.r{text-align:right;white-space:nowrap}
details{margin:2px 0 0}
summary{cursor:pointer;color:var(--soft);font-size:14px}
footer{margin-top:52px;padding-top:14px;border-top:1px solid var(--hair);color:var(--soft);font-size:13px}
footer p{max-width:none;margin:0 0 4px}
code{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
@media(max-width:700px){.wide{display:none}.narrow{display:block}h1{font-size:22px}body{padding-top:18px}
td,th{padding-right:8px}th{white-space:normal}td{overflow-wrap:anywhere;min-width:4.6em}td:first-child{min-width:8.7em}}
@media print{body{max-width:none}details>*{display:block}}
)css";

}  // namespace linerate::report
