"use strict";
// Steps 3 and 4: what ε buys, and the release that pays for it.

const EPSILONS = [0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10];
const DELTAS = [0, 1e-6, 1e-9];
const SECONDS_AT_REST = 0.3;
const BOUGHT = ["singles", "ranges", "moments", "pairs", "spikes"];

const planBody = () => ({ ...unitBody(), delta: delta(), groups: picked("groups") });

// --- 3: what ε buys ---

const delta = () => Number($("delta").value || 0);
const tenth = (each) => `10⁻${"⁰¹²³⁴⁵⁶⁷⁸⁹"[-Math.log10(each)]}`;
const unitBody = () => {
  const unit = $("unit").value;
  return { file: state.file, schema_file: state.schemaFile, ...(unit ? { unit_column: unit, max_records: Number($("records").value) || 1 } : {}) };
};

function showEpsilon() {
  if (!reachable[3]()) return;
  const used = new Set(columnNames()), unit = $("unit").value, chosen = $("delta").value;
  const free = state.columns.filter((column) => !used.has(column));
  $("unit").replaceChildren(element("option", { value: "", textContent: words("unit_row") }),
    ...free.map((column) => element("option", { value: column, textContent: words("unit_column", { column }) })));
  if (free.includes(unit)) $("unit").value = unit;
  $("records-label").hidden = !$("unit").value;
  showBoxes("groups", columnsOfGroups(state.schema));
  $("delta").replaceChildren(...DELTAS.map((each) =>
    element("option", { value: each, textContent: each ? tenth(each) : words("delta_none") })));
  if (chosen) $("delta").value = chosen;
  loadPlans();
}

// The plans of all places of the slider are asked for at once, so that it moves without waiting.
const loadPlans = careful(async () => {
  const turn = ++state.turn, key = JSON.stringify(planBody()), { epsilon } = state;
  const known = state.plans.get(key) || new Map();
  const missing = [...new Set([...EPSILONS, epsilon])].filter((each) => !known.has(each));
  if (missing.length) {
    state.plan = null;
    $("to-release").disabled = true;
    $("plan").setAttribute("aria-busy", "true");
    if (!known.size) $("plan").replaceChildren(element("p", { textContent: words("planning") }));
    try {
      const { plans, account } = await ask("plans", { ...planBody(), epsilons: missing });
      for (const plan of plans) known.set(plan.epsilon, plan);
      state.plans.set(key, known);
      state.account = account;
    } finally {
      if (turn === state.turn) $("plan").setAttribute("aria-busy", "false");
    }
  }
  if (turn !== state.turn) return; // something else was asked for meanwhile
  state.plan = known.get(epsilon);
  showPlan(known);
  showAccount();
  showSteps();
  await compareDeltas(known, turn);
});

// What other δ would buy is asked for where the slider rests.
async function compareDeltas(known, turn) {
  const { plan, epsilon } = state;
  if (plan.deltas) return;
  await sleep(SECONDS_AT_REST);
  if (turn !== state.turn) return;
  plan.deltas = (await ask("deltas", { ...planBody(), epsilon })).deltas;
  if (turn === state.turn) showPlan(known);
}

function deltaTable(deltas) {
  const row = (tag, cells) => element("tr", {}, ...cells.map((textContent) => element(tag, { textContent })));
  return element("table", { className: "deltas" },
    element("caption", { textContent: words("deltas") }),
    element("thead", {}, row("th", ["δ", words("count_off"), words("link_off")])),
    element("tbody", {}, ...deltas.map((each) => row("td", [each.delta ? tenth(each.delta) : 0, `±${number(each.noise, 2)}`, each.link_noise ? `±${number(each.link_noise, 2)}` : words("not_bought")]))));
}

