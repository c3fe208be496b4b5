"use strict";
// The page of `counterveil serve`: a form made from the schema, answers as cards. Texts: words.js; helpers: shared.js.

const PART = 100; // rows of one request of the batch
const MANY_FIELDS = 40; // from which on there is a field to find others by
const state = { schema: null, about: null, fields: [], answers: null, asked: null, rows: [], stop: false };

// --- Words and numbers ---

const percent = (share) => new Intl.NumberFormat(language, { style: "percent" }).format(share);

const labelOf = (feature) => feature.label || feature.name;

function valueOf(feature, value) {
  if (value === null || value === undefined) return words("missing");
  const named = feature && feature.value_names && feature.value_names[String(value)];
  if (named) return named;
  return typeof value === "number" && feature && feature.kind === "numeric" ? number(value) : String(value);
}

function classOf(value) {
  const named = state.schema.label.value_names && state.schema.label.value_names[String(value)];
  return named || String(value);
}

// --- Asking the service ---

async function ask(path, body) {
  const key = sessionStorage.getItem("key");
  const [response, content] = await send(path, key, body);
  if (response.status === 401) {
    $("key-form").hidden = false;
    throw new Refused(key ? words("wrong_key") : words("key"));
  }
  if (!response.ok) {
    const refused = new Refused([content.title, content.detail].filter(Boolean).join(": "));
    refused.status = response.status;
    refused.after = Number(response.headers.get("Retry-After") || 0);
    throw refused;
  }
  return content;
}

// --- The form ---

// The values that a schema lists; undefined for a number.
const listedIn = (feature) => (feature.kind === "binary" ? feature.values : feature.categories);

// The values to choose from; null where a number is typed. A whole number is chosen where each of its values has a name.
function choicesOf(feature) {
  if (feature.kind !== "numeric") return listedIn(feature);
  if (!feature.integer || !feature.value_names) return null;
  const count = feature.upper - feature.lower + 1;
  if (Object.keys(feature.value_names).length < count) return null;
  return Array.from({ length: count }, (_, place) => feature.lower + place);
}

function fieldOf(feature, number) {
  const id = `field-${number}`;
  const box = element("div", { className: "field" });
  box.append(element("label", { htmlFor: id, textContent: labelOf(feature) }));
  const field = { feature, box, values: choicesOf(feature) };
  if (!field.values) {
    const whole = feature.integer;
    field.input = element("input", {
      id, type: "number", min: feature.lower, max: feature.upper, step: whole ? 1 : "any",
      inputMode: whole ? "numeric" : "decimal", required: true,
    });
    const range = words("from_to", { low: valueOf(feature, feature.lower), high: valueOf(feature, feature.upper) });
    box.append(field.input, element("p", { className: "fine", textContent: [range, feature.unit].filter(Boolean).join(" · ") }));
  } else {
    field.input = element("select", { id, required: true });
    field.input.append(element("option", { value: "", textContent: words("choose") }));
    field.values.forEach((value, place) =>
      field.input.append(element("option", { value: place, textContent: valueOf(feature, value) })));
    box.append(field.input);
  }
  const switches = element("div", { className: "switches" });
  if (feature.missing) {
    field.missing = element("input", { type: "checkbox" });
    field.missing.addEventListener("change", () => { field.input.disabled = field.missing.checked; });
    switches.append(element("label", {}, field.missing, ` ${words("missing")}`));
  }
  field.may = element("input", { type: "checkbox", role: "switch", checked: !feature.immutable, disabled: !!feature.immutable });
  switches.append(element("label", {}, field.may, ` ${words(feature.immutable ? "stays" : "may")}`));
  box.append(switches);
  field.input.addEventListener("input", () => { if (state.trying) decideSoon(); });
  return field;
}

