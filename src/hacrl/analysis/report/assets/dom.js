// Building elements. All text goes in as text nodes: nothing a model wrote is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, properties, children) {
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "style") for (const [name, part] of Object.entries(value)) node.style.setProperty(name, part);
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const el = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);
const svg = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);

const COLOURS = 8;
const colour = (index) => `var(--c${index % COLOURS})`;
const dashes = ["", "6 3", "2 3", "8 3 2 3"];
// More agents than colours: the next ones are dashed.
const agentStyle = (run, name) => {
  const index = run.agents.indexOf(name);
  return { color: colour(index), dash: dashes[Math.floor(index / COLOURS) % dashes.length] };
};

const dot = (color) => el("span", { class: "dot", style: { "--c": color }, "aria-hidden": "true" });
const agentName = (run, name) => el("span", { class: "agent" }, dot(agentStyle(run, name).color), name);
const note = (...children) => el("p", { class: "note" }, ...children);
const panels = (...children) => el("div", { class: "panels" }, ...children);

// Choices that survive a redraw: one value for each key, kept while the page is open.
const choices = new Map();
const chosen = (key, otherwise) => (choices.has(key) ? choices.get(key) : otherwise);

function choose(label, key, options, otherwise, changed) {
  const current = chosen(key, otherwise);
  const select = el(
    "select",
    { "data-key": key, onchange: (event) => (choices.set(key, event.target.value), changed()) },
    options.map(([value, text]) => el("option", { value, selected: value === current }, text)),
  );
  return el("label", { class: "control" }, el("span", {}, label), select);
}

function slide(label, key, { min, max, otherwise, text }, changed) {
  const value = Math.min(max, Number(chosen(key, otherwise)));
  const output = el("output", {}, text(value));
  const input = el("input", {
    type: "range", min, max, step: 1, value, "data-key": key, "aria-valuetext": text(value),
    oninput: (event) => {
      choices.set(key, Number(event.target.value));
      output.textContent = text(Number(event.target.value));
      event.target.setAttribute("aria-valuetext", output.textContent);
      changed();
    },
  });
  return el("label", { class: "control wide" }, el("span", {}, label), input, output);
}

// One choice out of a few, all visible: a group of radio buttons.
function pick(label, key, options, otherwise, changed) {
  const current = chosen(key, otherwise);
  return el(
    "fieldset", { class: "picks" }, el("legend", {}, label),
    options.map(([value, ...text]) =>
      el("label", {}, el("input", {
        type: "radio", name: key, value, checked: value === current, "data-key": `${key}/${value}`,
        onchange: () => (choices.set(key, value), changed()),
      }), el("span", {}, ...text)),
    ),
  );
}

// A part of a section that is drawn again when a control changes; the controls stay.
function redrawn(draw) {
  const node = el("div", {});
  const again = () => node.replaceChildren(...[draw()].flat(Infinity).filter(Boolean));
  return { node, again };
}

function table(head, rows, { caption, numeric = 1 } = {}) {
  const cell = (tag, child, i) => el(tag, { class: i >= numeric ? "number" : null, scope: tag === "th" ? "col" : null }, child);
  return el(
    "div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption ?? "Table" },
    el("table", {}, caption ? el("caption", {}, caption) : null,
      el("thead", {}, el("tr", {}, head.map((child, i) => cell("th", child, i)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((child, i) => cell("td", child, i)))))),
  );
}

const details = (summary, ...children) => el(
  "details", { open: chosen(`details/${summary}`, false), ontoggle: (event) => choices.set(`details/${summary}`, event.target.open) },
  el("summary", { "data-key": `details/${summary}` }, summary), ...children,
);
