// The other kinds of plots: stacked areas, histograms, intervals, bars, sparklines.

// Parts of a whole over steps; a part is {name, color, values}.
function stackedChart({ title, subtitle, steps, parts, yFormat = percent, ceiling, height = 130, legend = true }) {
  const totals = steps.map((_, i) => parts.reduce((sum, part) => sum + (part.values[i] ?? 0), 0));
  const rows = steps.map((_, i) => i).filter((i) => parts.some((part) => isNumber(part.values[i])));
  if (!rows.length) return null;
  const xs = rows.map((i) => steps[i]);
  const high = ceiling ?? Math.max(...totals) * 1.05;
  const label = `${title}. ` + parts.map((part) => `${part.name}: ${yFormat(mean(part.values))} on average`).join("; ");
  return figure({
    title, subtitle, height, label, legend: legend ? parts.map((part) => ({ ...part, fill: true })) : null,
    draw: (width, tall) => {
      const frame = axes({ width, height: tall, xs, low: 0, high, yFormat, steps: true });
      let below = rows.map(() => 0);
      const areas = parts.map((part) => {
        const above = rows.map((i, n) => below[n] + (part.values[i] ?? 0));
        const edge = (values) => values.map((value, n) => [frame.x(xs[n]), frame.y(value)]);
        const outline = path([...edge(above), ...edge(below).reverse()]) + "Z";
        below = above;
        return svg("path", { class: "area", d: outline, style: { fill: part.color } });
      });
      return { nodes: [...areas, ...frame.nodes], places: xs.map(frame.x), top: frame.top, bottom: frame.bottom };
    },
    cursor: (place) => tipRows(`step ${xs[place]}`, [...parts].reverse().map((part) => ({ name: part.name, color: part.color, value: yFormat(part.values[rows[place]]) }))),
  });
}

// Counts of ratios in equal bins, with the window they have to lie in.
function histogram({ title, subtitle, counts, first, width: bin, window: bounds, height = 140 }) {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (!total) return null;
  const edges = [...counts.keys(), counts.length].map((i) => first + i * bin);
  const most = Math.max(...counts) / total;
  const inside = bounds ? counts.reduce((sum, count, i) => sum + (edges[i] >= bounds[0] - 1e-9 && edges[i + 1] <= 1 + 1e-9 ? count : 0), 0) : null;
  return figure({
    title, subtitle, height,
    label: `${title}. Histogram of ${whole(total)} ratios${bounds ? `, window from ${short(bounds[0])} to 1, ${percent(inside / total)} of the ratios in bins inside its widest extent` : ""}`,
    draw: (width, tall) => {
      const frame = axes({ width, height: tall, xs: [edges[0], edges[edges.length - 1]], low: 0, high: most * 1.08, yFormat: percent, left: 38 });
      const [top, floor] = [frame.top, tall - frame.bottom];
      const band = bounds ? [
        svg("rect", { class: "window", x: frame.x(bounds[0]), width: Math.max(1, frame.x(1) - frame.x(bounds[0])), y: top, height: floor - top }),
        svg("rect", { class: "window", x: frame.x(bounds[1]), width: Math.max(0, frame.x(1) - frame.x(bounds[1])), y: top, height: floor - top }),
      ] : [];
      const bars = counts.map((count, i) => svg("rect", {
        class: bounds && (edges[i + 1] <= bounds[0] + 1e-9 || edges[i] >= 1 - 1e-9) ? "bar out" : "bar",
        x: frame.x(edges[i]) + 0.5, width: Math.max(0.5, frame.x(edges[i + 1]) - frame.x(edges[i]) - 1),
        y: frame.y(count / total), height: Math.max(0, floor - frame.y(count / total)),
      }));
      const one = svg("line", { class: "mark", x1: frame.x(1), x2: frame.x(1), y1: top, y2: floor });
      return { nodes: [...band, ...frame.nodes, ...bars, one], places: counts.map((_, i) => frame.x(edges[i] + bin / 2)), top: frame.top, bottom: frame.bottom };
    },
    cursor: (i) => tipRows(`ratio ${i === 0 ? "up to" : short(edges[i])}${i === 0 ? " " : " to "}${i === counts.length - 1 ? "∞" : short(edges[i + 1])}`,
      [{ name: "responses", value: `${whole(counts[i])} (${percent(counts[i] / total)})` }]),
  });
}