function pictureField(feature) {
  const box = element("div", { className: "field wide" });
  const text = words("picture", { w: feature.breadth, h: feature.height });
  const input = element("input", { id: "field-0", type: "file", accept: "image/*" });
  const canvas = canvasOf(feature, "query");
  box.append(element("label", { htmlFor: "field-0", textContent: text }), input, canvas);
  const field = { feature, box, input, canvas, pixels: null };
  input.addEventListener("change", careful(async () => {
    const bitmap = await createImageBitmap(input.files[0]);
    const context = canvas.getContext("2d");
    context.drawImage(bitmap, 0, 0, feature.breadth, feature.height);
    const data = context.getImageData(0, 0, feature.breadth, feature.height).data;
    const channels = feature.channels || 1, most = feature.levels || 255, found = [];
    for (let at = 0; at < data.length; at += 4) {
      if (channels === 1) found.push(Math.round(((data[at] + data[at + 1] + data[at + 2]) / 765) * most));
      else for (let c = 0; c < channels; c++) found.push(Math.round((data[at + c] / 255) * most));
    }
    field.pixels = found;
    paint(canvas, feature, found);
  }));
  return field;
}

const canvasOf = (feature, name) =>
  element("canvas", { width: feature.breadth, height: feature.height, role: "img", "aria-label": words(name) });

// `colour`: red, green and blue of the pixel at a place, 0 to 255.
function fill(canvas, { breadth, height }, colour) {
  const context = canvas.getContext("2d"), image = context.createImageData(breadth, height);
  for (let at = 0; at < breadth * height; at++) image.data.set([...colour(at), 255], 4 * at);
  context.putImageData(image, 0, 0);
}

function paint(canvas, feature, pixels) {
  const channels = feature.channels || 1, most = feature.levels || 255;
  fill(canvas, feature, (at) => [0, 1, 2].map((c) => (pixels[at * channels + Math.min(c, channels - 1)] / most) * 255));
}

// Where the answer is brighter than the case it is blue, where it is darker orange; grey stays as it is.
const SAME = [232, 232, 232], BRIGHTER = [18, 82, 178], DARKER = [204, 85, 0];

function paintDifference(canvas, feature, before, after) {
  const channels = feature.channels || 1, most = feature.levels || 255;
  fill(canvas, feature, (at) => {
    let moved = 0;
    for (let c = 0; c < channels; c++) moved += (after[at * channels + c] - before[at * channels + c]) / most / channels;
    const goal = moved > 0 ? BRIGHTER : DARKER;
    return SAME.map((same, c) => same + (goal[c] - same) * Math.abs(moved));
  });
}

const isPicture = () => state.schema.features.length === 1 && state.schema.features[0].kind === "pixels";
const pixelNames = (feature) => {
  const count = feature.height * feature.breadth * (feature.channels || 1);
  return Array.from({ length: count }, (_, at) => `${feature.name}${at}`);
};

function buildForm() {
  const known = state.fields.length ? readForm(false) : null;
  const fixed = state.fields.map((field) => field.may && field.may.checked);
  $("fields").replaceChildren();
  state.fields = isPicture()
    ? [pictureField(state.schema.features[0])]
    : state.schema.features.map((feature, at) => fieldOf(feature, at));
  state.fields.forEach((field, at) => {
    $("fields").append(field.box);
    if (known && field.may && !field.may.disabled) field.may.checked = fixed[at];
  });
  if (known) fillForm(known);
  $("most-changes").closest("label").hidden = isPicture();
  $("filter-label").hidden = state.fields.length < MANY_FIELDS;
  for (const id of ["target", "target-many"]) {
    const chosen = $(id).value;
    $(id).replaceChildren(element("option", { value: "", textContent: words("target_any") }));
    state.schema.label.classes.forEach((name, at) =>
      $(id).append(element("option", { value: at, textContent: classOf(name) })));
    $(id).value = chosen;
  }
}

