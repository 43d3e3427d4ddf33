/** What is shown now. Every change goes through `change`, which draws the page anew from here. */
const state = { kind: "cross", layer: 0, heads: [], display: "lines", step: 0, followed: null, kept: null };

function change(changes) {
  const before = { ...state };
  Object.assign(state, changes);
  const { layers, heads } = data.kinds[state.kind];
  state.layer = Math.min(state.layer, layers - 1);
  state.heads = state.heads.filter((head) => head < heads);
  if (state.kind !== before.kind) state.kept = state.followed = null;
  if (changes.step !== undefined && state.kind !== "encoder") state.kept = state.followed = { side: "query", place: state.step };
  render();
}

function render() {
  markSegment(byId("kinds"), state.kind);
  markSegment(byId("displays"), state.display);
  if (byId("layers").dataset.kind !== state.kind) buildLayersAndHeads();
  markSegment(byId("layers"), state.layer);
  for (const button of byId("heads").querySelectorAll("[data-head]")) {
    button.setAttribute("aria-pressed", state.heads.includes(Number(button.dataset.head)));
  }
  byId("lines").hidden = state.display !== "lines";
  byId("map").hidden = state.display !== "map";
  renderWeights();
  gridView.render(state);
  rankingView.render(state);
  stepsView.render(state);
}

/** The part that following a token changes. */
function renderWeights() {
  if (state.display === "lines") linesView.render(state);
  else mapView.render(state);
  byId("readout").replaceChildren(...describe(state));
}

function follow(side, place) {
  if (state.followed?.side === side && state.followed.place === place) return;
  state.followed = { side, place };
  if (state.display === "lines") renderWeights();
  else byId("readout").replaceChildren(...describe(state));
}

function letGo() {
  state.followed = state.kept;
  if (state.display === "lines") renderWeights();
  else byId("readout").replaceChildren(...describe(state));
}

/** Keep following a token when the pointer leaves it; the same again lets it go. */
function keep(side, place) {
  const same = state.kept?.side === side && state.kept.place === place;
  state.kept = same ? null : { side, place };
  state.followed = { side, place };
  if (!same && side === "query" && state.kind !== "encoder") state.step = place;
  render();
}

function buildLayersAndHeads() {
  const { layers, heads } = data.kinds[state.kind];
  byId("layers").dataset.kind = state.kind;
  segments(byId("layers"), Array.from({ length: layers }, (_, layer) => [layer, String(layer)]), (layer) => change({ layer }));
  const buttons = Array.from({ length: heads }, (_, head) =>
    make("button", {
      type: "button", class: "hue", "data-head": head, "aria-label": `head ${head}`, title: "click: on or off; double click: this head alone", style: { "--hue": hueOf(head, heads) },
      on: { click: (event) => chooseHead(head, !(event.shiftKey || event.detail === 2)) },
    }, String(head)));
  byId("heads").replaceChildren(
    ...buttons, make("button", { type: "button", id: "all-heads", on: { click: () => change({ heads: everyHead() }) } }, "all"),
  );
}

/** Beside the others, on or off; or alone. */
function chooseHead(head, beside) {
  if (!beside) return change({ heads: [head] });
  const others = state.heads.filter((other) => other !== head);
  const heads = others.length < state.heads.length ? others : [...others, head].sort((a, b) => a - b);
  return change({ heads });
}

const everyHead = () => Array.from({ length: data.kinds[state.kind].heads }, (_, head) => head);

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  repaint();
}

function repaint() {
  gridView.repaint();
  render();
}

const kindOf = { e: "encoder", d: "decoder", c: "cross" };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.target.matches("input[type=text]")) return;
  const digit = event.code.match(/^(?:Digit|Numpad)(\d)$/)?.[1];
  if (event.key in kindOf && data.kinds[kindOf[event.key]].layers) change({ kind: kindOf[event.key] });
  else if (event.key === "[") change({ layer: Math.max(0, state.layer - 1) });
  else if (event.key === "]") change({ layer: state.layer + 1 });
  else if (digit !== undefined && Number(digit) < data.kinds[state.kind].heads) chooseHead(Number(digit), event.altKey);
  else if (event.key === "a") change({ heads: everyHead() });
  else if (event.key === "m") change({ display: state.display === "lines" ? "map" : "lines" });
  else if (event.key === ",") stepsView.move(-1);
  else if (event.key === ".") stepsView.move(1);
  else if (event.key === "p") stepsView.toggle();
  else if (event.key === "Escape") change({ followed: null, kept: null });
});

async function start() {
  await unpackWeights();
  byId("source-text").textContent = data.source;
  byId("translation").textContent = data.translation;
  document.querySelector("h1").classList.toggle("long", data.source.length + data.translation.length > 120);
  const certainty = data.steps.reduce((sum, { probability }) => sum + Math.log(probability), 0);
  byId("summary").textContent =
    `${data.source_tokens.length} source tokens, ${data.target_tokens.length} target tokens, log-probability ${certainty.toFixed(3)}. ` +
    ["Layers, heads and steps count from 0, as in the code", ...data.notes].join("; ") + ".";
  const kinds = Object.keys(KIND_NAMES).map((kind) => [kind, KIND_NAMES[kind], !data.kinds[kind].layers]);
  segments(byId("kinds"), kinds, (kind) => change({ kind }));
  segments(byId("displays"), [["lines", "lines"], ["map", "map"]], (display) => change({ display }));
  for (const id of ["kinds", "displays", "layers"]) roving(byId(id), "[role=radio]");
  byId("theme").addEventListener("click", switchTheme);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  addEventListener("resize", renderWeights);
  stepsView.build();
  // Begin with the sharpest cross-attention head, and its whole layer if that is no thicket of lines.
  const cross = data.heads.filter((one) => one.kind === "cross" && one.relative_entropy !== null);
  const sharpest = cross.sort((a, b) => a.relative_entropy - b.relative_entropy)[0] ?? { layer: 0, head: 0 };
  state.layer = sharpest.layer;
  state.heads = data.source_tokens.length * data.target_tokens.length <= 600 ? everyHead() : [sharpest.head];
  render();
  document.documentElement.dataset.ready = "true";
}

start();
