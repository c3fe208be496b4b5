"use strict";
// Step 2: a card for each column. What a person changes is in state.schema at once. Fields of values
// that a draft read off the rows are empty, the value behind them in grey, until a person types one.

const KINDS = ["numeric", "categorical", "binary"];
const MANY_BITS = 12; // columns of 0 and 1 from which on they are one card
const MOST_LISTED = 50; // whole numbers that become a list of values by themselves

function useSchema(schema, leftOut) {
  state.schema = schema;
  state.leftOut = leftOut;
  state.marked = new Set(schema.drafted === true ? columnNames() : schema.drafted || []);
  state.confirmed = new Set(columnNames().filter((name) => !state.marked.has(name)));
  state.typed = new Map();
  state.oneByOne = false;
  state.dirty = true;
  state.schemaFile = null;
  state.plan = null;
}

const columnNames = () => [state.schema.label.name, ...state.schema.features.map((feature) => feature.name)];
const unconfirmed = () => columnNames().filter((name) => !state.confirmed.has(name));
const FIELDS = { numeric: ["lower", "upper"], categorical: ["categories"], binary: [0, 1], pixels: [] };

function isTyped(name) {
  const feature = state.schema.features.find((each) => each.name === name);
  const keys = feature ? FIELDS[feature.kind] : ["classes"];
  return keys.every((key) => state.typed.get(name)?.has(key));
}
const isOpen = (name) => state.marked.has(name) && !isTyped(name);

// Whether an empty field keeps what the draft read off the rows.
function keeps(name, key, value) {
  const typed = state.typed.get(name) || new Set();
  state.typed.set(name, typed);
  typed[value.trim() === "" ? "delete" : "add"](key);
  return state.marked.has(name) && value.trim() === "";
}
// While a person types, the box below can be reached already.
function typing(input, name, key) {
  input.addEventListener("input", () => {
    keeps(name, key, input.value);
    markCard(name);
  });
  return input;
}
const shownIn = (name, key, value) => state.marked.has(name) && !state.typed.get(name)?.has(key) ? { placeholder: value } : { value };

// `unsure`: its bounds or values are others now, and want to be confirmed. The card stays as it is,
// for a person may be on the way to another field of it.
function changed(name, unsure) {
  state.dirty = true;
  if (unsure) {
    state.confirmed.delete(name);
    markCard(name);
  }
  showConfirmed();
  showSteps();
  checkSoon();
}

// Lines become values of the kind that they had: texts stay texts, whole numbers stay numbers.
function valuesOf(text, before) {
  const lines = text.split("\n").map((line) => line.trim()).filter((line) => line !== "");
  if (before.length && before.every((value) => typeof value === "string")) return lines;
  if (before.length && before.every((value) => typeof value === "boolean") && lines.every((line) => /^(true|false)$/.test(line)))
    return lines.map((line) => line === "true");
  return lines.every((line) => /^-?\d{1,15}$/.test(line)) ? lines.map(Number) : lines;
}

function withKind(feature, kind) {
  const { name, immutable, categories, values, lower, upper, integer } = feature;
  const made = { kind, name, ...(immutable ? { immutable } : {}) };
  if (kind === "numeric") return { ...made, lower: 0, upper: feature.kind === "binary" ? 1 : 100, integer: true };
  if (kind === "binary") return { ...made, values: (categories || []).length === 2 ? categories : ["no", "yes"] };
  const few = integer && upper - lower < MOST_LISTED;
  return { ...made, categories: values || (few ? Array.from({ length: upper - lower + 1 }, (_, at) => lower + at) : []) };
}

const set = (feature, key, value) => {
  if (value) feature[key] = value;
  else delete feature[key];
};

function labelled(name, input) {
  return element("label", { className: "up" }, words(name), input);
}

function tick(feature, key) {
  const input = element("input", { type: "checkbox", checked: !!feature[key] });
  input.addEventListener("change", () => {
    set(feature, key, input.checked);
    changed(feature.name, key === "missing");
    if (key === "ordered") showColumn(feature.name);
  });
  return element("label", {}, input, ` ${words(key)}`);
}

function numberField(feature, key) {
  const input = element("input", { type: "number", step: "any", ...shownIn(feature.name, key, String(feature[key] ?? "")) });
  input.addEventListener("change", () => {
    if (!keeps(feature.name, key, input.value)) feature[key] = input.value === "" ? null : Number(input.value);
    changed(feature.name, true);
  });
  return labelled(key, typing(input, feature.name, key));
}

function listField(holder, key, heading, name) {
  const before = holder[key];
  const input = element("textarea", { rows: Math.min(6, Math.max(2, before.length)), ...shownIn(name, key, before.join("\n")), spellcheck: false });
  input.addEventListener("change", () => {
    if (!keeps(name, key, input.value)) holder[key] = valuesOf(input.value, before);
    changed(name, true);
  });
  return labelled(heading, typing(input, name, key));
}