function showPlan(plans) {
  const plan = state.plan, at = EPSILONS.findIndex((each) => each >= state.epsilon);
  $("slider").value = at < 0 ? EPSILONS.length - 1 : at;
  $("slider").setAttribute("aria-valuetext", `ε = ${number(state.epsilon)}`);
  $("epsilon-now").textContent = number(state.epsilon);
  if (document.activeElement !== $("exactly")) $("exactly").value = state.epsilon; // nobody is typing
  $("bars").replaceChildren(...EPSILONS.map((each) => {
    const { share, grade } = plans.get(each), bar = element("i", { className: `${grade || "good"} ${each === state.epsilon ? "now" : ""}` });
    bar.style.height = share === undefined ? "50%" : `${Math.min(100, Math.max(4, 25 * Math.log10(10 / share)))}%`;
    return bar;
  }));
  const parts = [];
  $("groups-line").hidden = !plan.grade || !$("groups").children.length;
  if (plan.grade) {
    const rows = plan.units / state.schema.label.classes.length;
    parts.push(element("p", { className: `grade ${plan.grade}`, textContent: words(`grade_${plan.grade}`) }));
    parts.push(element("p", { textContent: words("noise", { noise: number(plan.noise, 2), rows: number(Math.round(rows)), share: percent(plan.share) }) }));
  }
  parts.push(element("p", { textContent: words(plan.delta ? "odds_delta" : "odds", { factor: number(Math.exp(plan.epsilon), 3), delta: number(plan.delta) }) }));
  if (plan.deltas && plan.deltas.length) parts.push(deltaTable(plan.deltas));
  for (const warning of plan.warnings) parts.push(element("p", { className: "warned", lang: "en", textContent: warning }));
  if (plan.bought) {
    const list = element("ul", { className: "bought" });
    for (const step of picked("groups").length ? [...BOUGHT, "of_groups"] : BOUGHT) {
      const has = plan.bought.includes(step);
      list.append(element("li", { className: has ? "" : "not", textContent: has ? words(step) : `${words(step)}: ${words("not_bought")}` }));
    }
    parts.push(element("h3", { textContent: words("bought") }), list);
  }
  const reasons = element("ul", { lang: "en" }, ...plan.reasons.map((reason) => element("li", { textContent: reason })));
  parts.push(element("details", {}, element("summary", { textContent: words("reasons") }), reasons));
  $("plan").replaceChildren(...parts);
}

const canPay = () => {
  const account = state.account && state.account.account;
  return !!account && account.remaining.epsilon >= state.epsilon && account.remaining.delta >= delta();
};

function showAccount() {
  const box = $("account"), { dataset, account, elsewhere } = state.account;
  $("to-release").disabled = !canPay() || !state.plan;
  box.replaceChildren(element("h3", { textContent: words("account", { dataset }) }));
  if (account) {
    const { total, spent, remaining } = account;
    const shown = (amount) => `ε ${number(amount.epsilon)}` + (total.delta ? `, δ ${number(amount.delta)}` : "");
    box.append(element("meter", { min: 0, max: total.epsilon, value: spent.epsilon, "aria-label": words("spent") }));
    const after = { epsilon: minus(remaining.epsilon, state.epsilon), delta: minus(remaining.delta, delta()) };
    const facts = element("dl", { className: "measures" }, fact(words("total"), shown(total)), fact(words("spent"), shown(spent)), fact(words("remaining"), shown(remaining)));
    if (canPay()) facts.append(fact(words("after"), shown(after)));
    box.append(facts);
    if (!canPay()) box.append(element("p", { className: "warned", textContent: words("too_much", { left: shown(remaining) }) }));
    return;
  }
  if (elsewhere) {
    box.append(element("p", { className: "warned", textContent: words("elsewhere", { file: elsewhere }) }));
    return;
  }
  const epsilon = element("input", { id: "total-epsilon", type: "number", min: 0.000001, step: "any", required: true, value: Math.max(1, state.epsilon) });
  const most = element("input", { id: "total-delta", type: "number", min: 0, max: 1, step: "any", value: delta() });
  const form = element("form", { className: "bar" }, element("label", {}, `${words("account_total")} `, epsilon),
    element("label", {}, `${words("account_delta")} `, most), element("button", { textContent: words("open_account") }));
  form.addEventListener("submit", careful(async () => {
    state.account = await ask("account", { dataset, epsilon: Number(epsilon.value), delta: Number(most.value) });
    showAccount();
    $("to-release").focus();
  }));
  box.append(element("p", { textContent: words("no_account") }), form);
}

function setEpsilon(value) {
  if (!(value > 0)) return;
  state.epsilon = value;
  loadPlans();
}

// --- 4: the release ---

