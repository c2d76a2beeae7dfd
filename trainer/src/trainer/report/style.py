"""The page's style: light and dark by the reader's own setting, one column on a phone, plain on paper."""

STYLE = """\
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2127;--soft:#5b6570;--edge:#d9dee4;--panel:#f6f8fa;
--s0:#1f6feb;--s1:#d1570a;--good:#1a7f37;--warn:#9a6700;--bad:#cf222e;
--t0:#1f6feb;--t1:#d1570a;--t2:#1a7f37;--t3:#8250df;--t4:#bf8700;--t5:#8c959f}
@media (prefers-color-scheme:dark){:root{--bg:#12161c;--fg:#e3e8ee;--soft:#97a3b0;--edge:#313a45;--panel:#1a2028;
--s0:#58a6ff;--s1:#f0883e;--good:#3fb950;--warn:#d29922;--bad:#f85149;
--t0:#58a6ff;--t1:#f0883e;--t2:#3fb950;--t3:#bc8cff;--t4:#d29922;--t5:#6e7681}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.2rem;max-width:72rem;background:var(--bg);color:var(--fg);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
h1{margin:0;font-size:1.6rem;overflow-wrap:anywhere}h2{margin:2.2rem 0 .7rem;font-size:1.2rem}
h3{margin:1.2rem 0 .4rem;font-size:1rem}
p{margin:.3rem 0;overflow-wrap:anywhere}.soft{color:var(--soft)}
.good{color:var(--good)}.warn{color:var(--warn)}.bad{color:var(--bad)}
.state{display:inline-block;padding:.05rem .6rem;border:1px solid currentColor;border-radius:1rem;
font-size:.85rem;vertical-align:.2rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(9.5rem,1fr));gap:.6rem;margin:1rem 0 0}
.tiles div{padding:.5rem .7rem;background:var(--panel);border:1px solid var(--edge);border-radius:.4rem}
dl,dd,dt{margin:0}dt{color:var(--soft);font-size:.8rem}dd{font-size:1.1rem;font-weight:600;overflow-wrap:anywhere}
dd small{display:block;color:var(--soft);font-size:.78rem;font-weight:400}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,26rem),1fr));gap:1rem}
figure{margin:0;padding:.6rem .7rem .2rem;background:var(--panel);border:1px solid var(--edge);border-radius:.4rem;
break-inside:avoid}
figcaption{display:flex;flex-wrap:wrap;gap:0 1rem;font-size:.9rem;font-weight:600}
figcaption span{font-weight:400;color:var(--soft)}
.key::before{content:"";display:inline-block;width:.8rem;height:.25rem;margin-right:.35rem;border-radius:.1rem;vertical-align:.2rem;background:var(--c)}
svg{display:block;width:100%;height:auto}svg text{fill:var(--soft);font-size:12px}
svg .grid{stroke:var(--edge);stroke-width:1}svg .mark{stroke:var(--soft);stroke-width:1;stroke-dasharray:3 3}
svg .line{fill:none;stroke-width:1.6;stroke-linejoin:round}svg .band{stroke:none;opacity:.22}
.line.s0{stroke:var(--s0)}.line.s1{stroke:var(--s1)}.band.s0,.dot.s0{fill:var(--s0)}.band.s1,.dot.s1{fill:var(--s1)}
svg .gen{fill:var(--s0);opacity:.8}svg .gen.lost{fill:var(--bad);opacity:.9}svg .tick{stroke:var(--bg);stroke-width:1.5}
svg .in{fill:#fff}
svg.time{max-width:46rem}@media(min-width:44rem){svg.time text{font-size:9px}}
.spent{display:flex;height:1.1rem;border-radius:.3rem;overflow:hidden;margin:.4rem 0}
.spent i{display:block;background:var(--c)}
.keys{display:flex;flex-wrap:wrap;gap:.1rem 1.1rem;font-size:.88rem}
.wide{margin-top:.6rem;overflow-x:auto}table{border-collapse:collapse;width:100%;min-width:34rem;font-size:.88rem}
th,td{padding:.3rem .6rem .3rem 0;border-bottom:1px solid var(--edge);text-align:left;vertical-align:top}
th{color:var(--soft);font-weight:500}td.n,th.n{padding-right:1.3rem;text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.t{white-space:nowrap}td.code{font:.82rem ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{margin:0;padding:.8rem;background:var(--panel);border:1px solid var(--edge);border-radius:.4rem;
font:.82rem/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre-wrap;overflow-wrap:anywhere}
footer{margin-top:2.5rem;padding-top:.6rem;border-top:1px solid var(--edge);color:var(--soft);font-size:.82rem}
@media print{:root{color-scheme:light}body{max-width:none;padding:0;font-size:11px}
.charts{grid-template-columns:1fr 1fr}
h2{break-after:avoid}tr{break-inside:avoid}.wide{overflow:visible}
table{min-width:0}}
"""