function readForm(strict = true) {
  if (isPicture()) {
    const [field] = state.fields;
    if (!field.pixels) {
      if (!strict) return {};
      throw new Refused(words("fill", { names: labelOf(field.feature) }));
    }
    return Object.fromEntries(pixelNames(field.feature).map((name, at) => [name, field.pixels[at]]));
  }
  const row = {}, empty = [];
  for (const { feature, input, values, missing } of state.fields) {
    if (missing && missing.checked) row[feature.name] = null;
    else if (input.value === "") { empty.push(labelOf(feature)); row[feature.name] = undefined; }
    else row[feature.name] = values ? values[Number(input.value)] : Number(input.value);
  }
  if (strict && empty.length) {
    state.fields.find((field) => field.input.value === "" && !(field.missing && field.missing.checked)).input.focus();
    throw new Refused(words("fill", { names: empty.slice(0, 5).join(", ") + (empty.length > 5 ? ", …" : "") }));
  }
  return row;
}

function fillForm(row) {
  if (isPicture()) {
    const [field] = state.fields;
    const pixels = pixelNames(field.feature).map((name) => row[name]);
    if (pixels.some((value) => value === undefined)) return;
    field.pixels = pixels;
    paint(field.canvas, field.feature, pixels);
    return;
  }
  for (const field of state.fields) {
    const value = row[field.feature.name];
    if (value === undefined) continue;
    if (field.missing) {
      field.missing.checked = value === null;
      field.input.disabled = value === null;
    }
    if (value === null) field.input.value = "";
    else field.input.value = field.values ? field.values.indexOf(value) : value;
  }
}

// An example with numbers that can be read: four digits, within the bounds of the schema.
function rounded(row) {
  const shown = { ...row };
  for (const { name, kind, integer, step, lower, upper } of state.schema.features)
    if (kind === "numeric" && !integer && !step && row[name] !== null)
      shown[name] = Math.min(upper, Math.max(lower, Number(row[name].toPrecision(4))));
  return shown;
}

// --- Answers ---

const askOne = careful(async () => {
  stopTrying();
  const row = readForm();
  const rules = {};
  if ($("most-changes").value && !isPicture()) rules.max_changes = Number($("most-changes").value);
  const question = {
    rows: [row],
    k: Number($("ways").value) || 1,
    immutable: state.fields.filter((field) => field.may && !field.may.checked && !field.feature.immutable)
      .map((field) => field.feature.name),
    rules,
  };
  if ($("target").value !== "") question.target = state.schema.label.classes[Number($("target").value)];
  if ($("prefer").value) question.prefer = $("prefer").value;
  $("ask").disabled = true;
  $("result").setAttribute("aria-busy", "true");
  $("result").replaceChildren(element("p", { textContent: words("asking") }));
  try {
    await answer(question);
    $("result").focus();
  } catch (error) {
    $("result").replaceChildren();
    throw error;
  } finally {
    $("ask").disabled = false;
    $("result").setAttribute("aria-busy", "false");
  }
});

// The answer to a question, with a letter in the language of the page where there are letters.
async function answer(question) {
  if (!isPicture() && state.about.decided_by !== "stand-in") question = { ...question, regions: true, letter: language };
  const answers = await ask("v1/explain", question);
  Object.assign(state, { answers, question, asked: question.rows[0] });
  showAnswers();
}

// Whether the texts of the answer are in the language of the page; otherwise they are asked for again.
const isInLanguage = () => state.question.letter === language;

const featureOf = (column) => state.schema.features.find((feature) => feature.name === column) || { name: column };

