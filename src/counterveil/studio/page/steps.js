"use strict";
// The other steps: file, what ε buys, release, try, audit. And the start of the page.

const EPSILONS = [0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10];
const DELTAS = [0, 1e-6, 1e-9];
const BOUGHT = ["singles", "ranges", "pairs", "products", "spikes"];

// --- 1: the file ---

async function look() {
  state.about = await ask("start");
  show(state.step);
  showSteps();
}

function showFiles() {
  if (!state.about) return;
  const { folder, tables, schemas, veils } = state.about;
  $("place").textContent = folder.split(/[\\/]/).pop();
  $("folder").textContent = tables.length ? words("folder", { folder }) : `${words("folder", { folder })}. ${words("no_tables")}`;
  $("tables").replaceChildren(...tables.map((table) => {
    const when = new Date(table.changed).toLocaleString(language, { dateStyle: "medium", timeStyle: "short" });
    const small = element("small", { textContent: `${words("bytes", { n: number(Math.ceil(table.bytes / 1000)) })} · ${when}` });
    const button = element("button", { type: "button", onclick: careful(() => chooseFile(table.name)) }, table.name, small);
    button.setAttribute("aria-pressed", String(table.name === state.file));
    return element("li", {}, button);
  }));
  fillSelect("schemas", schemas.map((each) => each.name));
  fillSelect("veils", veils.map((each) => each.name));
  $("draft-form").hidden = !state.file;
  $("open-form").hidden = !schemas.length || !state.file;
  $("veil-form").hidden = !veils.length;
}

function fillSelect(id, names, chosen = $(id).value) {
  $(id).replaceChildren(...names.map((name) => element("option", { value: name, textContent: name })));
  if (names.includes(chosen)) $(id).value = chosen;
}

async function chooseFile(name) {
  const { columns } = await ask("columns", { file: name });
  if (state.file !== name) { state.plans.clear(); state.plan = null; }
  Object.assign(state, { file: name, columns });
  $("chosen").textContent = name;
  fillSelect("label", columns, columns[columns.length - 1]);
  $("label").value = columns[columns.length - 1];
  $("uses").replaceChildren(...columns.map((column) =>
    element("label", {}, element("input", { type: "checkbox", checked: true, value: column }), ` ${column}`)));
  hideLabel();
  showFiles();
  showSteps();
  $("draft-form").scrollIntoView({ block: "nearest" });
  $("label").focus({ preventScroll: true });
}

function hideLabel() {
  for (const box of $("uses").querySelectorAll("input")) box.parentElement.hidden = box.value === $("label").value;
}

const draft = careful(() => alone([$("draft")], async () => {
  const left = [...$("uses").querySelectorAll("input")].filter((box) => !box.checked).map((box) => box.value);
  const label = $("label").value;
  const job = await ask("draft", { file: state.file, label, exclude: left.filter((name) => name !== label) });
  try {
    const found = await follow(job, () => { $("draft-work").textContent = words("drafting"); });
    useSchema(found.schema, found.left_out, []);
    $("schema-name").value = "";
    go(2);
  } finally {
    $("draft-work").textContent = "";
  }
}));

const openSchema = careful(async () => {
  const { schema } = await ask("schema/open", { file: $("schemas").value });
  useSchema(schema, {}, schema.drafted ? [] : [schema.label.name, ...schema.features.map((feature) => feature.name)]);
  $("schema-name").value = $("schemas").value;
  if (!schema.drafted) Object.assign(state, { schemaFile: $("schemas").value, dirty: false });
  go(2);
});

const openVeil = careful(async () => {
  state.veil = await ask("veil", { file: $("veils").value });
  state.answers = null;
  go(5);
});

// --- 3: what ε buys ---

const delta = () => Number($("delta").value || 0);
const unitBody = () => {
  const unit = $("unit").value;
  return { file: state.file, schema_file: state.schemaFile, ...(unit ? { unit_column: unit, max_records: Number($("records").value) || 1 } : {}) };
};

function showEpsilon() {
  if (!open[3]()) return;
  const used = new Set(columnNames()), unit = $("unit").value, chosen = $("delta").value;
  const free = state.columns.filter((column) => !used.has(column));
  $("unit").replaceChildren(element("option", { value: "", textContent: words("unit_row") }),
    ...free.map((column) => element("option", { value: column, textContent: words("unit_column", { column }) })));
  if (free.includes(unit)) $("unit").value = unit;
  $("records-label").hidden = !$("unit").value;
  $("delta").replaceChildren(...DELTAS.map((each) =>
    element("option", { value: each, textContent: each ? `10⁻${"⁰¹²³⁴⁵⁶⁷⁸⁹"[-Math.log10(each)]}` : words("delta_none") })));
  if (chosen) $("delta").value = chosen;
  loadPlans();
}

