// A chart: axes, a legend, and a cursor for mouse, touch and arrow keys. Drawn anew for every width.

const resized = new ResizeObserver((entries) => {
  for (const entry of entries) {
    const width = Math.floor(entry.contentRect.width);
    const plot = entry.target;
    if (width > 0 && plot.drawnWidth !== width) {
      plot.drawnWidth = width;
      plot.draw(width);
    }
  }
});

// `draw(width)` returns the content of an svg; `cursor` is asked for the text at a place of the x axis.
function figure({ title, subtitle, legend, height = 170, label, draw, cursor }) {
  const tip = el("div", { class: "tip", role: "status", hidden: true });
  const plot = el("div", { class: "plot", style: { height: `${height}px` } });  // no jump while it is drawn
  plot.draw = (width) => {
    const drawn = draw(width, height);
    const image = svg("svg", {
      width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, tabindex: cursor ? 0 : null,
      "data-key": cursor ? `chart/${title}/${label.slice(0, 40)}` : null, class: cursor ? "readable" : null,
    }, drawn.nodes);
    plot.replaceChildren(image, tip);
    if (cursor) attachCursor(image, tip, drawn, cursor, width, height);
  };
  resized.observe(plot);
  return el(
    "figure", {},
    title ? el("figcaption", {}, el("strong", {}, title), subtitle ? el("span", {}, subtitle) : null) : null,
    legend?.length > 1 || legend?.[0]?.always ? el("ul", { class: "legend" }, legend.map(legendEntry)) : null,
    plot,
  );
}

function legendEntry({ name, color, dash, fill: filled }) {
  const mark = filled
    ? svg("rect", { x: 1, y: 3, width: 14, height: 8, rx: 2, style: { fill: color } })
    : svg("line", { x1: 0, x2: 16, y1: 7, y2: 7, "stroke-dasharray": dash, style: { stroke: color, "stroke-width": 2.5 } });
  return el("li", {}, svg("svg", { width: 16, height: 14, "aria-hidden": "true" }, mark), name);
}

function attachCursor(image, tip, drawn, cursor, width, height) {
  const line = svg("line", { class: "cursor", y1: drawn.top, y2: height - drawn.bottom, visibility: "hidden" });
  image.append(line);
  let place = null;
  const show = (index) => {
    place = Math.max(0, Math.min(drawn.places.length - 1, index));
    const x = drawn.places[place];
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
    line.setAttribute("visibility", "visible");
    tip.replaceChildren(...cursor(place));
    tip.hidden = false;
    const left = x > width / 2 ? Math.max(0, x - tip.offsetWidth - 10) : Math.min(width - tip.offsetWidth, x + 10);
    tip.style.setProperty("left", `${Math.max(0, left)}px`);
  };
  const hide = () => {
    line.setAttribute("visibility", "hidden");
    tip.hidden = true;
  };
  const nearest = (event) => {
    const x = event.clientX - image.getBoundingClientRect().left;
    let best = 0;
    drawn.places.forEach((at, i) => { if (Math.abs(at - x) < Math.abs(drawn.places[best] - x)) best = i; });
    return best;
  };
  image.addEventListener("pointermove", (event) => show(nearest(event)));
  image.addEventListener("pointerdown", (event) => show(nearest(event)));
  image.addEventListener("pointerleave", hide);
  image.addEventListener("blur", hide);
  image.addEventListener("keydown", (event) => {
    const jump = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e9, End: 1e9 }[event.key];
    if (event.key === "Escape") hide();
    if (jump === undefined) return;
    event.preventDefault();
    show(place === null ? (jump < 0 ? drawn.places.length - 1 : 0) : place + jump);
  });
}

const tipRows = (head, rows) => [
  el("div", { class: "tiphead" }, head),
  ...rows.map(({ name, color, value }) => el("div", {}, color ? dot(color) : null, el("span", {}, name), el("b", {}, value))),
];