function showAnswers() {
  if (!state.answers) return;
  const [record] = state.answers.answers, goal = classOf(record.target), result = $("result");
  result.replaceChildren();
  const count = record.ways.length;
  const title = record.status === "already" ? words("already", { goal })
    : record.status === "impossible" ? words("impossible", { goal })
    : count === 0 ? words("none", { goal })
    : count === 1 ? words("found_one", { goal }) : words("found", { n: count, goal });
  result.append(element("h2", { textContent: title }));
  const now = record.decision === null ? words("asked_nothing") : words("decides", { now: classOf(record.decision) });
  result.append(element("p", { className: "decision", textContent: now }));
  if (!count && record.status !== "already") result.append(element("p", { textContent: record.text }));
  const cards = element("div", { className: "cards" });
  record.ways.forEach((way, at) => cards.append(cardOf(way, at, goal)));
  if (record.closest && record.closest.length && !isPicture()) cards.append(closestOf(record));
  result.append(cards);
  if (count && isPicture()) result.append(element("p", { className: "fine", textContent: words("difference_how") }));
  if (count > 1 && !isPicture()) result.append(comparison(record.ways));
  const letter = isInLanguage() && record.letter;
  if (count || letter) {
    const bar = element("p", { className: "bar" }, quietButton("print", () => window.print()), quietButton("json", saveJson));
    if (letter) bar.append(quietButton("letter", () => showLetter(letter)));
    result.append(bar);
  }
}

const quietButton = (name, onclick) => element("button", { type: "button", className: "quiet", textContent: words(name), onclick });

// What to tell the person. While it is open, it alone is printed.
function showLetter(text) {
  if ($("letter")) $("letter").remove();
  const letter = element("section", { id: "letter", className: "card", tabIndex: -1, "aria-label": words("letter") },
    element("pre", { textContent: text }),
    element("p", { className: "bar" }, quietButton("print_letter", () => window.print()),
      quietButton("save_letter", () => save("letter.txt", text, "text/plain")), quietButton("close", () => $("letter").remove())));
  $("result").append(letter);
  letter.focus();
}

function cardOf(way, at, goal) {
  const card = element("article", { className: "card" });
  card.append(element("h3", { textContent: words("way", { n: at + 1 }) }));
  if (isPicture()) card.append(picturesOf(way));
  else for (const change of way.changes) card.append(changeOf(change));
  const facts = element("dl", { className: "measures" }, fact(words("probability"), percent(way.probability)));
  if (way.plausibility !== undefined) {
    if (!isPicture()) facts.append(fact(words("plausibility"), words("of_people", { share: percent(way.plausibility), goal })));
    facts.append(fact(words("stability"), percent(way.stability)), fact(words("effort"), number(way.effort, 2)));
  }
  facts.append(fact(words("distance"), number(way.distance, 2)));
  card.append(facts);
  if (way.veil_knows === false) card.append(element("p", { className: "fine", textContent: words("noisy") }));
  if (!isPicture())
    card.append(element("button", { type: "button", textContent: words("try"), onclick: () => startTrying(way) }));
  return card;
}

// A case without a way: the closest allowed row, and the rule whose lifting opens a way.
function closestOf(record) {
  const card = element("article", { className: "card" }, element("h3", { textContent: words("closest") }));
  for (const change of record.closest) card.append(changeOf(change));
  card.append(element("dl", { className: "measures" }, fact(words("probability"), percent(record.best_probability))));
  if (record.opens) {
    const { rule, feature, changes, probability } = record.opens;
    const name = feature === null ? "" : labelOf(featureOf(feature));
    card.append(element("h3", { textContent: words("opens", { rule: name ? `${name} (${rule})` : rule, share: percent(probability) }) }));
    for (const change of changes) card.append(changeOf(change));
  }
  return card;
}

function changeOf(change) {
  const feature = featureOf(change.column);
  const line = element("div", { className: "change" });
  line.append(
    `${labelOf(feature)}: `, element("b", { textContent: valueOf(feature, change.to) }), " ",
    element("s", { textContent: words("instead", { before: valueOf(feature, change.from) }) }));
  if (change.works && isInLanguage()) line.append(element("p", { className: "fine", textContent: words("works", { works: change.works }) }));
  if (change.places) {
    const [before, after] = change.places;
    const text = words("place", { before: percent(before), after: percent(after) });
    const bar = element("div", { className: "place", role: "img", "aria-label": text, title: text });
    for (const [share, name] of [[before, "before"], [after, "after"]]) {
      const dot = element("i", { className: name });
      dot.style.left = `${100 * share}%`;
      bar.append(dot);
    }
    line.append(bar);
  }
  return line;
}

