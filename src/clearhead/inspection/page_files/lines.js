/** Two columns of tokens, joined by a line for each weight. */
const linesView = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const LEAST = 0.04; // paler lines can't be seen, and there are many
  let shown = ""; // the kind that the columns are made for
  let svg, columns, rowHeight;

  function build(kind) {
    const { queries, keys, heads } = data.kinds[kind];
    const longest = Math.max(queries.length, keys.length);
    rowHeight = longest > 70 ? 19 : longest > 28 ? 22 : 27;
    svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("aria-hidden", "true"); // the readout says what the lines show
    svg.setAttribute("height", longest * rowHeight);
    columns = { query: column("query", queries, heads, longest), key: column("key", keys, heads, longest) };
    const [left, right] = COLUMN_NAMES[kind];
    byId("lines").replaceChildren(
      make("h3", {}, left), make("span"), make("h3", {}, right), columns.query, svg, columns.key,
    );
    shown = kind;
  }

  function column(side, tokens, heads, longest) {
    const list = make("ol", {
      class: `tokens ${side === "query" ? "queries" : "keys"}`,
      "aria-label": side === "query" ? "Tokens that look" : "Tokens looked at",
      style: { "--row": `${rowHeight}px`, "padding-top": `${offsetOf(tokens.length, longest)}px` },
    });
    tokens.forEach((token, place) => {
      const bars = make("span", { class: "bars", "aria-hidden": "true" });
      for (let head = 0; head < heads; head++) {
        bars.append(make("i", { class: "hue", "data-head": head, style: { "--hue": hueOf(head, heads), "--weight": 0 } }));
      }
      const button = make(
        "button",
        {
          type: "button", class: `token${isControl(token) ? " control" : ""}`, "data-side": side, "data-place": place,
          tabindex: place ? -1 : 0, title: token,
          on: {
            mouseenter: () => follow(side, place),
            mouseleave: () => letGo(),
            focus: () => follow(side, place),
            blur: () => letGo(),
            click: () => keep(side, place),
          },
        },
        make("bdi", {}, token), bars, make("span", { class: "number", "aria-hidden": "true" }),
      );
      list.append(make("li", {}, button));
    });
    roving(list, ".token");
    return list;
  }

  /** The shorter column stands in the middle of the longer one. */
  const offsetOf = (count, longest) => ((longest - count) * rowHeight) / 2;

  function render(state) {
    if (shown !== state.kind) build(state.kind);
    drawLines(state);
    for (const side of ["query", "key"]) markTokens(state, side);
  }

  function drawLines({ kind, layer, heads, followed }) {
    const { queries, keys, heads: count } = data.kinds[kind];
    const longest = Math.max(queries.length, keys.length);
    const width = svg.clientWidth || 300;
    const paths = document.createDocumentFragment();
    const middle = (place, tokens) => offsetOf(tokens.length, longest) + (place + 0.5) * rowHeight;
    for (const head of heads) {
      const map = headBytes(kind, layer, head);
      const shift = (head - (count - 1) / 2) * Math.min(1.6, 9 / count); // so that heads don't hide each other
      for (let query = 0; query < queries.length; query++) {
        if (followed?.side === "query" && followed.place !== query) continue;
        for (let key = 0; key < keys.length; key++) {
          if (followed?.side === "key" && followed.place !== key) continue;
          const share = map[query * keys.length + key] / 255;
          if (share < LEAST) continue;
          const [from, to] = [middle(query, queries) + shift, middle(key, keys) + shift];
          const path = document.createElementNS(SVG, "path");
          path.setAttribute("d", `M0 ${from} C${width * 0.4} ${from} ${width * 0.6} ${to} ${width} ${to}`);
          path.setAttribute("class", "hue");
          path.setAttribute("stroke-opacity", (0.08 + 0.92 * share).toFixed(3));
          path.setAttribute("stroke-width", (0.6 + 1.6 * share).toFixed(2));
          path.style.setProperty("--hue", hueOf(head, count));
          Object.assign(path.dataset, { head, query, key, weight: share.toFixed(4) });
          paths.append(path);
        }
      }
    }
    svg.replaceChildren(paths);
  }

  /** While a token is followed, the other side shows how much goes there: a bar for each head, and their mean. */
  function markTokens({ kind, layer, heads, followed }, side) {
    for (const token of columns[side].querySelectorAll(".token")) {
      const place = Number(token.dataset.place);
      const across = followed && followed.side !== side;
      const [query, key] = side === "key" ? [followed?.place, place] : [place, followed?.place];
      token.classList.toggle("followed", followed?.side === side && followed.place === place);
      for (const bar of token.querySelectorAll(".bars i")) {
        const head = Number(bar.dataset.head);
        bar.hidden = !heads.includes(head);
        bar.style.setProperty("--weight", across ? weight(kind, layer, head, query, key) : 0);
      }
      const mean = across ? meanWeight(kind, layer, heads, query, key) : 0;
      token.querySelector(".number").textContent = mean >= 0.005 ? percent(mean) : "";
    }
  }

  return { render, focus: (side, place) => columns[side].querySelectorAll(".token")[place]?.focus() };
})();

/** What the followed token looks at, or is looked at by, in words. */
function describe({ kind, layer, heads, followed }) {
  if (!followed) return ["Point at a token to follow it; click or press Enter to keep it."];
  const { queries, keys } = data.kinds[kind];
  const looks = followed.side === "query";
  const [own, others] = looks ? [queries, keys] : [keys, queries];
  const shares = others
    .map((token, place) => {
      const [query, key] = looks ? [followed.place, place] : [place, followed.place];
      return { token, place, share: meanWeight(kind, layer, heads, query, key) };
    })
    .filter(({ share }) => share >= 0.005)
    .sort((a, b) => b.share - a.share);
  const parts = shares.slice(0, 6).flatMap(({ token, place, share }, index) => [
    index ? ", " : "", make("b", {}, make("bdi", {}, token)), ` (${place}) ${percent(share)}`,
  ]);
  if (shares.length > 6) parts.push(`, and ${shares.length - 6} more`);
  const verb = looks ? (kind === "encoder" ? " looks at " : ", while it is written, makes the decoder look at ") : " is looked at by ";
  const which = heads.length === 1 ? `head ${heads[0]}` : `mean of ${heads.length} heads`;
  return [
    make("b", {}, make("bdi", {}, own[followed.place])), ` (${followed.place})`, verb,
    ...(parts.length ? parts : ["nothing to speak of"]), `. Layer ${layer}, ${which}.`,
  ];
}
