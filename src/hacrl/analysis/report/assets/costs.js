// Lengths, speed, optimisation, any metric, settings.

const everyAgent = (run, key) => run.agents.map((agent) => ({ name: agent, values: agentColumn(run, agent, key), ...agentStyle(run, agent) }));
const agentChart = (run, title, subtitle, key, options = {}) => lineChart({ title, subtitle, steps: run.steps, series: everyAgent(run, key), ...options });

const lengthsSection = (run) => [panels(
  agentChart(run, "Mean length", "tokens per response, each agent's own", "completions/mean_length", { floor: 0 }),
  agentChart(run, "Longest response", "tokens", "completions/max_length", { floor: 0 }),
  agentChart(run, "Cut responses", "share that reached the token limit", "completions/clipped_ratio", { floor: 0, yFormat: percent }),
  agentChart(run, "Prompts with equal rewards", "share of prompts whose advantages within the own group are all 0", "frac_reward_zero_std", { floor: 0, ceiling: 1, yFormat: percent }),
)];

// Times by phase, in colours that are no agent's in small teams.
function phases(run) {
  const sum = (keys) => run.steps.map((_, i) => {
    const known = keys.map((key) => run.series[key][i]).filter(isNumber);
    return known.length ? known.reduce((a, b) => a + b, 0) : null;
  });
  const named = [["sample", "sampling", 5], ["verify", "verifying", 4], ["exchange", "exchange", 7], ["update", "updating", 6], ["audit", "audit", 1]];
  return named.map(([prefix, name, n]) => {
    const keys = Object.keys(run.series).filter((key) => key === `time/${prefix}` || key.startsWith(`time/${prefix}/`));
    return { name, color: colour(n), values: sum(keys), keys };
  }).filter((phase) => phase.keys.length);
}

function speedSection(run) {
  const parts = phases(run);
  if (!parts.length) return [note("No step is finished yet.")];
  const total = (values) => values.filter(isNumber).reduce((a, b) => a + b, 0);
  const perAgent = parts.filter((phase) => phase.keys.length > 1).flatMap((phase) => phase.keys.map((key) => ({
    name: `${phase.name} ${key.split("/").pop()}`, color: phase.color, value: total(run.series[key]),
  })));
  const thinned = run.lines > run.steps.length ? ", in the steps drawn" : "";
  return [panels(
    bars({ title: "Where time goes", subtitle: `all steps together${thinned}`, rows: parts.map((phase) => ({ ...phase, value: total(phase.values) })), format: duration }),
    bars({ title: "By agent", subtitle: `all steps together${thinned}`, rows: perAgent, format: duration }),
    stackedChart({ title: "Time of a step", subtitle: "by phase", steps: run.steps, parts, yFormat: duration, height: 180 }),
    lineChart({ title: "Sampling speed", subtitle: "tokens per second", steps: run.steps, floor: 0, yFormat: whole, height: 180,
      series: run.agents.map((agent) => ({ name: agent, values: run.series[`time/tokens_per_second/${agent}`], ...agentStyle(run, agent) })) }),
  )];
}

const anyValue = (run, key) => run.agents.some((agent) => agentColumn(run, agent, key)?.some((value) => value));

const optimisationSection = (run) => [
  note("The loss says little: at ratio 1 it is minus the mean advantage, near 0 by construction. The gradient norm says whether anything is learned: it is 0 when all advantages are."),
  panels(
    agentChart(run, "Gradient norm", "before clipping, mean of the step's updates", "grad_norm", { floor: 0 }),
    agentChart(run, "Loss", "mean of the step's updates", "loss"),
    anyValue(run, "kl") ? agentChart(run, "KL", "to the initial policy, own responses", "kl") : null,
    agentChart(run, "Learning rate", "of the last update", "learning_rate", { floor: 0 }),
  ),
];

function explorerSection(run, index) {
  const keys = Object.keys(run.series).sort();
  if (!keys.length) return [note("No step is finished yet.")];
  const key = `metric/${index}`;
  const plot = redrawn(() => {
    const metric = keys.includes(chosen(key)) ? chosen(key) : keys[0];
    return lineChart({ title: metric, subtitle: `last value ${short(last(run.series[metric]))}`, steps: run.steps, height: 220,
      series: [{ name: metric, values: run.series[metric], color: "var(--c0)", dots: metric.includes("/eval/") }] }) ?? note("It has no values.");
  });
  plot.again();
  return [choose("Metric", key, keys.map((metric) => [metric, metric]), keys[0], plot.again), plot.node];
}

function flat(value, prefix = "") {
  if (value === null || typeof value !== "object" || (Array.isArray(value) && value.every((item) => item === null || typeof item !== "object")))
    return [[prefix, Array.isArray(value) ? value.join(", ") || "none" : String(value)]];
  return Object.entries(value).flatMap(([key, part]) => flat(part, prefix ? `${prefix}.${key}` : key));
}

const settingsSection = (run) => [
  details("The recipe with every default", table(["key", "value"], flat(run.recipe), { numeric: 2 })),
  details("Versions", table(["package", "version"], Object.entries(run.versions), { numeric: 2 })),
];
