// The browser of responses: filters, shaded texts, and what every learner did with each of them.

const PAGE = 12;
// One learner's use of a response is [learner, update, place, advantage, omega, ratio, coefficient].
const [PLACE, ADVANTAGE, OMEGA, RATIO, COEFFICIENT] = [2, 3, 4, 5, 6];
const PLACES = [null, "inside", "below", "above"];

function fate(use, own) {
  if (use[ADVANTAGE] === 0) return "advantage 0";
  if (PLACES[use[PLACE]] === "below") return "below the window";
  if (PLACES[use[PLACE]] === "above") return "above the window";
  if (use[COEFFICIENT] === 0) return own ? "clipped" : "cut off";
  return "used";
}

const correctness = (row) => (row.reward === null ? "unscored" : row.reward > 0 ? "right" : "wrong");

function browserSection(run, index) {
  const data = run.responses;
  if (!data) return [note("This run kept no responses (logging.trajectories is off), or no step is finished yet.")];
  const key = (name) => `browse/${index}/${name}`;
  const value = (name) => chosen(key(name), "");
  let shown = PAGE;
  const list = redrawn(() => responseList(run, filtered(run, value), shown, () => { shown += PAGE; list.again(); }));
  const changed = () => { shown = PAGE; list.again(); };
  const select = (label, name, options) => choose(label, key(name), [["", "any"], ...options], "", changed);
  const same = (values) => values.map((item) => [String(item), String(item)]);
  list.again();
  return [
    note(`${whole(data.rows.length)} responses are included, of ${whole(data.in_all_of_steps)} drawn in ${data.steps.length} of the run's ${data.steps_in_all} steps: `,
      "evenly spaced steps, equally many prompts of each, chosen by a hash of the prompt's name; all responses to a chosen prompt are included. Neither rewards nor texts influence the choice."),
    el("div", { class: "controls filters", role: "search", "aria-label": "Filter responses" },
      select("Step", "step", same(data.steps)),
      select("Prompt", "prompt", same(Object.keys(data.prompts).sort())),
      select("Agent", "agent", same(run.agents)),
      select("Result", "result", same(["right", "wrong", "unscored"])),
      select("Learner", "learner", same(run.agents)),
      select("What it did", "fate", same(["used", ...(hasWindow(run) ? ["below the window", "above the window"] : []), "clipped", "cut off", "advantage 0"])),
      el("label", { class: "control" }, el("span", {}, "Text contains"), el("input", {
        type: "search", "data-key": key("text"), value: value("text"),
        oninput: (event) => { choices.set(key("text"), event.target.value); changed(); },
      })),
    ),
    el("p", { class: "scale", "aria-hidden": "true" }, "token probability: ", [0.02, 1, 2, 4].map((surprise) => shaded(`${percent(Math.exp(-surprise))}`, 100 * surprise))),
    list.node,
  ];
}

function filtered(run, value) {
  const learner = run.agents.indexOf(value("learner"));
  return run.responses.rows.filter((row) => {
    const uses = row.updates.filter((use) => learner < 0 || use[0] === learner);
    return (!value("step") || String(row.step) === value("step"))
      && (!value("prompt") || row.prompt === value("prompt"))
      && (!value("agent") || run.agents[row.agent] === value("agent"))
      && (!value("result") || correctness(row) === value("result"))
      && (learner < 0 || uses.length > 0)
      && (!value("fate") || uses.some((use) => fate(use, use[0] === row.agent) === value("fate")))
      && (!value("text") || row.text.includes(value("text")));
  });
}

function responseList(run, rows, shown, more) {
  const groups = [];
  for (const row of rows.slice(0, shown)) {
    const group = groups[groups.length - 1];
    if (group?.step === row.step && group.prompt === row.prompt) group.rows.push(row);
    else groups.push({ step: row.step, prompt: row.prompt, rows: [row] });
  }
  return [
    el("p", { class: "count", role: "status" }, `${whole(rows.length)} ${rows.length === 1 ? "response" : "responses"} match${rows.length === 1 ? "es" : ""}; ${whole(Math.min(shown, rows.length))} shown`),
    groups.map((group) => el("section", { class: "group" }, promptHead(run, group), el("div", { class: "responses" }, group.rows.map((row) => response(run, row))))),
    rows.length > shown ? el("button", { type: "button", onclick: more, "data-key": "more" }, `Show ${Math.min(PAGE, rows.length - shown)} more`) : null,
  ];
}

function promptHead(run, group) {
  const prompt = run.responses.prompts[group.prompt];
  const text = typeof prompt?.text === "string" ? prompt.text : (prompt?.text ?? []).map((message) => `${message.role}: ${message.content}`).join("\n");
  return el("header", {}, el("h3", {}, `Step ${group.step}, ${group.prompt}`),
    text ? el("pre", { class: "prompt" }, text) : null,
    prompt?.answer ? el("p", { class: "sub" }, "expected: ", el("code", {}, prompt.answer)) : null);
}

function response(run, row) {
  const verdict = correctness(row);
  return el("article", { class: "response" },
    el("p", { class: "responsehead" }, agentName(run, run.agents[row.agent]), el("span", { class: `badge ${verdict}` }, { right: "✓ right", wrong: "✗ wrong", unscored: "? unscored" }[verdict]),
      el("span", { class: "sub" }, `reward ${short(row.reward)}${row.tokens ? ` · ${row.tokens} tokens` : ""}${isNumber(row.mean) ? ` · mean log-prob ${signed(row.mean)}` : ""}${row.unfinished ? " · cut at the limit" : ""}`)),
    responseText(row),
    row.updates.length ? updateTable(run, row) : note("No learner trained on it."));
}

function shaded(text, centinats, title) {
  const strength = Math.min(1, centinats / 400);
  return el("span", { class: "token", style: { "--s": `${Math.round(85 * strength)}%` }, title }, text);
}

const probability = (centinats) => `probability ${percent(Math.exp(-centinats / 100))}`;

function responseText(row) {
  if (!row.pieces) {
    return el("div", {}, el("pre", { class: "text" }, row.text),
      el("p", { class: "strip", title: "one cell per token" }, row.logps.map((logp) => shaded("\u00a0", logp, probability(logp)))));
  }
  const characters = Array.from(row.text);
  let at = 0;
  // A token without text of its own (a special token, a part of a character) is an empty element with a mark.
  const tokens = row.pieces.map((length, i) => {
    at += length;
    return shaded(characters.slice(at - length, at).join(""), row.logps[i], probability(row.logps[i]));
  });
  if (!row.unfinished && !row.characters) tokens[tokens.length - 1]?.classList.add("end");
  return el("pre", { class: "text" }, tokens, row.characters ? el("span", { class: "sub" }, ` … cut here, ${whole(row.characters)} characters in all`) : null);
}

function updateTable(run, row) {
  if (row.updates.every((use) => use[ADVANTAGE] === 0)) return note("Advantage 0 for every learner: no gradient.");
  const rows = row.updates.map((use) => {
    const own = use[0] === row.agent;
    const what = fate(use, own);
    const weight = use[ADVANTAGE] ? use[COEFFICIENT] / use[ADVANTAGE] : null;
    return [agentName(run, run.agents[use[0]]), el("span", { class: what === "used" ? "fate used" : "fate" }, what),
      signed(use[ADVANTAGE]), short(use[OMEGA]), short(use[RATIO]), short(weight), String(use[1] + 1)];
  });
  return table(["learner", "what it did", "advantage", "coefficient", "ratio", "weight", "update"], rows, { numeric: 2 });
}
