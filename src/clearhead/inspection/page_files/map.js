/** The same weights as a table: queries down, keys across. Screen readers get each number. */
const mapView = (() => {
  function render({ kind, layer, heads, followed }) {
    const { queries, keys } = data.kinds[kind];
    const head = make("tr", {}, make("td"), ...keys.map((token, place) => headerCell(token, "col", followed, "key", place)));
    const rows = queries.map((token, query) =>
      make(
        "tr", { class: followed?.side === "query" && followed.place === query ? "followed" : null },
        headerCell(token, "row", followed, "query", query),
        ...keys.map((key, place) => cell(kind, query, place, meanWeight(kind, layer, heads, query, place), followed)),
      ),
    );
    byId("map").replaceChildren(
      make("table", { "aria-label": "Weights: a row for each query, a column for each key", style: { "--cell": `${Math.max(20, Math.min(34, Math.round(620 / keys.length)))}px` } },
        make("thead", {}, head), make("tbody", {}, ...rows)),
    );
  }

  function headerCell(token, scope, followed, side, place) {
    const upright = scope === "col" && [...token].length <= 2;
    return make("th", { scope, class: upright ? "upright" : null, on: { mouseenter: () => follow(side, place), mouseleave: () => letGo() } },
      make("bdi", {}, token));
  }

  function cell(kind, query, key, share, followed) {
    const hidden = kind === "decoder" && key > query;
    const classes = [hidden && "hidden-key", followed?.side === "key" && followed.place === key && "followed"];
    const names = `${data.kinds[kind].queries[query]} → ${data.kinds[kind].keys[key]}`;
    return make(
      "td",
      {
        class: classes.filter(Boolean).join(" ") || null, "data-query": query, "data-key": key, "data-weight": share.toFixed(4),
        title: hidden ? null : `${names}: ${percent(share)}`, style: { "--weight": share },
      },
      make("span", { class: "unseen" }, hidden ? "hidden" : percent(share)),
    );
  }

  return { render };
})();
