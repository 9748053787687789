"use strict";
// Draws the panels in #data, and redraws them when a control changes. The form is the only state.
(() => {
  const { labels: LABELS, panels } = JSON.parse(document.getElementById("data").textContent);
  const form = document.getElementById("controls");

  function choices() {
    const data = new FormData(form);
    return {
      axis: data.get("axis"),
      schemes: new Set(data.getAll("scheme")),
      ...Object.fromEntries(["logx", "logy", "mean", "seeds", "thresholds"].map((name) => [name, data.has(name)])),
    };
  }

  const mean = ({ name, colour, dash }, curve, x = curve.x) => ({ name, colour, dash, x, y: curve.middle, low: curve.low, high: curve.high });

  function overTraining(panel, chosen, measure) {
    const shown = panel.schemes.filter((scheme) => chosen.schemes.has(scheme.name) && scheme.mean[measure]);
    const seeds = shown.flatMap(({ name, colour, dash, runs }) => runs.map((run) => ({
      name: `${name}, seed ${run.seed}`, group: name, colour, dash, width: 0.8, quiet: chosen.mean, x: run[chosen.axis], y: run[measure],
    })));
    const means = shown.map((scheme) => mean(scheme, scheme.mean[measure], scheme.mean[measure][chosen.axis]));
    return [...(chosen.seeds ? seeds : []), ...(chosen.mean ? means : [])];
  }

  const across = (chosen) => ({ title: LABELS[chosen.axis], log: chosen.logx });

  function loss(panel, chosen) {
    const lines = panel.thresholds.map(({ level, share }) => ({ y: level, text: share }));
    if (panel.ngram) lines.push({ y: panel.ngram.loss, text: panel.ngram.order, dash: "2 3" });
    return {
      x: across(chosen), y: { title: LABELS.val_loss, log: chosen.logy, range: panel.window },
      series: overTraining(panel, chosen, "val_loss"), lines: chosen.thresholds ? lines : [],
    };
  }

  // 1 and 2 first, since a label is left out where it would overlap one before it.
  const RATIOS = [1, 2, 0.5, 1.5, 5, 10, 0.2, 0.1, 3, 20, 50, 0.7, 1.2, 1.1, 1.3, 0.9, 0.8, 1.4, 0.6, 1.7, 2.5, 0.3, 0.4, 4, 7, 15, 30, 1.05, 0.95, 1.02, 0.98];

  function speedUp(panel, chosen) {
    const drawn = panel.schemes.filter((scheme) => scheme.speedup && chosen.schemes.has(scheme.name));
    return {
      x: { title: LABELS.val_loss, reversed: true },
      y: { title: LABELS.speed_up_steps, log: true, ticks: RATIOS, suffix: "x", digits: 2 },
      series: drawn.map((scheme) => mean(scheme, scheme.speedup)), lines: [{ y: 1, text: "baseline" }],
    };
  }

  // A score is a share of the attention, hence the range.
  const score = (measure) => (panel, chosen) => ({
    x: across(chosen), y: { title: LABELS[measure], range: [0, 1] }, series: overTraining(panel, chosen, measure),
  });

  const longer = (kind) => (panel, chosen) => {
    const { context, times } = panel.longer;
    const drawn = panel.schemes.filter((scheme) => scheme[kind] && chosen.schemes.has(scheme.name));
    const x = {
      lengths: { title: "length, times the training length", ticks: times, suffix: "x" },
      positions: { title: "position in the window, tokens", ticks: Array.from({ length: 12 }, (_, power) => 4 ** power) },
    }[kind];
    return {
      x: { ...x, log: true }, y: { title: LABELS[kind === "lengths" ? "bits_per_byte" : "val_loss"] },
      series: drawn.map((scheme) => ({ ...mean(scheme, scheme[kind]), marks: kind === "lengths" })),
      lines: kind === "positions" ? [{ x: context, text: "training length" }] : [],
    };
  };

  const CHARTS = {
    loss, speedup: speedUp, previous_token: score("previous_token"), induction: score("induction"),
    lengths: longer("lengths"), positions: longer("positions"),
  };

  function draw() {
    const chosen = choices();
    panels.forEach((panel, index) => {
      for (const [kind, spec] of Object.entries(CHARTS)) {
        const host = document.getElementById(`${kind}-${index}`);
        if (host) drawChart(host, spec(panel, chosen));
      }
    });
  }

  form.addEventListener("change", draw);
  form.addEventListener("submit", (event) => event.preventDefault());
  draw();
})();