function picturesOf(way) {
  const [{ feature }] = state.fields, names = pixelNames(feature);
  const before = names.map((name) => state.asked[name]), after = names.map((name) => way.row[name]);
  const row = element("div", { className: "pictures" });
  for (const [name, pixels] of [["query", before], ["answer", after], ["difference", null]]) {
    const canvas = canvasOf(feature, name);
    if (pixels) paint(canvas, feature, pixels);
    else paintDifference(canvas, feature, before, after);
    row.append(element("figure", {}, canvas, element("figcaption", { textContent: words(name) })));
  }
  return row;
}

function comparison(ways) {
  const columns = [...new Set(ways.flatMap((way) => way.changes.map((change) => change.column)))];
  const head = element("tr", {}, element("th", { scope: "col", textContent: words("field") }), element("th", { scope: "col", textContent: words("now") }));
  ways.forEach((_, at) => head.append(element("th", { scope: "col", textContent: words("way", { n: at + 1 }) })));
  const table = element("table", {}, element("caption", { className: "hidden", textContent: words("compare") }), element("thead", {}, head));
  const body = element("tbody");
  for (const column of columns) {
    const feature = featureOf(column);
    const line = element("tr", {}, element("th", { scope: "row", textContent: labelOf(feature) }), element("td", { textContent: valueOf(feature, state.asked[column]) }));
    for (const way of ways) {
      const change = way.changes.find((each) => each.column === column);
      line.append(element("td", { textContent: change ? valueOf(feature, change.to) : "–" }));
    }
    body.append(line);
  }
  table.append(body);
  return element("section", {}, element("h2", { textContent: words("compare") }), element("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": words("compare") }, table));
}

const saveJson = () => save("answers.json", JSON.stringify(state.answers, null, 2), "application/json");

// --- What if? ---

function startTrying(way) {
  state.trying = true;
  fillForm(way.row);
  for (const field of state.fields)
    field.box.classList.toggle("moved", way.changes.some((change) => change.column === field.feature.name));
  let bar = $("trying");
  if (!bar) {
    bar = element("div", { id: "trying", className: "card" });
    bar.append(
      element("h2", { textContent: words("trying") }),
      element("p", { id: "decision", className: "decision", role: "status" }),
      element("button", { type: "button", className: "quiet", textContent: words("back"), onclick: () => { stopTrying(); fillForm(state.asked); } }));
    $("person").before(bar);
  }
  bar.scrollIntoView();
  bar.querySelector("button").focus({ preventScroll: true });
  decideSoon();
}

function stopTrying() {
  state.trying = false;
  if ($("trying")) $("trying").remove();
  for (const field of state.fields) field.box.classList.remove("moved");
}

let soon;
function decideSoon() {
  clearTimeout(soon);
  soon = setTimeout(careful(async () => {
    if (!state.trying) return;
    const found = await ask("v1/decide", { rows: [readForm()] });
    const [{ decision, probabilities }] = found.decisions;
    const share = probabilities[found.classes.indexOf(decision)];
    if ($("decision")) $("decision").textContent = words("now_decides", { goal: classOf(decision), share: percent(share) });
  }), 200);
}

// --- Many rows ---

function readCsv(text) {
  const rows = [];
  let row = [], cell = "", quoted = false;
  text = text.replace(/^\uFEFF/, "");
  for (let at = 0; at < text.length; at++) {
    const letter = text[at];
    if (quoted) {
      if (letter !== '"') cell += letter;
      else if (text[at + 1] === '"') { cell += '"'; at++; }
      else quoted = false;
    } else if (letter === '"') quoted = true;
    else if (letter === ",") { row.push(cell); cell = ""; }
    else if (letter === "\n" || letter === "\r") {
      if (letter === "\r" && text[at + 1] === "\n") at++;
      row.push(cell); rows.push(row); row = []; cell = "";
    } else cell += letter;
  }
  if (cell || row.length) { row.push(cell); rows.push(row); }
  return rows.filter((each) => each.length > 1 || each[0] !== "");
}

