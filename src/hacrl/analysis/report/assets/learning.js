// Results, warnings, learning curves.

const MEASURES = ["greedy", "mean_at_k", "pass_at_k", "pass_at_many"];
const column = (run, key) => run.series[key];
const agentColumn = (run, agent, key) => run.series[`agent/${agent}/${key}`];
const measuredAgents = (run) => run.agents.filter((agent) => run.outcomes[agent]); // not peers that only respond
const evaluationKeys = (run) => [...new Set(Object.keys(run.series).map((key) => key.match(/^agent\/[^/]+\/(eval\/.+)$/)?.[1]).filter(Boolean))];

function resultsSection(run) {
  if (!run.step && !run.outcomes) return [note("No step is finished yet.")];
  return [el("div", { class: "cards" }, run.agents.map((agent) => resultCard(run, agent))), ...(run.outcomes ? finalResults(run) : [])];
}

// The measure of the cards: mean@k where there is one, because it is what training optimises.
function mainOutcome(run, outcomes, agent) {
  const tasks = outcomes?.[agent]?.tasks ?? {};
  const task = Object.keys(tasks)[0];
  if (!task) return null;
  const { before, after, samples } = tasks[task];
  const measure = after.mean_at_k ? "mean_at_k" : "greedy";
  return { task, name: measureName(measure, samples), before: before?.[measure]?.mean, after: after[measure].mean };
}

function resultCard(run, agent) {
  const settings = run.recipe.agents.find((one) => one.name === agent);
  const outcome = mainOutcome(run, run.outcomes, agent);
  const alone = mainOutcome(run, run.baseline?.outcomes, agent);
  const capability = last(agentColumn(run, agent, "capability"));
  const body = outcome
    ? [
        el("p", { class: "big" }, share(outcome.after), el("small", {}, ` ${outcome.name}`)),
        el("p", {}, isNumber(outcome.before) ? [`${signed(outcome.after - outcome.before, share)} since the start`, alone ? el("br") : null] : null,
          alone ? `${signed(outcome.after - alone.after, share)} against training alone` : null),
      ]
    : [
        el("p", { class: "big" }, share(last(agentColumn(run, agent, "accuracy"))), el("small", {}, " in the last step")),
        el("p", {}, `capability ${share(capability)}`),
      ];
  const retired = run.outcomes?.[agent]?.retired;
  return el("article", { class: "card", style: { "--c": agentStyle(run, agent).color } },
    el("h3", {}, agentName(run, agent)), el("p", { class: "model" }, settings.model), body, retired ? el("p", { class: "bad" }, retired) : null);
}

function finalResults(run) {
  const kinds = [
    { name: "before", from: (agent, task) => run.outcomes[agent].tasks[task].before, color: "var(--muted)", hollow: true },
    run.baseline?.outcomes && { name: `alone (${run.baseline.method})`, from: (agent, task) => run.baseline.outcomes[agent]?.tasks[task]?.after, color: "var(--alone)", square: true },
    { name: `after (${run.recipe.method.name})`, from: (agent, task) => run.outcomes[agent].tasks[task].after, color: "var(--c0)" },
  ].filter(Boolean);
  const agents = measuredAgents(run);
  const tasks = Object.keys(run.outcomes[agents[0]].tasks);
  const charts = tasks.flatMap((task) => MEASURES.map((measure) => {
    const rows = agents.map((agent) => ({
      label: agent,
      marks: kinds.map((kind) => ({ ...kind, ...kind.from(agent, task)?.[measure] })).filter((mark) => isNumber(mark.mean)),
    })).filter((row) => row.marks.length);
    const samples = run.outcomes[agents[0]].tasks[task].samples;
    if (!rows.some((row) => row.marks.some((mark) => mark.name !== "before"))) return null;
    return intervalChart({ title: `${task}: ${measureName(measure, samples)}`, subtitle: "accuracy of each agent alone, with 95% intervals over problems", rows,
      legend: kinds.map((kind) => ({ name: kind.name, color: kind.color, fill: true, always: true })) });
  }));
  return [panels(charts), details("The numbers", resultsTable(run, tasks))];
}

function resultsTable(run, tasks) {
  const cell = (value) => (value ? `${share(value.mean)} [${share(value.low)}, ${share(value.high)}]` : "–");
  const rows = measuredAgents(run).flatMap((agent) => tasks.flatMap((task) => {
    const { before, after, samples } = run.outcomes[agent].tasks[task];
    return MEASURES.filter((measure) => after[measure]).map((measure) => [
      agentName(run, agent), `${task}: ${measureName(measure, samples)}`, cell(before?.[measure]),
      ...(run.baseline ? [cell(run.baseline.outcomes?.[agent]?.tasks[task]?.after[measure])] : []), cell(after[measure]), whole(after[measure].problems),
    ]);
  }));
  const head = ["agent", "measure", "before", ...(run.baseline ? [`alone (${run.baseline.method})`] : []), "after", "problems"];
  const costs = measuredAgents(run).map((agent) => [agentName(run, agent), ...["rollouts", "generated_tokens", "trained_tokens", "updates", "skipped_updates"].map((cost) => whole(run.outcomes[agent][cost]))]);
  return el("div", {}, table(head, rows, { caption: "Results with 95% intervals", numeric: 2 }),
    table(["agent", "rollouts", "generated tokens", "trained tokens", "updates", "skipped updates"], costs, { caption: "What it cost" }));
}

