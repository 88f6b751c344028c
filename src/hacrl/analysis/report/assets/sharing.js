// Who learned from whom: the matrix, capabilities, ratios.

const pairColumn = (run, source, learner, key) => run.series[`cross/${source}->${learner}/${key}`];
const pairsOf = (run, learner) => run.agents.filter((source) => source !== learner && run.pairs.has(`${source}->${learner}`));
const shares = (run) => run.agents.some((learner) => pairsOf(run, learner).length);
// Only some methods have a window or omega: the page does not mention them for other methods.
const hasWindow = (run) => Boolean(run.ratios?.window);
const hasOmega = (run) => Object.keys(run.series).some((key) => key.startsWith("cross/") && key.endsWith("/omega"));
const ALONE = "No agent has trained on a peer's responses in this run.";

const MATRIX = {
  inside: {
    name: "accepted share", text: "Share of the source's responses whose ratio lies inside the learner's window at the update that uses them. Only these have a gradient.",
    steps: (run) => run.steps, column: (run, source, learner) => (hasWindow(run) ? pairColumn(run, source, learner, "inside") : null), format: percent, low: 0, high: 1,
  },
  coefficient: {
    name: "effective weight", text: "Share of the learner's gradient signal (the sum of |weight × advantage|) that comes from the source's responses; each row adds up to 100%.",
    steps: (run) => run.ratios?.coefficients.steps ?? [], column: (run, source, learner) => run.ratios?.coefficients.shares[`${source}->${learner}`], format: percent, low: 0, high: 1,
  },
  ess: {
    name: "effective sample size", text: "How many equally weighted responses would help the learner as much as the source's responses of one step.",
    steps: (run) => run.steps, column: (run, source, learner) => pairColumn(run, source, learner, "effective_sample_size"), format: short, low: 0,
  },
  omega: {
    name: "omega", text: "Capability of the source over that of the learner. HACPO multiplies the gradient of the source's responses by it.",
    steps: (run) => run.steps, column: (run, source, learner) => pairColumn(run, source, learner, "omega"), format: short, low: 0,
  },
};

function matrixSection(run, index) {
  if (!shares(run)) return [note(ALONE)];
  const [measureKey, stepKey] = [`matrix/${index}`, `matrix-step/${index}`];
  const available = Object.entries(MATRIX).filter(([, measure]) => run.agents.some((k) => run.agents.some((j) => measure.column(run, j, k)?.some(isNumber))));
  if (!available.length) return [note(ALONE)];
  const steps = run.steps.filter((step) => step > 0);
  const text = (place) => (place === 0 ? "all steps" : `step ${steps[place - 1]}`);
  const plot = redrawn(() => sharingMatrix(run, MATRIX[chosen(measureKey, available[0][0])], Number(chosen(stepKey, 0)) ? steps[Number(chosen(stepKey, 0)) - 1] : null));
  plot.again();
  return [
    el("div", { class: "controls" }, pick("Show", measureKey, available.map(([key, measure]) => [key, measure.name]), available[0][0], plot.again),
      slide("When", stepKey, { min: 0, max: steps.length, otherwise: 0, text }, plot.again)),
    plot.node,
  ];
}

function sharingMatrix(run, measure, step) {
  const cells = run.agents.map((learner) => run.agents.map((source) => {
    const values = measure.column(run, source, learner);
    const steps = measure.steps(run);
    return { values, value: values ? (step === null ? mean(values) : values[steps.indexOf(step)]) : null };
  }));
  const highest = measure.high ?? Math.max(...cells.flat().flatMap((cell) => (cell.values ?? []).filter(isNumber)), 1e-9);
  const body = run.agents.map((learner, k) => el("tr", {}, el("th", { scope: "row" }, agentName(run, learner)), cells[k].map((cell, j) => {
    if (!cell.values) return el("td", { class: "none" }, j === k ? el("span", { class: "sub" }, "own") : "–");
    const strength = isNumber(cell.value) ? Math.max(0, Math.min(1, cell.value / highest)) : 0;
    return el("td", { style: { "--heat": `${Math.round(8 + 72 * strength)}%` }, class: strength > 0.62 ? "heat strong" : "heat" },
      el("b", {}, measure.format(cell.value)), sparkline(cell.values, { low: measure.low, high: highest }));
  })));
  return [
    note(measure.text, " The small lines show every step of the run."),
    el("div", { class: "scroll boxed", tabindex: 0, role: "region", "aria-label": "Who learned from whom" },
      el("table", { class: "matrix" },
        el("caption", {}, `${measure.name}, ${step === null ? "mean over all steps" : `step ${step}`}: rows are learners, columns are sources`),
        el("thead", {}, el("tr", {}, el("td", {}, el("span", { class: "sub" }, "↓ learns from →")), run.agents.map((source) => el("th", { scope: "col" }, agentName(run, source))))),
        el("tbody", {}, body))),
  ];
}

