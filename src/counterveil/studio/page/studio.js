"use strict";
// What all steps of the studio share: requests with the token, long work, and the walk; helpers: shared.js.

const STEPS = 7;
const SECONDS_BETWEEN_LOOKS = 0.4;
const state = {
  step: 1, about: null, file: null, columns: [], // the table
  schema: null, marked: new Set(), confirmed: new Set(), leftOut: {}, typed: new Map(), oneByOne: false, schemaFile: null, dirty: false, // its schema
  plans: new Map(), plan: null, account: null, epsilon: 0.75, turn: 0, // what ε buys
  releaseId: null, released: null, veil: null, answers: null, busy: false,
  audit: null, attack: null, actions: null, fairness: null, report: null, // what was checked, and the report that is read
};

// --- Words and numbers ---

const percent = (share) => new Intl.NumberFormat(language, { style: "percent", maximumSignificantDigits: 2 }).format(share);
// A difference of decimals, without the dust of binary fractions.
const minus = (one, other) => Number((one - other).toPrecision(12));

// --- Requests ---

async function ask(path, body) {
  const [response, content] = await send(`v1/${path}`, sessionStorage.getItem("studio-token"), body);
  if (response.status === 401) throw refusal({ status: 401, detail: words("no_token") });
  if (!response.ok) throw refusal(content);
  return content;
}

function refusal(problem) {
  const refused = new Refused(problem.detail || problem.title);
  refused.status = problem.status;
  return refused;
}

// Waits for a job and returns its result; a studio that does not answer for a while is asked again.
async function follow(job, told) {
  while (job.state === "running") {
    told(job);
    await sleep(SECONDS_BETWEEN_LOOKS);
    try {
      job = await ask(`jobs/${job.id}`);
    } catch (error) {
      if (error.status) throw error;
      trouble(error);
      await sleep(2);
    }
  }
  if (job.state === "failed") throw refusal(job.problem);
  trouble(null);
  return job.result;
}

// Runs `work` with these buttons off, so that a second click does nothing.
async function alone(buttons, work) {
  for (const button of buttons) button.disabled = true;
  try {
    return await work();
  } finally {
    for (const button of buttons) button.disabled = false;
  }
}

// --- The walk ---

const reachable = {
  1: () => true,
  2: () => state.schema !== null,
  3: () => state.schemaFile !== null && !state.dirty && state.file !== null,
  4: () => reachable[3]() && (state.plan !== null || state.released !== null),
  5: () => state.veil !== null,
  6: () => state.about !== null,
  7: () => state.about !== null && state.about.veils.length > 0,
};

function showSteps() {
  $("walk").setAttribute("aria-label", words("steps"));
  $("steps").replaceChildren();
  for (let step = 1; step <= STEPS; step++) {
    const button = element("button", { type: "button", disabled: !reachable[step](), onclick: () => go(step) },
      element("span", { className: "count", textContent: step }), element("span", { className: "name", textContent: words(`step_${step}`) }));
    if (step === state.step) button.setAttribute("aria-current", "step");
    $("steps").append(element("li", {}, button));
  }
}

function go(step) {
  state.step = step;
  trouble(null);
  for (let each = 1; each <= STEPS; each++) $(`step-${each}`).hidden = each !== step;
  $("reports").hidden = step < 5;
  showSteps();
  show(step);
  window.scrollTo(0, 0);
  $(`head-${step}`).focus({ preventScroll: true });
}

function showWords() {
  showTexts();
  document.title = `counterveil studio: ${words("title")}`;
  showSteps();
  show(state.step);
}