function warningsSection(run) {
  const given = run.warnings.map((warning) => el("li", { class: "warning" }, el("strong", {}, `Step ${warning.step}`), el("p", {}, warning.message)));
  const found = run.findings.map((finding) => el("li", { class: "warning" }, el("strong", {}, finding.title), el("p", {}, finding.text)));
  if (!given.length && !found.length) return [el("p", { class: "good" }, "The run gave no warning, and nothing in its last steps looks wrong.")];
  return [
    found.length ? [el("h3", {}, "In the numbers"), el("ul", { class: "warnings" }, found)] : null,
    given.length ? [el("h3", {}, "Given during the run"), el("ul", { class: "warnings" }, given)] : null,
  ];
}

function learningSection(run, index) {
  const steps = run.steps.filter((step) => step > 0).length;
  if (!steps) return [note("No step is finished yet.")];
  const key = `smooth/${index}`;
  const plots = redrawn(() => curvePanels(run, Number(chosen(key, Math.max(1, Math.round(steps / 12))))));
  plots.again();
  return [
    slide("Smoothing", key, { min: 1, max: Math.max(2, Math.min(50, steps)), otherwise: Math.max(1, Math.round(steps / 12)), text: (n) => (n === 1 ? "none" : `mean of ${n} steps`) }, plots.again),
    plots.node,
    run.lines > run.steps.length ? note(`Drawn from ${run.steps.length} evenly spaced steps of ${run.lines}.`) : null,
  ];
}

function curvePanels(run, width) {
  const same = run.agents.every((agent) => sameColumn(agentColumn(run, agent, "accuracy") ?? [], agentColumn(run, agent, "reward") ?? []));
  const evaluations = evaluationKeys(run);
  const kinds = [["accuracy", "accuracy while training"], ...(same ? [] : [["reward", "reward while training"]])];
  return [
    same ? note("Rewards are 0 or 1 in this run: the reward curves are the accuracy curves.") : null,
    kinds.map(([key, title]) => panels(run.agents.map((agent) => trainingCurve(run, agent, key, title, width)))),
    evaluations.map((key) => panels(run.agents.map((agent) => evaluationCurve(run, agent, key)))),
  ];
}

function commonRange(run, key) {
  const columns = run.agents.flatMap((agent) => [agentColumn(run, agent, key) ?? [], run.baseline?.series[`agent/${agent}/${key}`] ?? []]);
  const limits = range(columns);
  return limits ? { floor: limits[0] >= 0 || Math.min(...columns.flat().filter(isNumber)) >= 0 ? Math.max(0, limits[0]) : limits[0], ceiling: limits[1] } : {};
}

function trainingCurve(run, agent, key, title, width) {
  const values = agentColumn(run, agent, key);
  if (!values) return null;
  const style = agentStyle(run, agent);
  const alone = run.baseline?.series[`agent/${agent}/${key}`];
  return lineChart({
    title: agent, subtitle: title, steps: run.steps, yFormat: short, height: 180, ...commonRange(run, key),
    series: [
      { name: "each step", values, ...style, faint: true },
      alone && { name: `alone (${run.baseline.method})`, values: smooth(alone, width), steps: run.baseline.steps, color: "var(--alone)", dash: "5 4" },
      { name: `with peers (${run.recipe.method.name})`, values: smooth(values, width), ...style },
    ].filter(Boolean),
  });
}

function evaluationCurve(run, agent, key) {
  const values = agentColumn(run, agent, key);
  if (!values || values.filter(isNumber).length < 2) return null;
  const alone = run.baseline?.series[`agent/${agent}/${key}`];
  const [, task, measure] = key.match(/^eval\/(.+)\/([^/]+)$/);
  return lineChart({
    title: agent, subtitle: `test accuracy, ${task}: ${measureName(measure, run.recipe.evaluation?.samples || undefined)}`, steps: run.steps, height: 180, ...commonRange(run, key),
    series: [
      alone && { name: `alone (${run.baseline.method})`, values: alone, steps: run.baseline.steps, color: "var(--alone)", dash: "5 4", dots: true },
      { name: `with peers (${run.recipe.method.name})`, values, ...agentStyle(run, agent), dots: true },
    ].filter(Boolean),
  });
}
