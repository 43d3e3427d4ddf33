/** The bird's-eye view: every head of a kind as a small picture, layers down, heads across. */
const gridView = (() => {
  let shown = "";

  function build(kind) {
    const { layers, heads } = data.kinds[kind];
    const grid = byId("grid");
    grid.style.gridTemplateColumns = `1.4em repeat(${heads}, minmax(0, 1fr))`;
    grid.replaceChildren(make("span"));
    for (let head = 0; head < heads; head++) grid.append(make("span", { class: "index", "aria-hidden": "true" }, String(head)));
    for (let layer = 0; layer < layers; layer++) {
      grid.append(make("span", { class: "index", "aria-hidden": "true" }, String(layer)));
      for (let head = 0; head < heads; head++) grid.append(picture(kind, layer, head, heads));
    }
    shown = kind;
  }

  function picture(kind, layer, head, heads) {
    const statistics = data.heads.find((one) => one.kind === kind && one.layer === layer && one.head === head);
    const about = `entropy ${percentOrNone(statistics.relative_entropy)}, diagonal ${percentOrNone(statistics.diagonality)}`;
    return make(
      "button",
      {
        type: "button", class: "hue", "data-layer": layer, "data-head": head, style: { "--hue": hueOf(head, heads) },
        "aria-label": `layer ${layer}, head ${head}: ${about}`, title: `${kind}.${layer}.${head}: ${about}`,
        on: { click: () => change({ layer, heads: [head] }) },
      },
      paint(kind, layer, head),
    );
  }

  /** A pixel for each weight: ink on paper, whichever colours these are. */
  function paint(kind, layer, head) {
    const { queries, keys } = data.kinds[kind];
    const canvas = make("canvas", { width: keys.length, height: queries.length, "aria-hidden": "true" });
    const context = canvas.getContext("2d");
    const pixels = context.createImageData(keys.length, queries.length);
    const ink = readInk();
    headBytes(kind, layer, head).forEach((byte, place) => pixels.data.set([...ink, Math.round(255 * Math.sqrt(byte / 255))], 4 * place));
    context.putImageData(pixels, 0, 0);
    return canvas;
  }

  function readInk() {
    const context = make("canvas", { width: 1, height: 1 }).getContext("2d");
    context.fillStyle = getComputedStyle(byId("steps-title")).color;
    context.fillRect(0, 0, 1, 1);
    return context.getImageData(0, 0, 1, 1).data.slice(0, 3);
  }

  function render({ kind, layer, heads }) {
    if (shown !== kind) build(kind);
    for (const button of byId("grid").querySelectorAll("button")) {
      const chosen = Number(button.dataset.layer) === layer && heads.includes(Number(button.dataset.head));
      button.setAttribute("aria-pressed", chosen);
    }
  }

  return { render, repaint: () => { shown = ""; } };
})();

const percentOrNone = (value) => (value === null ? "–" : percent(value));
