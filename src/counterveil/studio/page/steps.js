"use strict";
// The steps file and try, and the start of the page.

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

const picked = (id) => [...$(id).querySelectorAll("input:checked")].map((box) => box.value);

// A box for each name; what was chosen stays chosen.
function showBoxes(id, names, chosen = picked(id)) {
  $(id).replaceChildren(...names.map((name) =>
    element("label", {}, element("input", { type: "checkbox", checked: chosen.includes(name), value: name }), ` ${name}`)));
}

// Columns with a list of values; commands take their names with commas between them.
const columnsOfGroups = (schema) => schema.features.filter(({ kind, name }) => ["categorical", "binary"].includes(kind) && !name.includes(","))
  .map((feature) => feature.name);

async function chooseFile(name) {
  $("draft-form").hidden = true; // until it is about this file
  const { columns } = await ask("columns", { file: name }).finally(() => { $("draft-form").hidden = !state.file; });
  if (state.file !== name) { state.plans.clear(); state.plan = null; }
  Object.assign(state, { file: name, columns });
  $("chosen").textContent = name;
  fillSelect("label", columns, columns[columns.length - 1]);
  $("label").value = columns[columns.length - 1];
  showBoxes("uses", columns, columns);
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
    useSchema(found.schema, found.left_out);
    $("schema-name").value = "";
    go(2);
  } finally {
    $("draft-work").textContent = "";
  }
}));

const openSchema = careful(async () => {
  const { schema } = await ask("schema/open", { file: $("schemas").value });
  useSchema(schema, {});
  $("schema-name").value = $("schemas").value;
  if (!schema.drafted) Object.assign(state, { schemaFile: $("schemas").value, dirty: false });
  go(2);
});

const openVeil = careful(async () => {
  state.veil = await ask("veil", { file: $("veils").value });
  state.answers = null;
  go(5);
});

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
  $("people").hidden = !veil.people;
  showBoxes("fairness-groups", columnsOfGroups(veil.schema));
  showFairness();
  showMade();
  showAnswers();
}

function showAnswers() {
  $("answers").replaceChildren();
  if (!state.answers) return;
  const cards = element("div", { className: "cards" });
  state.answers.answers.forEach((record, at) => {
    const card = element("article", { className: "card" }, element("h3", { textContent: words("person", { n: at + 1, now: record.decision }) }));
    const [way] = record.ways;
    if (!way) {
      const closest = record.closest || [];
      card.append(element("p", { textContent: words("no_way") }));
      if (closest.length) card.append(element("p", { textContent: words("closest", { share: percent(record.best_probability) }) }));
      for (const change of closest) card.append(changeLine(change));
      if (language === "en") card.append(element("p", { className: "fine", textContent: record.text }));
    } else {
      for (const change of way.changes) card.append(changeLine(change));
      card.append(element("p", {}, `→ `, element("strong", { textContent: String(record.target) }), ` (${words("sure", { share: percent(way.probability) })})`));
      if (language === "en") card.append(element("p", { className: "fine", textContent: way.text }));
    }
    cards.append(card);
  });
  const { person, letters, promise } = state.answers;
  $("answers").append(cards, element("p", { className: "fine", lang: "en", textContent: promise }),
    element("details", { className: "card" }, element("summary", { textContent: words("letter", { n: person + 1 }) }), element("pre", { tabIndex: 0, textContent: letters[language] })));
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

// A page about the people of the veil, which is then read below.
const tell = (kind) => careful(async () => {
  const body = { file: state.veil.file, target: state.veil.schema.label.classes[Number($("target").value)] };
  if (kind === "fairness") body.groups = picked("fairness-groups");
  await followCheck(kind, await ask(kind, body));
  await readReport(state[kind].file);
});

function showFairness() {
  $("fairness-line").hidden = !$("fairness-groups").children.length;
  $("fairness").disabled = !picked("fairness-groups").length || !$("fairness-bar").hidden;
}

// --- Start ---

function show(step) {
  if (state.about) ({ 1: showFiles, 2: showSchema, 3: showEpsilon, 4: showRelease, 5: showTry, 6: showAudit, 7: showAttack })[step]();
}

function takeToken() {
  const asked = new URLSearchParams(location.search).get("token");
  if (asked === null) return;
  sessionStorage.setItem("studio-token", asked);
  history.replaceState(null, "", location.pathname);
}

const begin = careful(async () => {
  takeToken();
  beginLanguage(showWords);
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
  on("groups", "change", loadPlans);
  on("to-release", "click", () => go(4));
  on("check", "click", checkRows);
  on("release-form", "submit", release);
  on("try-form", "submit", tryVeil);
  on("fairness-groups", "change", showFairness);
  for (const kind of ["actions", "fairness"]) on(kind, "click", tell(kind));
  on("copy", "click", careful(async () => {
    await navigator.clipboard.writeText($("serve").textContent);
    $("copied").textContent = words("copied");
  }));
  on("to-audit", "click", () => go(6));
  beginChecks(on);
  window.addEventListener("beforeunload", (event) => { if (state.schema && state.dirty) event.preventDefault(); });
  showWords();
  await look();
  const { jobs } = await ask("jobs");
  const running = (kind) => jobs.find((job) => job.kind === kind && job.state === "running");
  for (const name of STOPPABLE) if (running(name)) followCheck(name, running(name)).catch(trouble);
  if (running("release")) {
    go(4);
    await followRelease(running("release"));
  }
});

document.addEventListener("DOMContentLoaded", begin);