function typed(feature, text) {
  if (["", "NA", "NaN", "null"].includes(text)) return null;
  const values = listedIn(feature);
  if (values) {
    const found = values.find((value) => String(value) === text);
    return found === undefined ? text : found;
  }
  return text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
}

const openCsv = careful(async (file) => {
  $("go").disabled = true;
  $("download").hidden = $("preview").hidden = true;
  $("done").textContent = "";
  const [header, ...lines] = readCsv(await file.text());
  const wanted = isPicture() ? pixelNames(state.schema.features[0]) : state.schema.features.map((feature) => feature.name);
  const missing = wanted.filter((name) => !(header || []).includes(name));
  if (missing.length) throw new Refused(words("missing_columns", { names: missing.slice(0, 5).join(", ") }));
  if (!lines.length) throw new Refused(words("empty_file"));
  const wrong = lines.findIndex((line) => line.length !== header.length);
  if (wrong >= 0) throw new Refused(words("ragged", { n: wrong + 2 }));
  const places = wanted.map((name) => header.indexOf(name));
  const features = wanted.map((name) => (isPicture() ? state.schema.features[0] : featureOf(name)));
  state.rows = lines.map((line) => Object.fromEntries(wanted.map((name, at) => [name, typed(features[at], line[places[at]])])));
  $("done").textContent = words("progress", { done: 0, all: number(state.rows.length) });
  $("go").disabled = false;
});

const askMany = careful(async () => {
  const all = state.rows.length, k = Number($("ways-many").value) || 1;
  const target = $("target-many").value === "" ? undefined : state.schema.label.classes[Number($("target-many").value)];
  state.records = [];
  state.stop = false;
  $("go").disabled = true;
  $("stop").hidden = $("progress").hidden = false;
  $("download").hidden = true;
  try {
    for (let start = 0; start < all && !state.stop;) {
      const rows = state.rows.slice(start, start + PART);
      try {
        const found = await ask("v1/explain", { rows, k, target });
        state.records.push(...found.answers);
        start += rows.length;
      } catch (error) {
        if (error.status === 429 && error.after && error.after < 120) {
          $("done").textContent = words("wait", { n: error.after });
          await sleep(error.after);
          continue;
        }
        error.message = error.message.replace(/row (\d+)/, (_, n) => `row ${start + Number(n)}`);
        throw error;
      }
      $("progress").value = start / all;
      $("done").textContent = words("progress", { done: number(start), all: number(all) });
    }
    const found = state.records.filter((record) => record.ways.length).length;
    $("done").textContent = state.stop ? words("stopped", { done: state.records.length }) : words("finished", { found, all });
  } finally {
    $("stop").hidden = $("progress").hidden = true;
    $("go").disabled = false;
    $("download").hidden = !state.records.length;
    showPreview();
  }
});

function csvRows() {
  const wanted = Object.keys(state.rows[0]);
  const head = ["row", "way", "status", "decision", "target", "probability", "effort", "plausibility", "stability", ...wanted];
  const lines = [head];
  state.records.forEach((record, at) => {
    const shared = [record.status, record.decision ?? "", record.target];
    if (!record.ways.length) lines.push([at + 1, "", ...shared, "", "", "", "", ...wanted.map((name) => state.rows[at][name] ?? "")]);
    record.ways.forEach((way, place) => lines.push([
      at + 1, place + 1, ...shared, way.probability, way.effort ?? "", way.plausibility ?? "", way.stability ?? "",
      ...wanted.map((name) => way.row[name] ?? ""),
    ]));
  });
  return lines;
}