function valueField(feature, place) {
  const input = element("input", shownIn(feature.name, place, String(feature.values[place])));
  input.addEventListener("change", () => {
    if (keeps(feature.name, place, input.value)) return changed(feature.name, true);
    const texts = feature.values.map((value, at) => (at === place ? input.value : String(value)));
    feature.values = valuesOf(texts.join("\n"), feature.values);
    if (feature.values.length < 2) feature.values = texts;
    changed(feature.name, true);
  });
  return labelled(place ? "yes" : "no", typing(input, feature.name, place));
}

function whoField(feature) {
  const directed = feature.kind === "numeric" || feature.kind === "binary" || feature.ordered;
  const select = element("select");
  for (const way of ["any", ...(directed ? ["increase", "decrease", "up", "down"] : []), "immutable"])
    select.append(element("option", { value: way, textContent: words(way) }));
  select.value = feature.immutable ? "immutable" : (directed && (feature.direction || feature.good)) || "any";
  if (!directed) delete feature.direction, delete feature.good;
  select.addEventListener("change", () => {
    set(feature, "immutable", select.value === "immutable");
    set(feature, "direction", ["increase", "decrease"].includes(select.value) ? select.value : "");
    set(feature, "good", ["up", "down"].includes(select.value) ? select.value : "");
    changed(feature.name, false);
  });
  return labelled("who", select);
}

function kindField(feature) {
  const select = element("select");
  for (const kind of KINDS) select.append(element("option", { value: kind, textContent: words(kind) }));
  select.value = feature.kind;
  select.addEventListener("change", () => {
    const at = state.schema.features.indexOf(feature);
    state.schema.features[at] = withKind(feature, select.value);
    state.confirmed.delete(feature.name);
    state.typed.delete(feature.name);
    changed(feature.name, false);
    showColumn(feature.name);
    cardOf(feature.name).querySelector("select").focus();
  });
  return labelled("kind", select);
}

function confirmBox(name, numeric) {
  const box = element("input", { type: "checkbox", checked: state.confirmed.has(name), disabled: isOpen(name) });
  box.addEventListener("change", () => {
    if (box.checked) state.confirmed.add(name);
    else state.confirmed.delete(name);
    markCard(name);
    changed(name, false);
  });
  const read = element("div", { className: "read" });
  const found = isOpen(name) ? numeric ? "read_numbers" : "read_list" : "replaced";
  read.classList.toggle("replaced", found === "replaced");
  if (state.marked.has(name)) read.append(element("p", { textContent: words(found) }));
  read.append(element("label", {}, box, ` ${words(numeric ? "confirm_numbers" : "confirm_list")}`));
  return read;
}

// Tables with hundreds of columns of 0 and 1 have one card for all of them.
const isBit = (feature) => feature.kind === "binary" && !feature.immutable && !feature.direction && !feature.good && String(feature.values || [0, 1]) === "0,1";
function grouped() {
  const bits = state.schema.features.filter(isBit).map((feature) => feature.name);
  return state.oneByOne || bits.length < MANY_BITS ? [] : bits;
}

function bitsCard(names) {
  const sure = names.every((name) => state.confirmed.has(name));
  const box = element("input", { placeholder: "0, 1", value: sure ? "0, 1" : "" });
  const card = element("article", { className: `column ${sure ? "sure" : "open"}` }, element("h3", { textContent: words("bits_head", { n: number(names.length) }) }),
    element("p", { textContent: words("bits_how") }), element("details", {}, element("summary", { textContent: names[0] }), names.join(", ")),
    element("div", { className: "read" }, element("label", {}, `${words("confirm_bits")} `, box)),
    element("button", { type: "button", className: "quiet leave", textContent: words("one_by_one"), onclick: () => { state.oneByOne = true; showSchema(); } }));
  box.addEventListener("change", () => {
    const right = /^0\W+1$/.test(box.value.trim());
    for (const name of names) {
      state.confirmed[right ? "add" : "delete"](name);
      state.typed.set(name, new Set(right ? FIELDS.binary : []));
    }
    card.className = `column ${right ? "sure" : "open"}`;
    changed("", false);
  });
  return card;
}

function markCard(name) {
  const card = cardOf(name), sure = state.confirmed.has(name), read = card.querySelector(".read");
  card.classList.toggle("sure", sure);
  card.classList.toggle("open", !sure);
  Object.assign(read.querySelector("input"), { checked: sure, disabled: isOpen(name) });
  if (isOpen(name)) return;
  read.classList.add("replaced");
  if (read.querySelector("p")) read.querySelector("p").textContent = words("replaced");
}

const cardOf = (name) => document.querySelector(`.column[data-name="${CSS.escape(name)}"]`);

function columnCard(name) {
  const { label, features } = state.schema;
  const card = element("article", { className: `column ${state.confirmed.has(name) ? "sure" : "open"}` });
  card.dataset.name = name;
  card.setAttribute("aria-label", name);
  if (name === label.name) {
    card.append(element("h3", {}, name, element("small", { textContent: words("is_label") })));
    card.append(listField(label, "classes", "classes", name), confirmBox(name, false));
  } else {
    const feature = features.find((each) => each.name === name);
    card.append(element("h3", { textContent: name }));
    card.append(...featureFields(feature));
  }
  card.append(element("p", { className: "problem", hidden: true }));
  return card;
}

