"use strict";
// The logits of a scheme for random pairs of tokens, and the measured curve of the nearest setting.
const LOGITS = (() => {
  const WIDTH = 128, HEAD = 32, CONTEXT = 256, PAIRS = 48;

  // Uniform numbers from a seed (mulberry32), made normal in pairs (Box and Muller).
  function normal(seed) {
    const uniform = () => {
      seed = (seed + 0x6d2b79f5) | 0;
      let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
    return (size, std) => Array.from({ length: size }, () =>
      std * Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform()));
  }

  function normalised(x) {
    const mean = x.reduce((sum, value) => sum + value, 0) / x.length;
    const std = Math.sqrt(x.reduce((sum, value) => sum + (value - mean) ** 2, 0) / x.length);
    return x.map((value) => (value - mean) / std);
  }

  const project = (rows, x) => rows.map((row) => row.reduce((sum, weight, at) => sum + weight * x[at], 0));

  // Two tokens whose embeddings have the given correlation, and a projection for both query and key.
  function draw(random, likeness) {
    const query = random(WIDTH, 0.02), other = random(WIDTH, 0.02);
    const key = query.map((value, at) => likeness * value + Math.sqrt(1 - likeness ** 2) * other[at]);
    return { query, key, rows: Array.from({ length: HEAD }, () => random(WIDTH, WIDTH ** -0.5)) };
  }

  // The logit of one pair at each distance, the query at the end of the context.
  function ofPair(scheme, { query, key, rows }, settings, numbers) {
    const at = (tokens, position) => project(rows, normalised(scheme.embed(tokens, position, settings)));
    const q = at(query, CONTEXT - 1), still = scheme.embed(key, 0, settings) === key && at(key, 0);
    return Array.from({ length: CONTEXT }, (_, distance) =>
      scheme.product(q, still || at(key, CONTEXT - 1 - distance), distance, settings) / Math.sqrt(HEAD) +
      scheme.bias(distance, settings, HEAD, numbers));
  }

  // Mean and standard deviation over the pairs, by distance.
  function byDistance(scheme, settings, likeness, seed) {
    const random = normal(seed), numbers = random(64, 1);
    const pairs = Array.from({ length: PAIRS }, () => ofPair(scheme, draw(random, likeness), settings, numbers));
    const mean = pairs[0].map((_, at) => pairs.reduce((sum, logits) => sum + logits[at], 0) / PAIRS);
    const std = mean.map((middle, at) => Math.sqrt(pairs.reduce((sum, logits) => sum + (logits[at] - middle) ** 2, 0) / (PAIRS - 1)));
    return { x: mean.map((_, distance) => distance), y: mean, low: mean.map((m, at) => m - std[at]), high: mean.map((m, at) => m + std[at]) };
  }

  return { byDistance };
})();