// A text that a spreadsheet would take for a formula gets an apostrophe in front.
const csvCell = (value) => {
  let text = String(value);
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

const saveCsv = () => save("answers.csv", csvRows().map((line) => line.map(csvCell).join(",")).join("\r\n"), "text/csv");

function showPreview() {
  const first = state.records.slice(0, 20);
  const body = element("tbody");
  first.forEach((record, at) => {
    const goal = classOf(record.target);
    const text = record.ways.length && !isPicture()
      ? record.ways[0].changes.map((change) => `${labelOf(featureOf(change.column))} ${valueOf(featureOf(change.column), change.to)}`).join(", ")
      : record.ways.length ? percent(record.ways[0].probability) : ["already", "impossible"].includes(record.status) ? words(record.status, { goal }) : words("none", { goal });
    body.append(element("tr", {}, element("th", { scope: "row", textContent: at + 1 }), element("td", { textContent: goal }), element("td", { textContent: text })));
  });
  $("preview").replaceChildren(body);
  $("preview").hidden = !first.length;
}

// --- Start ---

function showWords() {
  showTexts();
  $("progress").setAttribute("aria-label", words("tab_many"));
  if (!state.schema) return;
  const about = state.about, signer = about.signature && about.signature.name;
  document.title = `${words("title")} · ${state.schema.name}`;
  $("table").textContent = state.schema.name;
  $("promise").textContent = [
    about.promise, signer ? words("signed", { name: signer }) : words("unsigned"), words(about.decided_by),
  ].join(" · ");
  document.querySelector(".promise").classList.toggle("none", about.statement.level === "none");
  $("meaning").textContent = about.meaning;
  $("ration").textContent = about.answers_a_day ? words("ration", { n: number(about.answers_a_day) }) : words("no_ration");
  $("statement").textContent = about.text;
  buildForm();
  showAnswers();
}

const load = careful(async () => {
  [state.schema, state.about] = await Promise.all([ask("v1/schema"), ask("v1/statement")]);
  $("key-form").hidden = true;
  $("example").hidden = !state.about.has_examples;
  showWords();
});

function choose(tab) {
  for (const name of ["one", "many"]) {
    const mine = name === tab;
    $(name).hidden = !mine;
    $(`tab-${name}`).setAttribute("aria-selected", String(mine));
    $(`tab-${name}`).tabIndex = mine ? 0 : -1;
  }
}

function begin() {
  beginLanguage(careful(async () => {
    stopTrying();
    showWords();
    if (state.answers && state.question.letter) await answer(state.question);
  }));
  for (const name of ["one", "many"]) {
    $(`tab-${name}`).addEventListener("click", () => choose(name));
    $(`tab-${name}`).addEventListener("keydown", (event) => {
      if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
      const other = name === "one" ? "many" : "one";
      choose(other);
      $(`tab-${other}`).focus();
    });
  }
  $("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem("key", $("key").value.trim());
    load();
  });
  $("person").addEventListener("submit", askOne);
  $("example").addEventListener("click", careful(async () => {
    stopTrying();
    fillForm(rounded((await ask("v1/example")).row));
  }));
  $("filter").addEventListener("input", () => {
    const wanted = $("filter").value.toLowerCase();
    for (const { feature, box } of state.fields) box.hidden = !labelOf(feature).toLowerCase().includes(wanted);
  });
  $("file").addEventListener("change", () => $("file").files[0] && openCsv($("file").files[0]));
  const drop = $("drop");
  for (const name of ["dragenter", "dragover"]) drop.addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
  for (const name of ["dragleave", "drop"]) drop.addEventListener(name, (event) => { event.preventDefault(); drop.classList.remove("over"); });
  drop.addEventListener("drop", (event) => event.dataTransfer.files[0] && openCsv(event.dataTransfer.files[0]));
  $("go").addEventListener("click", askMany);
  $("stop").addEventListener("click", () => { state.stop = true; });
  $("download").addEventListener("click", saveCsv);
  showWords();
  load();
}

document.addEventListener("DOMContentLoaded", begin);