// The frame of a plot: scales, grid lines and labels; `steps`: the x axis counts steps, and there is no step 0.5.
function axes({ width, height, xs, low, high, log = false, yFormat = short, left = 44, steps = false }) {
  const top = 8, bottom = 22, right = 12;
  const [x0, x1] = [xs[0], xs[xs.length - 1]];
  const scale = log ? Math.log10 : (value) => value;
  const x = (value) => left + ((value - x0) / (x1 - x0 || 1)) * (width - left - right);
  const y = (value) => height - bottom - ((scale(value) - scale(low)) / (scale(high) - scale(low) || 1)) * (height - top - bottom);
  const yTicks = log ? logTicks(low, high) : ticks(low, high, Math.max(2, Math.floor(height / 45)));
  const shownX = ticks(x0, x1, Math.max(2, Math.floor(width / 55)))
    .filter((value) => value >= x0 && value <= x1 && (!steps || Number.isInteger(value)));
  const nodes = [
    ...yTicks.map((value) => svg("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) })),
    ...yTicks.map((value) => svg("text", { class: "tick", x: left - 6, y: y(value) + 3.5, "text-anchor": "end" }, (yFormat === percent ? percentTick : yFormat)(value))),
    ...shownX.map((value) => svg("text", { class: "tick", x: x(value), y: height - 6, "text-anchor": "middle" }, short(value))),
  ];
  return { x, y, nodes, top, bottom, left, right };
}

function path(points) {
  let text = "";
  let open = false;
  for (const [x, y] of points) {
    if (y === null) { open = false; continue; }
    text += `${open ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    open = true;
  }
  return text;
}

// The smallest and largest value, with a little room; `floor` and `ceiling` are always inside.
function range(columns, { floor, ceiling, log } = {}) {
  const values = columns.flat().filter((value) => isNumber(value) && (!log || value > 0));
  if (!values.length) return null;
  let low = Math.min(...values, floor ?? Infinity), high = Math.max(...values, ceiling ?? -Infinity);
  if (low === high) [low, high] = log ? [low / 1.5, high * 1.5] : [low - (Math.abs(low) || 1) * 0.1, high + (Math.abs(high) || 1) * 0.1];
  if (log) return [low / 1.08, high * 1.08];
  const room = (high - low) * 0.06;
  return [floor !== undefined && low >= floor ? floor : low - room, ceiling !== undefined && high <= ceiling ? ceiling : high + room];
}

// Lines over steps. A series is {name, color, dash, values, faint, dots, steps}; `steps` only if they are its own.
function lineChart({ title, subtitle, steps, series, floor, ceiling, log, yFormat = short, height, bands = [] }) {
  const known = series.filter((one) => one.values?.some(isNumber));
  const limits = range(known.map((one) => one.values), { floor, ceiling, log });
  if (!limits) return null;
  const own = (one) => one.steps ?? steps;
  const xs = [...new Set(known.flatMap(own))].sort((a, b) => a - b);
  const named = known.filter((one) => !one.faint);
  const at = (one, step) => one.values[own(one).indexOf(step)];
  const label = `${title}. ` + named.map((one) => `${one.name}: ${yFormat(last(one.values))} at the end`).join("; ");
  return figure({
    title, subtitle, height, label, legend: named,
    draw: (width, tall) => {
      const frame = axes({ width, height: tall, xs, low: limits[0], high: limits[1], log, yFormat, steps: true });
      const point = (one) => one.values.map((value, i) => [frame.x(own(one)[i]), isNumber(value) && (!log || value > 0) ? frame.y(value) : null]);
      const joined = (one) => (one.dots ? point(one).filter(([, y]) => y !== null) : point(one));
      const nodes = [
        ...frame.nodes,
        ...bands.map((value) => svg("line", { class: "mark", x1: frame.left, x2: width - frame.right, y1: frame.y(value), y2: frame.y(value) })),
        ...known.map((one) => svg("path", {
          class: one.faint ? "line faint" : "line", d: path(joined(one)), "stroke-dasharray": one.dash || null, style: { stroke: one.color },
        })),
        ...known.filter((one) => one.dots || xs.length === 1).flatMap((one) => point(one).filter(([, y]) => y !== null)
          .map(([x, y]) => svg("circle", { cx: x, cy: y, r: 3, style: { fill: one.color } }))),
      ];
      return { nodes, places: xs.map(frame.x), top: frame.top, bottom: frame.bottom };
    },
    cursor: (place) => tipRows(`step ${xs[place]}`, named.filter((one) => isNumber(at(one, xs[place])))
      .map((one) => ({ name: one.name, color: one.color, value: yFormat(at(one, xs[place])) }))),
  });
}