function showRelease() {
  const plan = state.released ? null : state.plan;
  $("release-form").hidden = $("check-first").hidden = !plan || state.busy;
  $("summary").replaceChildren();
  if (plan) {
    const left = state.account.account ? minus(state.account.account.remaining.epsilon, state.epsilon) : 0;
    const unit = $("unit").value;
    $("summary").append(
      fact(words("sum_table"), state.file), fact(words("sum_schema"), state.schemaFile),
      fact(words("sum_unit"), unit ? words("unit_column", { column: unit }) : words("unit_row")),
      fact(words("sum_price"), `ε ${number(state.epsilon)}${delta() ? `, δ ${number(delta())}` : ""}`));
    if (picked("groups").length) $("summary").append(fact(words("sum_groups"), picked("groups").join(", ")));
    if (!state.busy && canPay()) $("summary").append(fact(words("sum_left"), `ε ${number(left)}`));
    $("release").textContent = words("release", { epsilon: number(state.epsilon) });
    $("release").disabled = state.busy || !canPay();
    if (!$("veil-name").value) $("veil-name").value = freeName();
  }
  showVeil();
}

function freeName() {
  const taken = new Set(state.about.veils.map((veil) => veil.name)), name = state.schema.name || "table";
  let at = 1;
  while (taken.has(at === 1 ? `${name}.veil` : `${name}-${at}.veil`)) at++;
  return at === 1 ? `${name}.veil` : `${name}-${at}.veil`;
}

function showProgress(name, job, first) {
  const bar = $(`${name}-bar`);
  bar.hidden = job.state !== "running";
  if (job.total) bar.value = job.done / job.total;
  else bar.removeAttribute("value");
  bar.setAttribute("aria-label", words({ release: "step_4", audit: "step_6", attack: "step_7" }[name] ?? name));
  $(`${name}-work`).textContent = job.total ? words("step_of", job) : words(first);
}

async function followRelease(job) {
  state.busy = true;
  state.released = null;
  show(4);
  try {
    state.released = state.veil = await follow(job, (now) => {
      showProgress("release", now, "releasing");
      $("release-work").textContent += ` ${words("goes_on")}`;
    });
    state.answers = null;
    $("veil-name").value = "";
    state.releaseId = null;
  } catch (error) {
    if (error.status) state.releaseId = null; // it is known to have failed: the next click is a new one
    $("other-line").hidden = !error.message.includes("--other-rows");
    throw error;
  } finally {
    state.busy = false;
    $("release-bar").hidden = true;
    $("release-work").textContent = "";
    state.plans.clear();
    await look();
    if (state.schemaFile && state.file) state.account = (await ask("plans", { ...planBody(), epsilons: [state.epsilon] })).account;
    show(state.step);
  }
}

const release = careful(async () => {
  if (state.busy) return;
  state.busy = true;
  $("release").disabled = true;
  state.releaseId ??= crypto.randomUUID();
  const body = { ...planBody(), id: state.releaseId, epsilon: state.epsilon, veil: $("veil-name").value, other_rows: $("other").checked };
  let job;
  try {
    job = await ask("release", body);
  } catch (error) {
    state.busy = false;
    $("release").disabled = false;
    throw error;
  }
  await followRelease(job);
});

function showVeil() {
  const veil = state.released;
  $("veil").replaceChildren();
  if (!veil) return;
  const facts = element("dl", { className: "measures" }, fact(words("digest"), veil.digest.slice(0, 16)), fact(words("signature"), veil.signature));
  $("veil").append(
    element("p", { className: "good-news", textContent: words("released", { file: veil.file }) }),
    ...veil.warnings.map((warning) => element("p", { className: "warned", lang: "en", textContent: warning })),
    element("div", { className: "card" },
      element("h3", { lang: "en", textContent: veil.headline }), element("p", { lang: "en", textContent: veil.meaning }), facts,
      element("details", {}, element("summary", { textContent: words("statement") }), element("pre", { lang: "en", tabIndex: 0, textContent: veil.text })),
      element("details", {}, element("summary", { textContent: words("command") }), element("pre", { lang: "en", tabIndex: 0, textContent: veil.command }))),
    element("p", { className: "bar" },
      element("button", { type: "button", className: "main", id: "to-try", textContent: words("to_try"), onclick: () => go(5) }),
      element("button", { type: "button", className: "quiet", textContent: words("again"), onclick: releaseAgain, hidden: !reachable[3]() })));
}

function releaseAgain() {
  state.released = null;
  go(3);
}

const checkRows = careful(() => alone([$("check")], async () => {
  try {
    const job = await ask("check", unitBody());
    const { units } = await follow(job, () => { $("check-work").textContent = words("checking"); });
    $("check-work").textContent = words("checked", { n: number(units) });
  } catch (error) {
    $("check-work").textContent = "";
    throw error;
  }
}));
