"use strict";
// The steps audit and attack, and the reports of the folder.

const STOPPABLE = ["audit", "attack", "actions", "fairness"];

// Shows the progress of an audit or attack until it ends, and keeps its result.
async function followCheck(name, job) {
  $(name).disabled = true;
  $(`${name}-stop`).hidden = false;
  try {
    state[name] = await follow(job, (now) => showProgress(name, now, "auditing"));
  } catch (error) {
    throw error.message === "it was stopped" ? new Refused(words("stopped")) : error;
  } finally {
    $(name).disabled = false;
    $(`${name}-stop`).hidden = $(`${name}-bar`).hidden = true;
    $(`${name}-work`).textContent = "";
    await look();
  }
}

// --- 6: audit ---

function showAudit() {
  showMade();
  const found = state.audit;
  $("audited").replaceChildren();
  if (found) {
    const good = !found.failures.length;
    $("audited").append(element("p", { className: good ? "good-news" : "trouble", textContent: words(good ? "audit_good" : "audit_bad", { n: found.failures.length }) }));
    if (!good) $("audited").append(element("ul", { lang: "en" }, ...found.failures.map((line) => element("li", { textContent: line }))));
    $("audited").append(mechanismTable(found.mechanisms), element("p", { textContent: words("report_at", { file: found.file }) }));
  }
  const next = element("button", { type: "button", className: "quiet", textContent: words("to_attack"), onclick: () => go(7) });
  if (reachable[7]()) $("audited").append(next);
}

function mechanismTable(mechanisms) {
  const head = element("tr", {}, ...["mechanism", "games", "claimed", "bound", "refuted"].map((name) => element("th", { scope: "col", textContent: words(name) })));
  const body = element("tbody", {}, ...mechanisms.map((each) => element("tr", {},
    element("th", { scope: "row", lang: "en", textContent: each.mechanism }), element("td", { textContent: number(each.games) }),
    element("td", { textContent: number(each.claimed) }), element("td", { textContent: number(each.bound, 3) }), element("td", { textContent: number(each.refuted) }))));
  const table = element("table", {}, element("thead", {}, head), body);
  return element("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": words("audit_head") }, table);
}

// --- 7: attack ---

function showAttack() {
  showMade();
  const names = (kind) => state.about[kind].map((each) => each.name), tables = names("tables");
  fillSelect("attack-veil", names("veils"), $("attack-veil").value || (state.veil && state.veil.file));
  fillSelect("attack-table", tables, $("attack-table").value || state.file);
  const other = tables.find((name) => name !== $("attack-table").value);
  fillSelect("attack-others", tables, $("attack-others").value || other);
  fillOptional("attack-model", names("models"), "own_model");
  $("attack").disabled = tables.length < 2 || !$("attack-bar").hidden;
  if ($("attack-bar").hidden) $("attack-work").textContent = tables.length < 2 ? words("too_few_tables") : "";
  showAttributes().catch(trouble);
  const found = state.attack;
  $("attacked").replaceChildren();
  if (!found) return;
  $("attacked").append(
    element("h3", { textContent: words("attacked") }),
    element("ul", { lang: "en" }, ...found.verdicts.map((line) => element("li", { textContent: line }))),
    element("p", { className: "fine", textContent: words("attack_fine") }), readButtons(found.file),
    element("h4", { textContent: words("command") }),
    element("pre", { tabIndex: 0, textContent: found.commands.join("\n") }));
}

function fillOptional(id, names, none) {
  const chosen = $(id).value;
  fillSelect(id, names);
  $(id).prepend(element("option", { value: "", textContent: words(none) }));
  $(id).value = names.includes(chosen) ? chosen : "";
}

// The columns of categories of the veil: one of them can be guessed.
async function showAttributes() {
  const file = $("attack-veil").value;
  if (!file) return;
  const { schema } = await ask("veil", { file });
  const kinds = ["categorical", "binary"];
  fillOptional("attack-attribute", schema.features.filter((each) => kinds.includes(each.kind)).map((each) => each.name), "no_attribute");
}

const attack = careful(async () => {
  const body = { file: $("attack-veil").value, table: $("attack-table").value, others: $("attack-others").value };
  if ($("attack-model").value) body.model = $("attack-model").value;
  if ($("attack-attribute").value) body.attribute = $("attack-attribute").value;
  await followCheck("attack", await ask("attack", body));
});

// --- The reports of the folder ---

function showMade() {
  const { folder, veils, reports } = state.about;
  $("files-where").textContent = words("folder", { folder });
  const lines = [...veils.map((file) => file.name), ...reports.map((file) => readButtons(file.name))];
  $("made").replaceChildren(...(lines.length ? lines : [words("none_yet")]).map((line) => element("li", {}, line)));
  showReport();
}

function readButtons(file) {
  const download = async () => {
    const { text } = await ask("report", { file });
    save(file, text);
  };
  return element("span", { className: "bar" },
    element("button", { type: "button", className: "quiet", textContent: words("read", { file }), onclick: careful(() => readReport(file)) }),
    element("button", { type: "button", className: "quiet", textContent: words("download", { file }), onclick: careful(download) }));
}

async function readReport(file) {
  state.report = await ask("report", { file });
  showReport();
  $("reader").focus();
}

function showReport() {
  const report = state.report;
  $("reader").replaceChildren();
  if (!report) return;
  const close = () => { state.report = null; showReport(); };
  $("reader").append(element("h4", { textContent: report.file }));
  if (report.mechanisms) $("reader").append(mechanismTable(report.mechanisms));
  // A page is shown in a frame that has neither scripts nor an origin.
  if (report.file.endsWith(".html")) $("reader").append(element("iframe", { title: report.file, sandbox: "", srcdoc: report.text }));
  else $("reader").append(element("details", { open: !report.mechanisms }, element("summary", { textContent: words("raw") }), element("pre", { tabIndex: 0, lang: "en", textContent: report.text })));
  $("reader").append(element("button", { type: "button", className: "quiet", textContent: words("close"), onclick: close }));
}

function beginChecks(on) {
  on("audit", "click", careful(async () => followCheck("audit", await ask("audit", {}))));
  on("attack-form", "submit", attack);
  on("attack-veil", "change", careful(showAttributes));
  for (const name of STOPPABLE) on(`${name}-stop`, "click", careful(() => ask(`${name}/stop`, {})));
}