// Rows of intervals: {label, marks: [{name, color, shape, mean, low, high}]}.
function intervalChart({ title, subtitle, rows, legend }) {
  const line = 15, gap = 12, left = 24 + 8 * Math.max(...rows.map((row) => Math.min(14, row.label.length)));
  const height = 30 + rows.reduce((sum, row) => sum + row.marks.length * line + gap, 0);
  const all = rows.flatMap((row) => row.marks.flatMap((mark) => [mark.low, mark.high]));
  const [low, high] = [Math.max(0, Math.floor(Math.min(...all) * 20) / 20), Math.min(1, Math.ceil(Math.max(...all) * 20) / 20)];
  const label = `${title}. ` + rows.map((row) => `${row.label}: ` + row.marks.map((mark) => `${mark.name} ${share(mark.mean)}`).join(", ")).join("; ");
  return figure({
    title, subtitle, height, label, legend,
    draw: (width, tall) => {
      const x = (value) => left + ((value - low) / (high - low || 1)) * (width - left - 56);
      const nodes = ticks(low, high, Math.max(2, Math.floor(width / 60))).flatMap((value) => [
        svg("line", { class: "grid", x1: x(value), x2: x(value), y1: 4, y2: tall - 20 }),
        svg("text", { class: "tick", x: x(value), y: tall - 6, "text-anchor": "middle" }, percentTick(value)),
      ]);
      let y = 4;
      for (const row of rows) {
        nodes.push(svg("text", { class: "rowname", x: left - 10, y: y + (row.marks.length * line) / 2 + 7, "text-anchor": "end" }, row.label));
        row.marks.forEach((mark) => {
          y += line;
          nodes.push(...interval(mark, x, y - 3, width));
        });
        y += gap;
      }
      return { nodes };
    },
  });
}

function interval(mark, x, y, width) {
  const style = { stroke: mark.color, fill: mark.hollow ? "var(--card)" : mark.color };
  const at = x(mark.mean);
  const shape = mark.square
    ? svg("rect", { class: "point", x: at - 4, y: y - 4, width: 8, height: 8, style })
    : svg("circle", { class: "point", cx: at, cy: y, r: 4.5, style });
  return [
    svg("line", { class: "whisker", x1: x(mark.low), x2: x(mark.high), y1: y, y2: y, style: { stroke: mark.color } }),
    shape,
    svg("text", { class: "tick", x: width - 50, y: y + 3.5 }, share(mark.mean)),
  ];
}

// Horizontal bars of totals: {name, value, color}.
function bars({ title, subtitle, rows, format }) {
  const total = rows.reduce((sum, row) => sum + row.value, 0);
  if (!total) return null;
  const most = Math.max(...rows.map((row) => row.value));
  return el(
    "figure", {}, el("figcaption", {}, el("strong", {}, title), el("span", {}, subtitle ?? "")),
    el("ul", { class: "bars" }, rows.map((row) => el(
      "li", {}, el("span", {}, row.name),
      el("span", { class: "track" }, el("span", { class: "part", style: { "--w": `${(100 * row.value) / most}%`, "--c": row.color } })),
      el("span", { class: "number" }, `${format(row.value)} (${percent(row.value / total)})`),
    ))),
  );
}

function sparkline(values, { low, high }) {
  const [width, height] = [90, 22];
  const known = values.map((value, i) => [i, value]).filter(([, value]) => isNumber(value));
  const x = (i) => 1 + (i / Math.max(1, values.length - 1)) * (width - 2);
  const y = (value) => height - 2 - ((value - low) / (high - low || 1)) * (height - 4);
  return svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("path", { d: path(known.map(([i, value]) => [x(i), y(Math.min(high, Math.max(low, value)))])) }));
}
