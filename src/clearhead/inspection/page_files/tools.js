"use strict";

/** An element with attributes, listeners (`on`), custom properties (`style`) and children. */
function make(tag, { on = {}, style = {}, ...attributes } = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  for (const [event, listener] of Object.entries(on)) element.addEventListener(event, listener);
  for (const [name, value] of Object.entries(style)) element.style.setProperty(name, value);
  element.append(...children);
  return element;
}

const byId = (id) => document.getElementById(id);

/** A weight or a probability in words; what a byte rounds to 0 is still not nothing. */
function percent(share) {
  if (share === 0) return "0\u202f%";
  if (share < 0.005) return "<1\u202f%";
  return `${Math.round(share * 100)}\u202f%`;
}

/** Control tokens have names, not text; they are shown smaller. */
const isControl = (token) => /^<(\/?s|pad|unk)>$/.test(token);

/** Hues as far apart as the number of heads allows. */
const hueOf = (head, heads) => Math.round(30 + (360 * head) / heads);

/** Arrow keys move between the elements of a list, of which Tab reaches one. */
function roving(container, selector, keys = { back: ["ArrowUp", "ArrowLeft"], on: ["ArrowDown", "ArrowRight"] }) {
  container.addEventListener("keydown", (event) => {
    const items = [...container.querySelectorAll(selector)].filter((item) => !item.disabled);
    const place = items.indexOf(document.activeElement);
    if (place < 0) return;
    let next = null;
    if (keys.back.includes(event.key)) next = items[place - 1];
    else if (keys.on.includes(event.key)) next = items[place + 1];
    else if (event.key === "Home") next = items[0];
    else if (event.key === "End") next = items.at(-1);
    else return;
    event.preventDefault();
    if (next) next.focus();
  });
  container.addEventListener("focusin", (event) => {
    if (!event.target.matches(selector)) return;
    for (const item of container.querySelectorAll(selector)) item.tabIndex = item === event.target ? 0 : -1;
  });
}

/** Buttons of which one is chosen. `options` are pairs of value and label. */
function segments(container, options, choose) {
  container.replaceChildren(
    ...options.map(([value, label, disabled]) => {
      const button = make("button", { type: "button", role: "radio", "data-value": value, on: { click: () => choose(value) } }, label);
      button.disabled = Boolean(disabled);
      return button;
    }),
  );
}

function markSegment(container, value) {
  for (const button of container.children) {
    const chosen = button.dataset.value === String(value);
    button.setAttribute("aria-checked", chosen);
    button.tabIndex = chosen ? 0 : -1;
  }
}
