// The page: header, navigation, one row for each section with a column for every run; live updates.

const SECTIONS = [
  ["results", "Results", "Results", resultsSection],
  ["warnings", "Warnings", "Warnings", warningsSection],
  ["learning", "Curves", "Learning curves", learningSection],
  ["sharing", "Sharing", "Who learned from whom", matrixSection],
  ["capability", "Capability", "Capability", capabilitySection],
  ["ratios", "Ratios", "Ratios", ratiosSection],
  ["lengths", "Lengths", "Lengths", lengthsSection],
  ["speed", "Speed", "Speed", speedSection],
  ["timeline", "Timeline", "Who waited for whom", timelineSection],
  ["optimisation", "Optimisation", "Optimisation", optimisationSection],
  ["metrics", "Metrics", "Any metric", explorerSection],
  ["responses", "Responses", "Responses", browserSection],
  ["settings", "Settings", "Settings", settingsSection],
];

const byId = (id) => document.getElementById(id);
const live = document.body.dataset.live === "true";

function themeButton() {
  const next = () => {
    const dark = document.documentElement.dataset.theme === "dark"
      || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
    document.documentElement.dataset.theme = dark ? "light" : "dark";
  };
  return el("button", { type: "button", id: "theme", onclick: next, "aria-label": "Switch between light and dark" }, "◐");
}

function runFacts(run) {
  const { recipe } = run;
  const state = run.finished ? "finished" : live ? `running, last written ${new Date(1000 * run.updated).toLocaleTimeString()}` : "not finished";
  return el("div", { class: "facts" },
    el("h2", {}, run.name, " ", el("span", { class: run.finished ? "badge right" : "badge" }, state)),
    el("p", {}, el("b", {}, recipe.method.name), ` on ${recipe.task.name} · ${run.agents.length} agents · step ${run.step} of ${recipe.steps} · seed ${recipe.seed}`,
      run.seconds ? ` · ${duration(run.seconds)} of training` : "",
      run.baseline ? ` · beside: ${run.baseline.name} (${run.baseline.method}, seed ${run.baseline.seed})` : ""),
    el("progress", { max: recipe.steps, value: run.step, "aria-label": `step ${run.step} of ${recipe.steps}` }));
}

function drawHeader(data) {
  byId("top").replaceChildren(
    el("div", { class: "bar" }, el("h1", {}, "hacrl", el("span", {}, live ? " live" : " report")), el("span", { id: "connection", role: "status" }), themeButton()),
    el("div", { class: "columns", style: { "--runs": data.runs.length } }, data.runs.map(runFacts)));
  document.title = `${data.runs.map((run) => run.name).join(", ")} · hacrl`;
}

function drawSection([id, , , build], data) {
  const section = byId(id);
  section.querySelector(".columns").replaceChildren(...data.runs.map((run, index) => el("div", { class: "column" },
    data.runs.length > 1 ? el("p", { class: "runname" }, run.name) : null, ...[build(run, index)].flat(Infinity).filter(Boolean))));
}

// "source->learner" of every pair with metrics.
const pairNames = (run) => new Set(Object.keys(run.series).filter((key) => key.startsWith("cross/")).map((key) => key.split("/")[1]));

function drawAll(data) {
  for (const run of data.runs) run.pairs = pairNames(run);
  const focused = document.activeElement?.dataset?.key;
  drawHeader(data);
  const warnings = data.runs.reduce((sum, run) => sum + run.warnings.length + run.findings.length, 0);
  byId("nav").querySelector("[href='#warnings']").textContent = warnings ? `Warnings (${warnings})` : "Warnings";
  for (const section of SECTIONS) {
    const reading = section[0] === "responses" && byId("responses").contains(document.activeElement);
    if (!reading) drawSection(section, data);
  }
  if (focused) requestAnimationFrame(() => [...document.querySelectorAll("[data-key]")].find((node) => node.dataset.key === focused)?.focus({ preventScroll: true }));
}

function layOut(data) {
  byId("nav").replaceChildren(el("ul", {}, SECTIONS.map(([id, title]) => el("li", {}, el("a", { href: `#${id}` }, title)))));
  byId("main").replaceChildren(...SECTIONS.map(([id, , title]) => el("section", { id, "aria-labelledby": `${id}-title` },
    el("h2", { id: `${id}-title` }, title), el("div", { class: "columns", style: { "--runs": data.runs.length } }))));
  document.body.classList.toggle("several", data.runs.length > 1);
}

// Live: ask for new data every few seconds; the server replies 304 while nothing changed.
async function follow() {
  let tag = null;
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, 2000));
    try {
      const reply = await fetch("data.json", { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
      byId("connection").textContent = "";
      if (reply.status === 200) {
        tag = reply.headers.get("ETag");
        drawAll(await reply.json());
      }
    } catch {
      byId("connection").textContent = "hacrl watch has ended";
    }
  }
}

const data = JSON.parse(byId("data").textContent);
layOut(data);
drawAll(data);
if (live) follow();
