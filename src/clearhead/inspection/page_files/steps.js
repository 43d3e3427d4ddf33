/** The decoding, step by step: what was written, what else could have been, and where the decoder looked. */
const stepsView = (() => {
  let timer = null;

  function build() {
    byId("source-chips").replaceChildren(...data.source_tokens.map((token) => make("li", {}, make("span", { class: chipClass(token) }, make("bdi", {}, token)))));
    byId("target-chips").replaceChildren(
      ...data.target_tokens.map((token, step) =>
        make("li", {}, make("button", {
          type: "button", class: chipClass(token), "data-step": step, tabindex: step ? -1 : 0,
          "aria-label": `step ${step}: ${token}`, on: { click: () => change({ step }), focus: () => change({ step }) },
        }, make("bdi", {}, token)))),
    );
    // The tokens of a text that is written from right to left stand from right to left.
    byId("source-chips").dir = directionOf(data.source);
    byId("target-chips").dir = directionOf(data.translation);
    roving(byId("target-chips"), ".chip");
    byId("step").max = data.steps.length - 1;
    byId("step").addEventListener("input", (event) => change({ step: Number(event.target.value) }));
    byId("previous").addEventListener("click", () => move(-1));
    byId("next").addEventListener("click", () => move(1));
    byId("play").addEventListener("click", toggle);
  }

  const chipClass = (token) => `chip${isControl(token) ? " control" : ""}`;

  /** That of the first strong character: the rule of `dir="auto"`. */
  function directionOf(text) {
    const strong = text.match(/[\p{L}\p{Lo}]/u);
    return strong && /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u.test(strong[0]) ? "rtl" : "ltr";
  }

  function move(by) {
    change({ step: Math.min(data.steps.length - 1, Math.max(0, state.step + by)) });
  }

  function toggle() {
    if (timer) return stop();
    if (state.step === data.steps.length - 1) change({ step: 0 });
    byId("play").setAttribute("aria-pressed", true);
    byId("play").textContent = "Pause";
    timer = setInterval(() => (state.step < data.steps.length - 1 ? move(1) : stop()), 700);
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    byId("play").setAttribute("aria-pressed", false);
    byId("play").textContent = "Play";
  }

  function render({ step }) {
    const { token, probability, alternatives } = data.steps[step];
    byId("step").value = step;
    byId("step-text").textContent = `${step + 1} of ${data.steps.length}`;
    byId("step").setAttribute("aria-valuetext", `step ${step + 1}: ${token}`);
    [...byId("source-chips").children].forEach(({ firstChild: chip }, place) => {
      const share = crossMean(step, place);
      chip.style.setProperty("--weight", share);
      chip.dataset.weight = share.toFixed(4);
      chip.title = percent(share);
      chip.classList.toggle("heavy", share > 0.6);
      chip.classList.toggle("aligned", data.alignment[step] === place);
    });
    [...byId("target-chips").children].forEach(({ firstChild: chip }, place) => {
      chip.classList.toggle("now", place === step);
      chip.classList.toggle("later", place > step);
      if (place === step) chip.setAttribute("aria-current", "step");
      else chip.removeAttribute("aria-current");
    });
    byId("alternatives-title").replaceChildren(
      "Wrote ", make("b", {}, make("bdi", {}, token)), ` with probability ${precise(probability)}. The likeliest tokens were:`,
    );
    const rest = alternatives.some(([other]) => other === token) ? [] : [[token, probability]];
    byId("alternatives-list").replaceChildren(...[...alternatives, ...rest].map(([other, p]) => alternative(other, p, other === token)));
  }

  function alternative(token, p, written) {
    return make("li", { class: written ? "written" : null, "data-probability": p },
      make("bdi", {}, token),
      make("span", { class: "bar", "aria-hidden": "true" }, make("i", { style: { width: `${100 * p}%` } })),
      make("span", { class: "number" }, precise(p)));
  }

  const precise = (p) => (p >= 0.9995 ? "> 99.9\u202f%" : p < 0.0005 ? "< 0.1\u202f%" : `${(100 * p).toFixed(1)}\u202f%`);

  return { build, render, move, toggle };
})();