function capabilitySection(run) {
  const clamp = run.recipe.capability?.clamp;
  const capability = lineChart({
    title: "Capability", subtitle: `mean reward of the last ${run.recipe.capability?.window ?? "few"} steps`, steps: run.steps, floor: 0, height: 200,
    series: run.agents.map((agent) => ({ name: agent, values: agentColumn(run, agent, "capability"), ...agentStyle(run, agent) })),
  });
  if (!hasOmega(run)) return [panels(capability), ...beliefPanels(run)];
  const omegas = run.agents.map((learner) => lineChart({
    title: `Omega for ${learner}`, subtitle: "source over learner, log scale", steps: run.steps, log: true, bands: [1], height: 200,
    series: pairsOf(run, learner).map((source) => ({ name: source, values: pairColumn(run, source, learner, "omega"), ...agentStyle(run, source) })),
  }));
  return [
    note(`Omega above 1: the source is stronger than the learner.${clamp ? ` It is clamped to [${clamp[0]}, ${clamp[1]}].` : ""}`),
    panels(capability),
    panels(omegas),
    ...beliefPanels(run),
  ];
}

function ratiosSection(run, index) {
  if (!shares(run)) return [note(ALONE)];
  const key = `window/${index}`;
  const learners = run.agents.filter((learner) => pairsOf(run, learner).length);
  const plots = redrawn(() => {
    const wanted = chosen(key, learners[0]);
    return learners.filter((learner) => wanted === "all" || learner === wanted).map((learner) => learnerRatios(run, index, learner));
  });
  const period = run.ratios && run.ratios.periods.length > 1 ? slide("When", `period/${index}`, {
    min: 0, max: run.ratios.periods.length, otherwise: 0,
    text: (n) => (n === 0 ? "all steps" : `steps ${run.ratios.periods[n - 1].join(" to ")}`),
  }, plots.again) : null;
  plots.again();
  return [
    el("div", { class: "controls" }, pick("Learner", key, [...learners.map((learner) => [learner, agentName(run, learner)]), ["all", "all"]], learners[0], plots.again), period),
    ratiosNote(run),
    plots.node,
  ];
}

function ratiosNote(run) {
  const bounds = run.ratios?.window;
  if (!run.ratios) return note("This run kept no update log (logging.trajectories is off, or an older version wrote it): there are no histograms.");
  if (!bounds) return null;
  return note(`A peer's response has a gradient while its ratio is inside the window. The lower bound rises with every update of a step, here from ${short(bounds[0])} (light band) to ${short(bounds[1])} (dark band). Responses with advantage 0 are not counted.`);
}

function learnerRatios(run, index, learner) {
  const sources = pairsOf(run, learner);
  return el("section", { class: "learner" }, el("h3", {}, agentName(run, learner), " learns from"),
    run.ratios ? panels(sources.map((source) => ratioHistogram(run, index, source, learner))) : null,
    hasWindow(run) ? panels(sources.map((source) => shareChart(run, source, learner))) : null,
    panels(lineChart({
      title: "Effective sample size", subtitle: "responses per step, for each source", steps: run.steps, floor: 0,
      series: sources.map((source) => ({ name: source, values: pairColumn(run, source, learner, "effective_sample_size"), ...agentStyle(run, source) })),
    }), lineChart({
      title: "Median ratio", subtitle: "learner over source, per token", steps: run.steps, bands: [1],
      series: sources.map((source) => ({ name: source, values: pairColumn(run, source, learner, "ratio/q50"), ...agentStyle(run, source) })),
    })));
}

function ratioHistogram(run, index, source, learner) {
  const { counts, first, width, window: bounds, periods } = run.ratios;
  const all = counts[`${source}->${learner}`];
  if (!all) return null;
  const period = Math.min(periods.length, Number(chosen(`period/${index}`, 0)));
  const shown = period ? all[period - 1] : all.reduce((sum, part) => sum.map((count, i) => count + part[i]));
  return histogram({ title: source, subtitle: `ratios of ${whole(shown.reduce((a, b) => a + b, 0))} responses`, counts: shown, first, width, window: bounds });
}

function shareChart(run, source, learner) {
  const part = (name, key, color) => ({ name, color, values: pairColumn(run, source, learner, key) ?? [] });
  return stackedChart({
    title: source, subtitle: "used, below and above the window", steps: run.steps, ceiling: 1,
    parts: [part("used", "inside", "var(--used)"), part("below", "below", "var(--below)"), part("above", "above", "var(--above)")],
  });
}
