// Who is believed to be good at which prompts, and how right such predictions were.

function beliefPanels(run) {
  if (!run.beliefs) return [];
  const { step, maps, calibration } = run.beliefs;
  return [
    note("Each learner predicts every agent's chance of success at a prompt from its own hidden states of the prompt. "
      + "Left: predictions made before a step's outcomes were known, in tenths, against the share of right responses that followed; on the diagonal they are right. "
      + `Right: the prompts of step ${step} as the learner sees them, coloured by the lead of a peer: the more of the peer's colour, the better it is believed to be than the learner; hollow: the learner is believed to be better.`),
    ...Object.keys(maps).map((learner) => panels(
      calibrationChart(learner, calibration[learner]),
      run.agents.filter((peer) => peer !== learner).map((peer) => leadMap(run, learner, peer, maps[learner])))),
  ];
}

function calibrationChart(learner, points) {
  if (!points?.length) return null;
  const most = Math.max(...points.map((point) => point.count));
  return figure({
    title: `Predictions of ${learner}`, subtitle: "predicted chance and measured share", height: 200,
    label: `Predictions of ${learner}. ` + points.map((point) => `predicted ${percent(point.predicted)}, measured ${percent(point.measured)}`).join("; "),
    draw: (width, tall) => {
      const frame = axes({ width, height: tall, xs: [0, 1], low: 0, high: 1, yFormat: percent });
      const diagonal = svg("line", { class: "mark", x1: frame.x(0), y1: frame.y(0), x2: frame.x(1), y2: frame.y(1) });
      const dots = points.map((point) => svg("circle", {
        class: "point", cx: frame.x(point.predicted), cy: frame.y(point.measured), r: 2.5 + 5 * Math.sqrt(point.count / most),
        style: { fill: "var(--c0)", stroke: "var(--card)" },
      }));
      return { nodes: [...frame.nodes, diagonal, ...dots], places: points.map((point) => frame.x(point.predicted)), top: frame.top, bottom: frame.bottom };
    },
    cursor: (place) => tipRows(`predicted ${percent(points[place].predicted)}`, [
      { name: "measured", value: percent(points[place].measured) }, { name: "predictions", value: whole(points[place].count) },
    ]),
  });
}

function leadMap(run, learner, peer, map) {
  const leads = map.prompts.map((_, i) => map.chances[peer][i] - map.chances[learner][i]);
  if (!leads.length) return null;
  const { color } = agentStyle(run, peer);
  const ahead = leads.filter((lead) => lead > 0).length;
  const ends = (values) => [Math.min(...values), Math.max(...values)];
  const [[left, right], [low, high]] = [ends(map.x), ends(map.y)];
  const order = [...leads.keys()].sort((a, b) => map.x[a] - map.x[b]);
  return figure({
    title: `Lead of ${peer} over ${learner}`, subtitle: `ahead at ${ahead} of ${leads.length} prompts`, height: 200,
    label: `Lead of ${peer} over ${learner}: ahead at ${ahead} of ${leads.length} prompts`,
    draw: (width, tall) => {
      const room = 10;
      const x = (value) => room + ((value - left) / (right - left || 1)) * (width - 2 * room);
      const y = (value) => tall - room - ((value - low) / (high - low || 1)) * (tall - 2 * room);
      const dots = order.map((i) => svg("circle", {
        class: "point", cx: x(map.x[i]), cy: y(map.y[i]), r: 4,
        style: { fill: color, stroke: color, "fill-opacity": Math.max(0, Math.min(1, leads[i])), "stroke-opacity": 0.5, "stroke-width": 1 },
      }));
      return { nodes: dots, places: order.map((i) => x(map.x[i])), top: room, bottom: room };
    },
    cursor: (place) => tipRows(map.prompts[order[place]], [peer, learner].map((name) => (
      { name, color: agentStyle(run, name).color, value: percent(map.chances[name][order[place]]) }))),
  });
}
