// Who waited for whom: the phases of one step as bars on a common clock, a row for every agent and one for the loop.

const LOOP = "the loop";  // no agent's name: names have no blanks
const PHASES = [["sample", "sampling", 5], ["wait", "waiting", 2], ["verify", "verifying", 4], ["exchange", "exchange", 7], ["audit", "audit", 1], ["update", "updating", 6]];

function stepBars(run, place) {
  const rows = new Map([...run.agents, LOOP].map((name) => [name, []]));
  for (const key of Object.keys(run.series).filter((name) => name.startsWith("time/begin/"))) {
    const [kind, owner] = key.slice("time/begin/".length).split("/");
    const phase = PHASES.find(([name]) => name === kind);
    const [begin, end] = [run.series[key][place], run.series[key.replace("/begin/", "/end/")]?.[place]];
    if (!phase || !isNumber(begin) || !isNumber(end)) continue;
    const busy = run.series[key.replace("/begin/", "/")]?.[place];
    rows.get(owner ?? LOOP)?.push({ name: phase[1], color: colour(phase[2]), begin, end, busy });
  }
  return [...rows].filter(([, bars]) => bars.length).map(([name, bars]) => ({ name, bars: bars.sort((a, b) => a.begin - b.begin) }));
}

// The share of a step in which an agent was neither sampling nor updating.
function idle(bars, total) {
  const busy = bars.filter((bar) => bar.name !== "waiting").reduce((sum, bar) => sum + (bar.busy ?? bar.end - bar.begin), 0);
  return Math.max(0, 1 - busy / total);
}

function timelineChart(run, place) {
  const rows = stepBars(run, place);
  if (!rows.length) return note("This run does not say when its phases began: an earlier version wrote it.");
  const total = Math.max(run.series["time/step"]?.[place] ?? 0, ...rows.flatMap((row) => row.bars.map((bar) => bar.end)));
  const words = rows.map((row) => `${row.name}: ${row.bars.map((bar) => `${bar.name} from ${duration(bar.begin)} to ${duration(bar.end)}`).join(", ")}`);
  const line = 26, left = 24 + 8 * Math.max(...rows.map((row) => Math.min(14, row.name.length)));
  const used = PHASES.filter(([, name]) => rows.some((row) => row.bars.some((bar) => bar.name === name)));
  const agents = rows.filter((row) => row.name !== LOOP);
  return [figure({
    title: `Step ${run.steps[place]}`, subtitle: `${duration(total)}; a row for every agent, and one for the loop`, height: 26 + rows.length * line,
    label: `Timeline of step ${run.steps[place]}. ${words.join("; ")}`, legend: used.map(([, name, n]) => ({ name, color: colour(n), fill: true, always: true })),
    draw: (width, tall) => {
      const x = (seconds) => left + (seconds / total) * (width - left - 12);
      const nodes = ticks(0, total, Math.max(2, Math.floor(width / 90))).flatMap((value) => [
        svg("line", { class: "grid", x1: x(value), x2: x(value), y1: 0, y2: tall - 22 }),
        svg("text", { class: "tick", x: x(value), y: tall - 8, "text-anchor": "middle" }, duration(value)),
      ]);
      rows.forEach((row, i) => {
        nodes.push(svg("text", { class: "rowname", x: left - 10, y: i * line + 17, "text-anchor": "end" }, row.name));
        nodes.push(...row.bars.map((bar) => svg("rect", {
          class: "phase", x: x(bar.begin), width: Math.max(1, x(bar.end) - x(bar.begin)), y: i * line + 4, height: line - 9, rx: 2, style: { fill: bar.color },
        }, svg("title", {}, `${row.name}, ${bar.name}: ${duration(bar.begin)} to ${duration(bar.end)}`))));
      });
      return { nodes };
    },
  }), note(`Neither sampling nor updating: ${agents.map((row) => `${row.name} ${percent(idle(row.bars, total))}`).join(", ")} of the step.`)];
}

// Memory of every process, and bytes between the loop and the agents, over the steps.
function resourceCharts(run) {
  const columns = (pattern) => run.agents.flatMap((agent) => Object.keys(run.series)
    .filter((key) => key.startsWith(`runtime/${agent}/`) && pattern.test(key.slice(`runtime/${agent}/`.length)))
    .map((key) => ({ name: key.slice("runtime/".length), values: run.series[key].map((value) => (isNumber(value) ? value / 1e9 : null)), ...agentStyle(run, agent) })));
  const chart = (title, subtitle, pattern) => {
    const series = columns(pattern);
    return series.length ? lineChart({ title, subtitle, steps: run.steps, series, floor: 0, yFormat: short, height: 180 }) : null;
  };
  return panels(
    chart("Memory", "GB of each process; on GPUs the most in the step", /^memory\//),
    chart("Sent and received", "GB between the loop and the agents", /^bytes_(drawn|trained)$/),
  );
}

function timelineSection(run, index) {
  const places = run.steps.map((_, place) => place).filter((place) => isNumber(run.series["time/step"]?.[place]));
  if (!places.length) return [note("No step is finished yet.")];
  const key = `timeline/${index}`, latest = places.length - 1;
  const plot = redrawn(() => timelineChart(run, places[Math.min(latest, Number(chosen(key, latest)))]));
  plot.again();
  return [slide("Step", key, { min: 0, max: latest, otherwise: latest, text: (n) => String(run.steps[places[n]]) }, plot.again), plot.node, resourceCharts(run)];
}