(() => {
  // The sliders; all but the first are arguments of the scheme's class.
  const CONTROLS = {
    likeness: { label: "correlation of the two tokens", low: 0, high: 1, start: 0.5, step: 0.05 },
    base: { label: "base", low: 2, high: 1e7, start: 1e4, log: true },
    fraction: { label: "fraction of each head that is rotated", low: 1 / 16, high: 1, start: 1, step: 1 / 16 },
    kept: { label: "fraction of the planes that is rotated, the fastest", low: 0, high: 1, start: 0.75, step: 1 / 16 },
    scale: { label: "amplitude", low: 0.01, high: 1, start: 0.1, log: true },
    slope: { label: "slope (four heads have 1/4 to 1/256)", low: 1 / 256, high: 1, start: 1 / 16, log: true },
    buckets: { label: "buckets", low: 4, high: 64, start: 32, step: 2 },
    max_distance: { label: "distance from which all share the last bucket", low: 64, high: 256, start: 128, step: 1 },
    spread: { label: "standard deviation of the scalars (0.02 at step 0)", low: 0.01, high: 1, start: 0.1, log: true },
    r1: { label: "r₁", low: 0.01, high: 2, start: 1, log: true },
    r2: { label: "r₂", low: 0.01, high: 1, start: 0.5, log: true },
  };
  const NAMES = { scale: "amplitude", kept: "planes kept", max_distance: "longest distance" };
  const { looks: LOOKS, grids: GRIDS, measured: MEASURED } = JSON.parse(document.getElementById("data").textContent);
  const form = document.getElementById("controls");
  const [chosen, measuredIn, named] = ["scheme", "measured", "named"].map((id) => document.getElementById(id));
  let seed = 1;

  // A slider runs from 0 to 1,000; its value is rounded to two digits or the step.
  function value(name) {
    const { low, high, log, step } = CONTROLS[name], share = form.elements[name].value / 1000;
    const exact = log ? low * (high / low) ** share : low + (high - low) * share;
    return step ? Math.round(exact / step) * step : Number(exact.toPrecision(2));
  }
  function initial(name) {
    const { low, high, log, start } = CONTROLS[name];
    return Math.round(1000 * (log ? Math.log(start / low) / Math.log(high / low) : (start - low) / (high - low)));
  }

  // Distance between a measured setting and the chosen one: sum of log ratios over the controls that both have.
  const far = (arm, settings) => Object.entries(settings).reduce((sum, [name, number]) =>
    sum + (arm.values[name] > 0 ? Math.abs(Math.log((number || 1e-3) / arm.values[name])) : 0), 0);

  const tokens = (arm) => arm.tokens.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 3 });

  function text(arm) {
    const own = Object.entries(arm.values).map(([name, number]) => `${NAMES[name] ?? name} ${number.toLocaleString("en")}`);
    const seeds = arm.seeds.length === 1 ? `seed ${arm.seeds[0]}` : `${arm.seeds.length} seeds (${arm.seeds.join(", ")})`;
    const where = [arm.setting, arm.rate && `learning rate ${arm.rate}`].filter(Boolean).join(", ");
    return [[arm.name, ...own].join(", "), where, seeds, `${tokens(arm)} tokens`, arm.source].filter(Boolean).join("; ");
  }

  function nearest(settings) {
    const arms = MEASURED.filter((arm) => arm.scheme === chosen.value);
    const order = (arm) => [far(arm, settings), -arm.seeds.length, -arm.tokens];
    return arms.sort((one, other) => order(one).map((number, at) => number - order(other)[at]).find((gap) => Math.abs(gap) > 1e-9) ?? 0);
  }

  const curve = (arm, width) => ({ ...LOOKS[arm.name], name: arm.name, x: GRIDS[arm.x].map((tokens) => tokens / 1e6), y: arm.y, low: width > 2 ? arm.low : undefined, high: arm.high, width });

  // Of every other scheme in the same experiment the arm that shares most seeds, and of these the best.
  function beside(arm) {
    const alike = MEASURED.filter((other) => other.name !== arm.name && ["source", "setting", "tokens"].every((key) => other[key] === arm[key]));
    const shared = (other) => other.seeds.filter((seed) => arm.seeds.includes(seed)).length;
    alike.sort((one, other) => shared(one) - shared(other) || other.y.at(-1) - one.y.at(-1));
    return [...new Map(alike.map((other) => [other.name, other])).values()];
  }

  function drawMeasured(arm) {
    const host = document.getElementById("loss");
    named.textContent = arm ? `Measured: ${text(arm)}.` : "There is no curve for this scheme in results/ yet.";
    host.hidden = measuredIn.parentElement.hidden = !arm;
    if (!arm) return;
    const series = [...beside(arm).map((other) => curve(other, 1)), curve(arm, 2.8)];
    const ends = series.flatMap((one) => [one.y.at(-1), one.y[Math.floor(one.y.length / 6)]]);
    drawChart(host, {
      x: { title: "million tokens", range: [0, arm.tokens / 1e6] },
      y: { title: "validation loss, nats per token", range: [Math.min(...ends) - 0.03, Math.max(...ends)] }, series,
    });
  }

  function drawLogits(settings) {
    const scheme = SCHEMES[chosen.value];
    const likeness = value("likeness");
    drawChart(document.getElementById("logits"), {
      x: { title: "distance, tokens", range: [0, 255] }, y: { title: "attention logit", digits: 2 },
      series: [{ ...LOOKS[scheme.label], name: scheme.label, ...LOGITS.byDistance(scheme, settings, likeness, seed) }],
    });
  }

  function draw(event) {
    const scheme = SCHEMES[chosen.value];
    for (const row of form.querySelectorAll("[data-control]")) {
      const name = row.dataset.control;
      row.hidden = name !== "likeness" && !scheme.controls.includes(name);
      const shown = value(name).toLocaleString("en", { maximumFractionDigits: 4 });
      row.querySelector("span").textContent = shown;
      row.querySelector("input").setAttribute("aria-valuetext", shown);
    }
    document.getElementById("formula").textContent = scheme.formula;
    const settings = Object.fromEntries(scheme.controls.map((name) => [name, value(name)]));
    if (event?.target === measuredIn) return drawMeasured(MEASURED[measuredIn.value]);
    drawLogits(settings);
    if (["again", "likeness"].includes(event?.target.id || event?.target.name)) return;  // no setting has changed
    const arms = nearest(settings);
    measuredIn.replaceChildren(...arms.map((arm, at) => new Option(`${at ? "" : "nearest: "}${text(arm)}`, MEASURED.indexOf(arm))));
    drawMeasured(MEASURED[measuredIn.value]);
  }

  for (const [key, { label }] of Object.entries(SCHEMES)) chosen.add(new Option(label, key, key === "Rotary", key === "Rotary"));
  for (const [name, { label, low, high, step }] of Object.entries(CONTROLS)) {
    const row = document.getElementById("sliders").appendChild(document.createElement("label"));
    row.dataset.control = name;
    const by = step ? (1000 * step) / (high - low) : 5;
    row.append(label, document.createElement("span"), Object.assign(document.createElement("input"), { type: "range", name, max: 1000, step: by }));
    form.elements[name].value = initial(name);
  }
  document.getElementById("again").addEventListener("click", (event) => { seed += 1; draw(event); });
  form.addEventListener("input", draw);
  form.addEventListener("submit", (event) => event.preventDefault());
  draw();
})();
