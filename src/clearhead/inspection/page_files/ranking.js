/** All heads of all kinds in a table that any column sorts. */
const rankingView = (() => {
  const COLUMNS = [ // label, value, the first order to sort in, how to show
    ["head", (one) => `${one.kind}.${one.layer}.${String(one.head).padStart(2, "0")}`, 1, null],
    ["entropy", (one) => one.relative_entropy, 1, percentOrNone],
    ["confidence", (one) => one.confidence, -1, percentOrNone],
    ["diagonal", (one) => one.diagonality, -1, percentOrNone],
    ["distance", (one) => one.distance, 1, (value) => (value === null ? "–" : value.toFixed(1))],
    ["idle", (one) => (one.on_start === null ? null : one.on_start + one.on_end), -1, percentOrNone],
  ];
  let sorted = { column: 1, order: 1 };
  let shown = "";

  function sortBy(column) {
    const order = sorted.column === column ? -sorted.order : COLUMNS[column][2];
    sorted = { column, order };
    shown = "";
    change({});
  }

  function build() {
    const value = COLUMNS[sorted.column][1];
    const rows = [...data.heads].sort((a, b) => compare(value(a), value(b)) * (value(a) === null || value(b) === null ? 1 : sorted.order));
    byId("ranking-table").replaceChildren(
      make("thead", {}, make("tr", {}, ...COLUMNS.map(heading))), make("tbody", {}, ...rows.map(row)),
    );
    shown = JSON.stringify(sorted);
  }

  /** What has no value comes last. */
  function compare(a, b) {
    if (a === null || b === null) return (a === null) - (b === null);
    return a < b ? -1 : a > b ? 1 : 0;
  }

  function heading([label], column) {
    const direction = sorted.column !== column ? "none" : sorted.order > 0 ? "ascending" : "descending";
    const arrow = { none: "", ascending: " ↑", descending: " ↓" }[direction];
    return make("th", { scope: "col", "aria-sort": direction },
      make("button", { type: "button", on: { click: () => { sortBy(column); byId("ranking-table").querySelectorAll("thead button")[column].focus(); } } },
        label, make("span", { "aria-hidden": "true" }, arrow)));
  }

  function row(one) {
    const name = `${one.kind}.${one.layer}.${one.head}`;
    const choose = () => change({ kind: one.kind, layer: one.layer, heads: [one.head] });
    return make("tr", { "data-kind": one.kind, "data-layer": one.layer, "data-head": one.head },
      make("th", { scope: "row" }, make("button", { type: "button", on: { click: choose } }, name)),
      ...COLUMNS.slice(1).map(([, value, , show]) => make("td", {}, show(value(one)))));
  }

  function render({ kind, layer, heads }) {
    if (!shown) build();
    for (const tr of byId("ranking-table").querySelectorAll("tbody tr")) {
      const { kind: ownKind, layer: ownLayer, head } = tr.dataset;
      tr.classList.toggle("chosen", ownKind === kind && Number(ownLayer) === layer && heads.includes(Number(head)));
    }
  }

  return { render };
})();