// The plans of all places of the slider are asked for at once, so that it moves without waiting.
const loadPlans = careful(async () => {
  const turn = ++state.turn, key = JSON.stringify([unitBody(), delta()]), { epsilon } = state;
  const known = state.plans.get(key) || new Map();
  const missing = [...new Set([...EPSILONS, epsilon])].filter((each) => !known.has(each));
  if (missing.length) {
    state.plan = null;
    $("to-release").disabled = true;
    $("plan").setAttribute("aria-busy", "true");
    if (!known.size) $("plan").replaceChildren(element("p", { textContent: words("planning") }));
    try {
      const { plans, account } = await ask("plans", { ...unitBody(), epsilons: missing, delta: delta() });
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
});

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
  if (plan.grade) {
    const rows = plan.units / state.schema.label.classes.length;
    parts.push(element("p", { className: `grade ${plan.grade}`, textContent: words(`grade_${plan.grade}`) }));
    parts.push(element("p", { textContent: words("noise", { noise: number(plan.noise, 2), rows: number(Math.round(rows)), share: percent(plan.share) }) }));
  }
  parts.push(element("p", { textContent: words(plan.delta ? "odds_delta" : "odds", { factor: number(Math.exp(plan.epsilon), 3), delta: number(plan.delta) }) }));
  for (const warning of plan.warnings) parts.push(element("p", { className: "warned", lang: "en", textContent: warning }));
  if (plan.bought) {
    const list = element("ul", { className: "bought" });
    for (const step of BOUGHT) {
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
  bar.setAttribute("aria-label", words(`step_${name === "audit" ? 6 : 4}`));
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
    if (state.schemaFile && state.file) state.account = (await ask("plans", { ...unitBody(), epsilons: [state.epsilon], delta: delta() })).account;
    show(state.step);
  }
}

const release = careful(async () => {
  if (state.busy) return;
  state.busy = true;
  $("release").disabled = true;
  state.releaseId ??= crypto.randomUUID();
  const body = { ...unitBody(), id: state.releaseId, epsilon: state.epsilon, delta: delta(), veil: $("veil-name").value, other_rows: $("other").checked };
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
      element("button", { type: "button", className: "quiet", textContent: words("again"), onclick: releaseAgain, hidden: !open[3]() })));
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

// --- 5: try it ---

function showTry() {
  const veil = state.veil;
  if (!veil) return;
  const classes = veil.schema.label.classes, chosen = $("target").value;
  $("target").replaceChildren(...classes.map((name, at) => element("option", { value: at, textContent: String(name) })));
  if (chosen && Number(chosen) < classes.length) $("target").value = chosen;
  $("try-form").hidden = !veil.answers;
  if (!veil.answers) $("try-work").textContent = words("no_answers");
  $("serve").textContent = veil.serve;
  showAnswers();
}

function showAnswers() {
  $("answers").replaceChildren();
  if (!state.answers) return;
  const cards = element("div", { className: "cards" });
  state.answers.answers.forEach((record, at) => {
    const card = element("article", { className: "card" }, element("h3", { textContent: words("person", { n: at + 1, now: record.decision }) }));
    const [way] = record.ways;
    if (!way) card.append(element("p", { textContent: words("no_way") }));
    else {
      for (const change of way.changes) card.append(changeLine(change));
      card.append(element("p", {}, `→ `, element("strong", { textContent: String(record.target) }), ` (${words("sure", { share: percent(way.probability) })})`));
      if (language === "en") card.append(element("p", { className: "fine", textContent: way.text }));
    }
    cards.append(card);
  });
  $("answers").append(cards, element("p", { className: "fine", lang: "en", textContent: state.answers.promise }));
}

function changeLine(change) {
  const shown = (value) => (value === null ? words("empty") : typeof value === "number" ? number(value) : String(value));
  return element("p", { className: "change" }, `${change.column}: `, element("b", { textContent: shown(change.to) }), " ",
    element("s", { textContent: words("instead", { before: shown(change.from) }) }));
}

const tryVeil = careful(() => alone([$("try")], async () => {
  const target = state.veil.schema.label.classes[Number($("target").value)];
  try {
    const job = await ask("try", { file: state.veil.file, target });
    state.answers = await follow(job, () => { $("try-work").textContent = words("trying"); });
    showAnswers();
  } finally {
    $("try-work").textContent = "";
  }
}));

// --- 6: audit ---

async function followAudit(job) {
  $("audit").disabled = true;
  $("stop").hidden = false;
  try {
    state.audit = await follow(job, (now) => showProgress("audit", now, "auditing"));
  } finally {
    $("audit").disabled = false;
    $("stop").hidden = $("audit-bar").hidden = true;
    $("audit-work").textContent = "";
    await look();
  }
}

function showAudit() {
  showMade();
  const found = state.audit;
  $("audited").replaceChildren();
  if (!found) return;
  const good = !found.failures.length;
  $("audited").append(element("p", { className: good ? "good-news" : "trouble", textContent: words(good ? "audit_good" : "audit_bad", { n: found.failures.length }) }));
  if (!good) $("audited").append(element("ul", { lang: "en" }, ...found.failures.map((line) => element("li", { textContent: line }))));
  const head = element("tr", {}, ...["mechanism", "games", "claimed", "bound", "refuted"].map((name) => element("th", { scope: "col", textContent: words(name) })));
  const body = element("tbody", {}, ...found.mechanisms.map((each) => element("tr", {},
    element("th", { scope: "row", lang: "en", textContent: each.mechanism }), element("td", { textContent: number(each.games) }),
    element("td", { textContent: number(each.claimed) }), element("td", { textContent: number(each.bound, 3) }), element("td", { textContent: number(each.refuted) }))));
  const table = element("table", {}, element("thead", {}, head), body);
  $("audited").append(element("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": words("audit_head") }, table),
    element("p", { textContent: words("report_at", { file: found.file }) }));
}

function showMade() {
  const { folder, veils, reports } = state.about, files = [...veils, ...reports];
  $("files-where").textContent = words("folder", { folder });
  $("made").replaceChildren(...(files.length ? files : [{ name: words("none_yet") }]).map((file) => element("li", { textContent: file.name })));
}

// --- Start ---

function show(step) {
  if (state.about) ({ 1: showFiles, 2: showSchema, 3: showEpsilon, 4: showRelease, 5: showTry, 6: showAudit })[step]();
}

function takeToken() {
  const asked = new URLSearchParams(location.search).get("token");
  if (asked === null) return;
  sessionStorage.setItem("studio-token", asked);
  history.replaceState(null, "", location.pathname);
}

const begin = careful(async () => {
  takeToken();
  language = localStorage.getItem("language") || (navigator.language.startsWith("de") ? "de" : "en");
  $("language").value = language;
  $("language").addEventListener("change", () => {
    language = $("language").value;
    localStorage.setItem("language", language);
    showWords();
  });
  const on = (id, kind, work) => $(id).addEventListener(kind, work);
  on("refresh", "click", careful(look));
  on("label", "change", hideLabel);
  on("draft-form", "submit", draft);
  on("open-form", "submit", openSchema);
  on("veil-form", "submit", openVeil);
  on("dataset", "change", () => { state.schema.name = $("dataset").value; changed("", false); });
  on("save-form", "submit", saveAndGo);
  on("save-draft", "click", saveDraft);
  on("slider", "input", () => setEpsilon(EPSILONS[Number($("slider").value)]));
  on("exactly", "change", () => setEpsilon(Number($("exactly").value)));
  on("delta", "change", loadPlans);
  on("unit", "change", () => { $("records-label").hidden = !$("unit").value; loadPlans(); });
  on("records", "change", loadPlans);
  on("to-release", "click", () => go(4));
  on("check", "click", checkRows);
  on("release-form", "submit", release);
  on("try-form", "submit", tryVeil);
  on("copy", "click", careful(async () => {
    await navigator.clipboard.writeText($("serve").textContent);
    $("copied").textContent = words("copied");
  }));
  on("to-audit", "click", () => go(6));
  on("audit", "click", careful(async () => followAudit(await ask("audit", {}))));
  on("stop", "click", careful(() => ask("audit/stop", {})));
  window.addEventListener("beforeunload", (event) => { if (state.schema && state.dirty) event.preventDefault(); });
  showWords();
  await look();
  const { jobs } = await ask("jobs");
  const running = (kind) => jobs.find((job) => job.kind === kind && job.state === "running");
  if (running("audit")) followAudit(running("audit")).catch(trouble);
  if (running("release")) {
    go(4);
    await followRelease(running("release"));
  }
});

document.addEventListener("DOMContentLoaded", begin);
