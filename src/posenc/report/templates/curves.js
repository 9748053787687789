"use strict";
// Draws the panels in #data and redraws them when a control changes. One object of choices, no other state.
(() => {
  const { axes: AXES, titles: TITLES, panels } = JSON.parse(document.getElementById("data").textContent);
  const form = document.getElementById("controls");
  const CONFIG = { responsive: true, displaylogo: false, displayModeBar: false };

  function choices() {
    const data = new FormData(form);
    return {
      axis: data.get("axis"),
      schemes: new Set(data.getAll("scheme")),
      ...Object.fromEntries(["logx", "logy", "mean", "seeds", "thresholds"].map((name) => [name, data.has(name)])),
    };
  }

  function faded(colour, alpha) {
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    return `rgba(${r},${g},${b},${alpha})`;
  }

  // Three traces: the band's two edges, the second filled down to the first, and the mean.
  function withBand(scheme, x, curve, digits) {
    const edge = { x, mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false, legendgroup: scheme.name };
    const text = curve.middle.map((_, i) => `${curve.low[i].toFixed(digits)} to ${curve.high[i].toFixed(digits)}`);
    return [
      { ...edge, y: curve.low },
      { ...edge, y: curve.high, fill: "tonexty", fillcolor: faded(scheme.colour, 0.18) },
      {
        x, y: curve.middle, text, mode: "lines", name: scheme.name, legendgroup: scheme.name,
        line: { color: scheme.colour, width: 2.2, dash: scheme.dash },
        hovertemplate: `%{y:.${digits}f} (%{text})`,
      },
    ];
  }

  function overTraining(panel, chosen, measure, digits) {
    const shown = panel.schemes.filter((scheme) => chosen.schemes.has(scheme.name) && scheme.mean[measure]);
    const traces = [];
    for (const scheme of shown) {
      if (chosen.seeds) {
        for (const run of scheme.runs) {
          traces.push({
            x: run[chosen.axis], y: run[measure], mode: "lines", name: `${scheme.name}, seed ${run.seed}`,
            line: { color: scheme.colour, width: 1 }, opacity: 0.6, showlegend: false,
            hovertemplate: `%{y:.${digits}f}`,
          });
        }
      }
      if (chosen.mean) {
        const curve = scheme.mean[measure];
        traces.push(...withBand(scheme, curve[chosen.axis], curve, digits));
      }
    }
    return traces;
  }

  function layout(kind, chosen) {
    return {
      margin: { l: 55, r: 40, t: 10, b: 45 },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 13, color: "#1c1c1c" },
      hovermode: "x unified",
      legend: { orientation: "h", y: 1.08 },
      xaxis: { title: { text: AXES[chosen.axis] }, type: chosen.logx ? "log" : "linear", gridcolor: "#e6e6e6", zeroline: false },
      yaxis: { title: { text: TITLES[kind], standoff: 8 }, automargin: true, type: chosen.logy ? "log" : "linear", gridcolor: "#e6e6e6", zeroline: false },
    };
  }

  function drawLoss(panel, index, chosen) {
    const form = layout("loss", chosen);
    const [low, high] = panel.window;
    form.yaxis.range = chosen.logy ? [Math.log10(low), Math.log10(high)] : [low, high];
    const { loss, name } = panel.ngram ?? {};
    const floor = loss > low && loss < high ? [{ level: loss, name }] : [];
    const lines = chosen.thresholds ? [...panel.thresholds, ...floor] : [];
    form.shapes = lines.map(({ level, name }) => ({
      type: "line", xref: "paper", x0: 0, x1: 1, y0: level, y1: level, layer: "below",
      line: { color: name ? "#1c1c1c" : "#8a8a8a", width: 1, dash: name ? "dot" : "solid" },
    }));
    form.annotations = lines.map(({ level, share, name }) => ({
      xref: "paper", x: 1, xanchor: name ? "right" : "left", y: chosen.logy ? Math.log10(level) : level,
      yanchor: name ? "bottom" : "middle", text: name ?? share, showarrow: false,
      font: { size: 11, color: "#5a5a5a" },
    }));
    Plotly.react(`loss-${index}`, overTraining(panel, chosen, "val_loss", 3), form, CONFIG);
  }

  function drawSpeedUp(panel, index, chosen) {
    const form = layout("speedup", { ...chosen, axis: "step", logx: false, logy: true });
    form.xaxis.title.text = "loss, nats per token";
    form.xaxis.autorange = "reversed";
    form.yaxis.tickvals = [0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50];
    form.yaxis.ticksuffix = "x";
    form.shapes = [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: 1, y1: 1, line: { color: "#5a5a5a", width: 1.2 } }];
    const traces = panel.schemes
      .filter((scheme) => scheme.speedup && chosen.schemes.has(scheme.name))
      .flatMap((scheme) => withBand(scheme, scheme.speedup.x, scheme.speedup, 2));
    Plotly.react(`speedup-${index}`, traces, form, CONFIG);
  }

  function drawHeads(panel, index, chosen, measure) {
    const form = layout(measure, { ...chosen, logy: false });
    form.yaxis.rangemode = "tozero";
    Plotly.react(`${measure}-${index}`, overTraining(panel, chosen, measure, 3), form, CONFIG);
  }

  function drawLonger(panel, index, chosen, kind) {
    const form = layout(kind, { ...chosen, axis: "step", logx: true, logy: false });
    const { context, times } = panel.longer;
    const [title, marks] = {
      lengths: ["times the training length", times],
      positions: ["position in the window, tokens", Array.from({ length: 22 }, (_, power) => 2 ** power)],
    }[kind];
    Object.assign(form.xaxis, { title: { text: title }, tickvals: marks });
    if (kind === "positions") {
      form.shapes = [{ type: "line", x0: context, x1: context, yref: "paper", y0: 0, y1: 1, line: { color: "#5a5a5a", width: 1.2 } }];
    }
    const traces = panel.schemes
      .filter((scheme) => scheme[kind] && chosen.schemes.has(scheme.name))
      .flatMap((scheme) => withBand(scheme, scheme[kind].x, scheme[kind], 3));
    if (kind === "lengths") {
      for (const trace of traces) if (trace.name) trace.mode = "lines+markers";
    }
    Plotly.react(`${kind}-${index}`, traces, form, CONFIG);
  }

  function draw() {
    const chosen = choices();
    panels.forEach((panel, index) => {
      drawLoss(panel, index, chosen);
      if (document.getElementById(`speedup-${index}`)) drawSpeedUp(panel, index, chosen);
      for (const measure of ["previous_token", "induction"]) {
        if (document.getElementById(`${measure}-${index}`)) drawHeads(panel, index, chosen, measure);
      }
      for (const kind of ["lengths", "positions"]) {
        if (document.getElementById(`${kind}-${index}`)) drawLonger(panel, index, chosen, kind);
      }
    });
  }

  form.addEventListener("change", draw);
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("beforeprint", () =>
    document.querySelectorAll(".chart").forEach((chart) => Plotly.relayout(chart, { width: 680 })));
  window.addEventListener("afterprint", () =>
    document.querySelectorAll(".chart").forEach((chart) => Plotly.relayout(chart, { width: null, autosize: true })));
  draw();
})();
