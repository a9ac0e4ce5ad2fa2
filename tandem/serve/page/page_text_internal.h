// SPDX-License-Identifier: Apache-2.0
// The page at "/": its skeleton and its style. Nothing in it comes from another place.
#pragma once

namespace tandem::serve {

inline constexpr const char* kPageBody =
    R"HTML(<header><h1>tandem</h1><span id="state" class="pill">connecting</span><span id="facts"></span>
<button id="key" class="quiet">API key</button></header>
<main><nav id="models" aria-label="Models"></nav>
<section><div id="head"></div><div id="charts"></div><div id="panel" class="card"></div></section></main>
<dialog id="ask"><form method="dialog"><h2>API key</h2><p>This server asks for a key. It is kept in this tab alone.</p>
<input id="secret" type="password" autocomplete="off" aria-label="API key"><p class="right"><button value="ok" class="main">Use it</button></p></form></dialog>
)HTML";

inline constexpr const char* kPageStyle = R"CSS(
:root{--ink:#1b2330;--soft:#647084;--line:#e2e6ec;--back:#f5f7fa;--card:#fff;--accent:#2f6fb2;--accent2:#e0812f;--good:#2f8f5b;--bad:#c8443c;--wash:#e8f0f9}
@media (prefers-color-scheme:dark){:root{--ink:#e5e9f0;--soft:#97a3b6;--line:#2d3542;--back:#12161c;--card:#1a2029;--accent:#6fa8e6;--accent2:#f0a35e;--good:#5fc08c;--bad:#ec7a72;--wash:#1f2c3c}}
*{box-sizing:border-box}
body{margin:0;font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;color:var(--ink);background:var(--back)}
header{display:flex;align-items:center;gap:14px;padding:14px 28px;background:var(--card);border-bottom:1px solid var(--line)}
h1{font-size:20px;letter-spacing:-.02em;margin:0}h2{font-size:17px;margin:0}h3{font-size:13px;font-weight:600;margin:0;color:var(--soft)}
#facts{color:var(--soft);flex:1;font-size:13px;font-variant-numeric:tabular-nums}
.pill{font-size:12px;padding:2px 10px;border-radius:99px;background:var(--line);color:var(--soft)}
.pill.on{background:color-mix(in srgb,var(--good) 16%,transparent);color:var(--good)}.pill.off{background:color-mix(in srgb,var(--bad) 16%,transparent);color:var(--bad)}
main{display:grid;grid-template-columns:270px minmax(0,1fr);gap:24px;max-width:1320px;margin:24px auto;padding:0 28px}
@media (max-width:820px){main{grid-template-columns:1fr}}
nav{display:flex;flex-direction:column;gap:8px}
nav button{all:unset;cursor:pointer;display:block;background:var(--card);border:1px solid var(--line);border-radius:12px;padding:11px 14px}
nav button:hover{border-color:var(--accent)}nav button:focus-visible{outline:2px solid var(--accent)}
nav button.on{border-color:var(--accent);box-shadow:inset 3px 0 0 var(--accent)}
nav b{display:block;overflow-wrap:anywhere}nav small{color:var(--soft);font-variant-numeric:tabular-nums}
.card{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:18px 20px}
#head{display:flex;flex-wrap:wrap;gap:6px 18px;align-items:baseline;margin-bottom:14px}#head h2{font-size:22px;letter-spacing:-.02em}
#head code{font-size:12.5px}#head span{color:var(--soft);font-size:13px}
code,pre,textarea{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
#charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(250px,1fr));gap:14px;margin-bottom:20px}
.chart{padding:12px 14px 8px}.chart .now{font-size:22px;font-weight:600;font-variant-numeric:tabular-nums;letter-spacing:-.02em}
.chart .now small{font-size:12.5px;font-weight:400;color:var(--soft);margin-left:6px;letter-spacing:0}
svg{display:block;width:100%;height:92px;overflow:visible}svg text{font-size:10px;fill:var(--soft)}
.grid{stroke:var(--line);stroke-width:1}.l0{stroke:var(--accent)}.l1{stroke:var(--accent2)}.l0,.l1{fill:none;stroke-width:1.8;stroke-linejoin:round;vector-effect:non-scaling-stroke}
.a0{fill:var(--accent);opacity:.13}
.key i{display:inline-block;width:10px;height:3px;border-radius:2px;margin:0 5px 3px 10px;background:var(--accent)}.key i.b{background:var(--accent2)}
.tabs{display:flex;gap:4px;margin-bottom:14px;border-bottom:1px solid var(--line)}
.tabs button{all:unset;cursor:pointer;padding:6px 12px;color:var(--soft);border-bottom:2px solid transparent;margin-bottom:-1px}
.tabs button.on{color:var(--ink);border-color:var(--accent);font-weight:600}.tabs button:focus-visible{outline:2px solid var(--accent)}
.try{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:28px}.try.one{grid-template-columns:1fr}
@media (max-width:980px){.try{grid-template-columns:1fr}}
textarea,input{width:100%;font-size:13.5px;padding:9px 11px;color:var(--ink);background:var(--back);border:1px solid var(--line);border-radius:9px}
textarea{min-height:150px;resize:vertical}textarea:focus,input:focus{outline:2px solid var(--accent);outline-offset:-1px}
button.main,button.quiet{font:inherit;font-size:14px;cursor:pointer;border-radius:9px;padding:6px 16px;border:1px solid var(--line);background:var(--card);color:var(--ink)}
button.main{background:var(--accent);border-color:var(--accent);color:#fff}button:disabled{opacity:.5;cursor:default}
@media (prefers-color-scheme:dark){button.main{color:#0d1620}}
.bar{display:flex;gap:10px;align-items:center;margin-top:12px}.bar span,.hint{color:var(--soft);font-size:13px}.hint{margin:0 0 10px}
canvas.board{width:100%;max-width:300px;aspect-ratio:1;border-radius:12px;background:#000;touch-action:none;cursor:crosshair;display:block}
.drop{border:1.5px dashed var(--line);border-radius:12px;min-height:190px;display:grid;place-items:center;color:var(--soft);cursor:pointer;overflow:hidden;text-align:center;padding:10px}
.drop.over{border-color:var(--accent);background:var(--wash)}.drop img{max-width:100%;max-height:320px;border-radius:8px}
.score{display:grid;grid-template-columns:minmax(4em,10em) 1fr 4.2em;gap:12px;align-items:center;margin:7px 0;font-variant-numeric:tabular-nums}
.score span:first-child{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}.score span:last-child{text-align:right;color:var(--soft)}
.score i{display:block;height:14px;border-radius:4px;background:var(--line)}.score i b{display:block;height:100%;border-radius:4px;background:var(--accent);opacity:.45;transition:width .2s}
.score.best{font-weight:600}.score.best i b{opacity:1}
pre{margin:0;white-space:pre-wrap;overflow-wrap:anywhere;font-size:13px;max-height:420px;overflow:auto}
.error{color:var(--bad)}.time{color:var(--soft);font-size:13px;margin-top:12px}
.chat{display:flex;flex-direction:column;gap:10px;min-height:210px;max-height:460px;overflow:auto;margin-bottom:12px}
.chat div{max-width:82%;padding:9px 14px;border-radius:14px;white-space:pre-wrap;overflow-wrap:anywhere}
.chat .me{align-self:flex-end;background:var(--accent);color:#fff}.chat .it{align-self:flex-start;background:var(--wash)}.chat .error{align-self:center;background:none}
@media (prefers-color-scheme:dark){.chat .me{color:#0d1620}}
.row{display:flex;gap:10px}details{margin-top:18px;border-top:1px solid var(--line);padding-top:12px}summary{cursor:pointer;color:var(--soft);font-size:13px}
details pre{margin-top:10px;padding:10px 12px;background:var(--back);border-radius:9px}
dialog{border:1px solid var(--line);border-radius:14px;padding:22px 24px;width:min(420px,90vw);color:var(--ink);background:var(--card)}dialog::backdrop{background:#0007}.right{text-align:right;margin:14px 0 0}
)CSS";

}  // namespace tandem::serve
