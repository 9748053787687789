"use strict";
// A line chart in SVG: bands, lines, a legend, and a readout of the values under the pointer or by the arrow keys.
//
// drawChart(host, spec) draws into an element, and redraws when its width changes. spec:
//   x, y    {title, log, reversed, range: [low, high], ticks: [values], suffix, digits}; all but the title are optional
//   series  [{name, colour, dash: as in SVG, x, y, low, high, width, marks, quiet, group}]; quiet ones are not in the legend or
//           readout, those of a group have one entry in the legend
//   lines   [{y or x, text, dash}]: reference lines, labelled in the right margin
const drawChart = (() => {
  const LABEL = 14;
  let charts = 0;

  function add(parent, name, attributes = {}, text = "") {
    const svg = name === "svg" || parent.namespaceURI.endsWith("svg");
    const child = document.createElementNS(svg ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml", name);
    for (const [key, value] of Object.entries(attributes)) child.setAttribute(key, value);
    child.textContent = text;
    return parent.appendChild(child);
  }

  // The range of an axis, and the mapping from values to pixels.
  function scale(axis, values, from, to) {
    const usable = values.filter((value) => Number.isFinite(value) && (!axis.log || value > 0));
    // Not Math.min(...usable): a call has at most some 120,000 arguments.
    const extremes = ([low, high], value) => [Math.min(low, value), Math.max(high, value)];
    let [low, high] = axis.range ?? usable.reduce(extremes, [Infinity, -Infinity]);
    if (axis.log && !(low > 0)) [low] = usable.reduce(extremes, [Infinity, -Infinity]);
    if (!(high > low)) {
      const at = Number.isFinite(low) ? low : 1;  // nothing is drawn
      [low, high] = axis.log ? [at / 2, at * 2] : [at - 1, at + 1];
    }
    const transform = axis.log ? (value) => Math.log(Math.max(value, low * 1e-9)) : (value) => value;
    const [start, end] = axis.reversed ? [to, from] : [from, to];
    const pixel = (value) => start + ((transform(value) - transform(low)) / (transform(high) - transform(low))) * (end - start);
    return { low, high, pixel };
  }

  // Round values within the range: 1, 2 and 5 times powers of ten.
  function ticks(axis, { low, high }, count) {
    if (axis.ticks) return axis.ticks.filter((value) => value >= low && value <= high);
    if (axis.log) {
      const powers = [];
      for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) powers.push(10 ** power);
      const fine = [[1, 2, 3, 5, 7], [1, 2, 5], [1]].map((steps) =>
        powers.flatMap((power) => steps.map((step) => step * power)).filter((value) => value >= low && value <= high));
      if (fine[0].length > 1) return fine.find((values) => values.length <= count) ?? fine[2];
    }
    const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((times) => times * power).find((size) => size >= rough);
    const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
    return Array.from({ length: last - first + 1 }, (_, at) => (first + at) * step);
  }

  const shown = (value, suffix = "") => value.toLocaleString("en", { maximumSignificantDigits: 6 }) + suffix;

  // The area between low and high, where both are known.
  function area({ x: xs, low, high }, x, y) {
    const point = (at, ys) => `${x.pixel(xs[at]).toFixed(1)},${y.pixel(ys[at]).toFixed(1)}`;
    const parts = [[]];
    xs.forEach((_, at) => Number.isFinite(low[at]) ? parts.at(-1).push(at) : parts.push([]));
    return parts.filter((part) => part.length > 1).map((part) =>
      `M${[...part.map((at) => point(at, low)), ...part.toReversed().map((at) => point(at, high))].join("L")}Z`).join("");
  }

  // A path through the finite points, with gaps in between.
  function path(xs, ys, x, y) {
    let pen = "M";
    return xs.map((value, at) => {
      if (!Number.isFinite(ys[at])) { pen = "M"; return ""; }
      const point = `${pen}${x.pixel(value).toFixed(1)},${y.pixel(ys[at]).toFixed(1)}`;
      pen = "L";
      return point;
    }).join("");
  }

  function drawAxes(svg, spec, x, y, { left, right, top, bottom, width, height }) {
    let free = 0;
    for (const value of ticks(spec.x, x, Math.max(5, width / 90)).sort((one, other) => x.pixel(one) - x.pixel(other))) {
      const at = x.pixel(value), text = shown(value, spec.x.suffix), half = 4 * text.length;
      add(svg, "line", { class: "grid", x1: at, x2: at, y1: top, y2: bottom });
      if (at - half < free) continue;
      add(svg, "text", { x: at, y: bottom + 17, "text-anchor": "middle" }, text);
      free = at + half + 4;
    }
    const labelled = [];
    for (const value of ticks(spec.y, y, Math.max(4, height / 45))) {
      const at = y.pixel(value);
      add(svg, "line", { class: "grid", x1: left, x2: right, y1: at, y2: at });
      if (labelled.some((other) => Math.abs(other - at) < LABEL)) continue;
      add(svg, "text", { x: left - 7, y: at + 4, "text-anchor": "end" }, shown(value, spec.y.suffix));
      labelled.push(at);
    }
    add(svg, "text", { class: "x-title", x: (left + right) / 2, y: height - 8, "text-anchor": "middle" }, spec.x.title);
    const middle = (top + bottom) / 2;
    add(svg, "text", { class: "y-title", x: 14, y: middle, transform: `rotate(-90 14 ${middle})`, "text-anchor": "middle" }, spec.y.title);
  }

  // Reference lines with labels next to the plot, moved apart if they would overlap.
  function drawLines(svg, lines, x, y, { left, right, top, bottom }) {
    for (const line of lines.filter((line) => line.x !== undefined)) {
      const at = x.pixel(line.x);
      add(svg, "line", { class: "held", x1: at, x2: at, y1: top, y2: bottom, "stroke-dasharray": line.dash ?? "" });
      add(svg, "text", { class: "soft", x: at - 5, y: bottom - 6, "text-anchor": "end" }, line.text);
    }
    const across = lines.filter((line) => line.y >= y.low && line.y <= y.high).sort((one, other) => other.y - one.y);
    let free = top;
    for (const [number, line] of across.entries()) {
      const at = y.pixel(line.y);
      const below = across.length - number - 1;
      const label = Math.min(Math.max(at + 4, free), bottom - below * LABEL);
      free = label + LABEL;
      add(svg, "line", { class: "held", x1: left, x2: right, y1: at, y2: at, "stroke-dasharray": line.dash ?? "" });
      add(svg, "text", { class: "soft", x: right + 6, y: label }, line.text);
    }
  }

  function drawSeries(svg, series, x, y, clip) {
    const plot = add(svg, "g", { "clip-path": `url(#${clip})` });
    for (const one of series.filter((one) => one.low)) {
      add(plot, "path", { class: "band", "data-name": one.name, d: area(one, x, y), style: `fill:${one.colour}` });
    }
    for (const one of series) {
      const style = `stroke:${one.colour};stroke-width:${one.width ?? 2.2}`;
      add(plot, "path", { class: "line", "data-name": one.name, d: path(one.x, one.y, x, y), style, "stroke-dasharray": one.dash ?? "" });
      if (one.marks) one.x.forEach((value, at) =>
        add(plot, "circle", { cx: x.pixel(value), cy: y.pixel(one.y[at]), r: 3.2, style: `fill:${one.colour}` }));
    }
  }

  function legend(host, series) {
    const list = add(host, "ul", { class: "legend" });
    for (const [name, one] of new Map(series.map((one) => [one.group ?? one.name, one]))) {
      const item = add(list, "li");
      const sample = add(item, "svg", { class: "swatch", width: 30, height: 8, "aria-hidden": "true" });
      add(sample, "line", { x1: 0, x2: 30, y1: 4, y2: 4, style: `stroke:${one.colour}`, "stroke-dasharray": one.dash ?? "" });
      item.append(name);
    }
  }

  // The values nearest to a position on the x axis, as text that screen readers can read.
  function reader(host, svg, spec, x, { top, bottom, width }) {
    const named = spec.series.filter((one) => !one.quiet && one.x.length);
    const mark = add(svg, "line", { class: "mark", y1: top, y2: bottom, visibility: "hidden" });
    const values = add(host, "p", { class: "values", role: "status" });
    const positions = [...new Set(named.flatMap((one) => one.x))].sort((one, other) => x.pixel(one) - x.pixel(other));
    const digits = spec.y.digits ?? 3;
    let chosen = -1;

    function nearest(list, to) {
      return list.reduce((best, value, at) => (Math.abs(x.pixel(value) - to) < Math.abs(x.pixel(list[best]) - to) ? at : best), 0);
    }
    function read(to) {
      chosen = to;
      const at = positions[chosen];
      mark.setAttribute("visibility", "visible");
      for (const end of ["x1", "x2"]) mark.setAttribute(end, x.pixel(at));
      const parts = named.map((one) => {
        const point = nearest(one.x, x.pixel(at));
        const range = Number.isFinite(one.low?.[point]) ? ` (${one.low[point].toFixed(digits)} to ${one.high[point].toFixed(digits)})` : "";
        return Math.abs(x.pixel(one.x[point]) - x.pixel(at)) > 12 || one.y[point] === null ? "" : `${one.name} ${one.y[point].toFixed(digits)}${range}`;
      });
      values.textContent = `${spec.x.title} ${at.toLocaleString("en")}${spec.x.suffix ?? ""}: ${parts.filter(Boolean).join(" · ")}`;
    }
    for (const type of ["pointerdown", "pointermove"]) { // a tap moves no pointer
      svg.addEventListener(type, (event) => {
        const box = svg.getBoundingClientRect();
        if (positions.length) read(nearest(positions, ((event.clientX - box.left) / box.width) * width));
      });
    }
    svg.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
      if (!by || !positions.length) return;
      event.preventDefault();
      read(Math.min(Math.max(chosen + by, 0), positions.length - 1));
    });
  }

  function paint(host) {
    const { spec } = host, lines = spec.lines ?? [];
    const width = host.clientWidth || 680, height = Math.min(Number(host.dataset.height ?? 380), Math.max(260, width * 0.75));
    const beside = lines.some((line) => line.y !== undefined) ? 62 : 18;
    const frame = { left: 62, right: width - beside, top: 10, bottom: height - 46, width, height };
    host.replaceChildren();
    legend(host, spec.series.filter((one) => !one.quiet));
    const label = host.dataset.label ?? "";
    const svg = add(host, "svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-label": label });
    const x = scale(spec.x, [...spec.series.flatMap((one) => one.x), ...lines.map((line) => line.x ?? NaN)], frame.left, frame.right);
    const ys = spec.series.flatMap((one) => [...one.y, ...(one.low ?? []), ...(one.high ?? [])]);
    const y = scale(spec.y, [...ys, ...lines.map((line) => line.y ?? NaN)], frame.bottom, frame.top);
    const clip = `plot-${charts++}`;
    const plot = { x: frame.left, y: frame.top - 2, width: frame.right - frame.left, height: frame.bottom - frame.top + 3 };
    add(add(svg, "clipPath", { id: clip }), "rect", plot);
    drawAxes(svg, spec, x, y, frame);
    drawLines(svg, lines, x, y, frame);
    drawSeries(svg, spec.series, x, y, clip);
    reader(host, svg, spec, x, frame);
  }

  const watched = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (target.clientWidth !== target.painted && !matchMedia("print").matches) {
        target.painted = target.clientWidth;
        paint(target);
      }
    }
  });

  return (host, spec) => {
    host.spec = spec;
    host.painted = host.clientWidth;
    paint(host);
    watched.observe(host);
  };
})();
