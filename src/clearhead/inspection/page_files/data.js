/** What Python measured: tokens, steps, and every weight as a byte. */
const data = JSON.parse(byId("data").textContent);
let weightBytes;

async function unpackWeights() {
  const packed = Uint8Array.from(atob(data.weights), (character) => character.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  weightBytes = new Uint8Array(await new Response(stream).arrayBuffer());
}

/** The map of one head: a row of bytes for each query. */
function headBytes(kind, layer, head) {
  const { heads, queries, keys, place } = data.kinds[kind];
  const size = queries.length * keys.length;
  const start = place + (layer * heads + head) * size;
  return weightBytes.subarray(start, start + size);
}

/** How much a query's head looks at a key, 0 to 1. */
function weight(kind, layer, head, query, key) {
  return headBytes(kind, layer, head)[query * data.kinds[kind].keys.length + key] / 255;
}

/** The mean of several heads of one layer. */
function meanWeight(kind, layer, heads, query, key) {
  let sum = 0;
  for (const head of heads) sum += weight(kind, layer, head, query, key);
  return heads.length ? sum / heads.length : 0;
}

/** The mean of all cross-attention, at a step: what the alignment is made of. */
function crossMean(step, place) {
  const { layers, heads } = data.kinds.cross;
  let sum = 0;
  for (let layer = 0; layer < layers; layer++) {
    for (let head = 0; head < heads; head++) sum += weight("cross", layer, head, step, place);
  }
  return sum / (layers * heads);
}

const KIND_NAMES = { encoder: "encoder", decoder: "decoder", cross: "cross" };

/** What the two columns hold, by kind of attention. */
const COLUMN_NAMES = {
  encoder: ["source token …", "… looks at source"],
  decoder: ["while writing …", "… looks at what is written"],
  cross: ["while writing …", "… looks at source"],
};