function featureFields(feature) {
  if (feature.kind === "pixels") return [element("p", { textContent: words("pixels") }), confirmBox(feature.name, true)];
  const fields = [kindField(feature)];
  const ticks = element("div", { className: "switches" });
  if (feature.kind === "numeric") {
    fields.push(element("div", { className: "pair" }, numberField(feature, "lower"), numberField(feature, "upper")));
    ticks.append(tick(feature, "integer"), tick(feature, "missing"));
  } else if (feature.kind === "categorical") {
    fields.push(listField(feature, "categories", "categories", feature.name));
    ticks.append(tick(feature, "ordered"), tick(feature, "missing"));
  } else {
    feature.values = feature.values || [0, 1];
    fields.push(element("div", { className: "pair" }, valueField(feature, 0), valueField(feature, 1)));
  }
  fields.push(ticks, whoField(feature), confirmBox(feature.name, feature.kind === "numeric"));
  const leave = element("button", { type: "button", className: "quiet leave", textContent: words("leave"), "aria-label": `${words("leave")}: ${feature.name}` });
  leave.addEventListener("click", careful(async () => {
    if (state.schema.features.length === 1) throw new Refused(words("last_column"));
    state.schema.features = state.schema.features.filter((each) => each !== feature);
    cardOf(feature.name).remove();
    changed(feature.name, false);
    $("confirmed").scrollIntoView({ block: "nearest" });
  }));
  fields.push(leave);
  return fields;
}

function showColumn(name) {
  const focused = document.activeElement && cardOf(name).contains(document.activeElement)
    ? [...cardOf(name).querySelectorAll("input, select, textarea")].indexOf(document.activeElement) : -1;
  cardOf(name).replaceWith(columnCard(name));
  const fields = cardOf(name).querySelectorAll("input, select, textarea");
  if (focused >= 0 && fields[focused]) fields[focused].focus();
}

function showConfirmed() {
  const names = columnNames();
  $("confirmed").textContent = words("confirmed", { n: names.length - unconfirmed().length, all: names.length });
}

function showSchema() {
  if (!state.schema) return;
  $("dataset").value = state.schema.name || "";
  $("left-out").replaceChildren();
  const left = Object.entries(state.leftOut);
  if (left.length) {
    const list = element("ul");
    for (const [name, why] of left)
      list.append(element("li", {}, element("strong", { textContent: name }), element("span", { lang: "en", textContent: ` ${why}` })));
    $("left-out").append(element("div", { className: "warned" }, element("strong", { textContent: words("left_out") }), list));
  }
  const bits = grouped(), single = columnNames().filter((name) => !bits.includes(name));
  $("columns").replaceChildren(...single.map(columnCard), ...(bits.length ? [bitsCard(bits)] : []));
  if (!$("schema-name").value) $("schema-name").value = `${state.schema.name || "table"}.schema.json`;
  showConfirmed();
  checkSoon();
}

let soon;
function checkSoon() {
  clearTimeout(soon);
  soon = setTimeout(() => checkSchema().catch(trouble), 250);
}

async function checkSchema() {
  const { problems } = await ask("schema/check", { content: state.schema });
  for (const each of document.querySelectorAll(".column > .problem")) each.hidden = true;
  $("whole").hidden = true;
  for (const { column, words: said } of problems) {
    const card = column !== null && cardOf(column);
    const line = card ? card.querySelector(".problem") : $("whole");
    line.hidden = false;
    line.lang = "en";
    line.textContent = said;
  }
  return problems;
}

async function saveSchema(draft) {
  clearTimeout(soon);
  const [problem] = await checkSchema();
  if (problem) {
    const card = problem.column !== null && cardOf(problem.column);
    if (card) card.querySelector("input, select, textarea").focus();
    throw new Refused(words("mend_first", { name: problem.column ?? "", words: problem.words }));
  }
  const left = unconfirmed();
  if (left.length && !draft) {
    (cardOf(left[0]) || $("columns")).querySelector("input:not(:disabled), textarea").focus();
    throw new Refused(words("confirm_first", { names: left.slice(0, 5).join(", ") + (left.length > 5 ? ", …" : "") }));
  }
  const body = { content: state.schema, file: $("schema-name").value, typed: columnNames().filter(isTyped), replace: $("replace").checked };
  let saved;
  try {
    saved = await ask("schema/save", body);
  } catch (error) {
    if (error.status === 409) $("replace-label").hidden = false;
    throw error;
  }
  $("replace-label").hidden = true;
  $("replace").checked = false;
  $("schema-name").value = saved.file;
  return saved;
}

const saveAndGo = careful(async () => {
  const saved = await saveSchema(false);
  state.schemaFile = saved.file;
  state.dirty = false;
  state.plans.clear();
  state.plan = null;
  if (state.file) go(3);
  else go(1);
});

const saveDraft = careful(async () => {
  const saved = await saveSchema(true);
  throw new Refused(words("saved_draft", { file: saved.file }));
});
