"use strict";
// What a browser alone can do: the token, what changes while a person types, files. All else comes from the studio, by htmx.

const $ = (id) => document.getElementById(id);
const on = (name, work, first = false) => document.addEventListener(name, work, first);
const language = () => $("language").value;
const headers = () => ({
  "Accept-Language": language(),
  Authorization: `Bearer ${sessionStorage.getItem("studio-token")}`,
});

const asked = new URLSearchParams(location.search).get("token");
if (asked !== null) {
  sessionStorage.setItem("studio-token", asked);
  history.replaceState(null, "", location.pathname);
}

function trouble(text) {
  $("trouble").hidden = !text;
  $("trouble").textContent = text;
  if (text) $("trouble").scrollIntoView({ block: "nearest" });
}

function refused(status, text) {
  if (status === 401) return trouble($("trouble").dataset.key);
  const { title, detail, place } = JSON.parse(text);
  trouble(detail || title);
  if (status === 409 && $("replace-label")) $("replace-label").hidden = false;
  const card = place && document.querySelector(`[data-place="${place}"]`);
  if (card) card.querySelector(":is(input:not([type=hidden]), select, textarea):not(:disabled)").focus();
}

// --- The cards of a schema ---

const waits = (card) => [...card.querySelectorAll("[data-limit][placeholder]")].some((field) => !field.value.trim());

function count() {
  if (!$("columns")) return;
  let all = 0, n = 0;
  for (const card of $("columns").children) {
    const columns = Number(card.dataset.columns || 1);
    all += columns;
    if (card.classList.contains("sure")) n += columns;
  }
  $("confirmed").textContent = $("confirmed").dataset.words.replace("{n}", n).replace("{all}", all);
}

// What is typed wants to be confirmed; `anew`: something that was confirmed is another one now.
function mark(card, anew) {
  const box = card.querySelector("[id$='-sure']"), open = waits(card), read = card.querySelector("[data-read]");
  if (box) {
    box.disabled = open;
    if (open || anew) box.checked = false;
    card.querySelector(".read").classList.toggle("replaced", !open);
    if (read) read.textContent = read.dataset[open ? "read" : "replaced"];
  }
  const sure = box ? box.checked : /^\s*0\W+1\s*$/.test($("bits").value);
  card.classList.toggle("sure", sure);
  card.classList.toggle("open", !sure);
  count();
}

function leave(button) {
  const card = button.closest(".column"), others = document.querySelectorAll(".column:not([data-place=l])");
  if (others.length === 1) return trouble(button.dataset.leave);
  card.remove();
  count();
  $("columns").dispatchEvent(new Event("change"));
  $("confirmed").scrollIntoView({ block: "nearest" });
}

// --- What changes while a person types ---

on("input", ({ target }) => {
  const card = target.closest(".column");
  if (card && ("limit" in target.dataset || target.id === "bits")) mark(card, "limit" in target.dataset);
  if (target.id !== "slider") return;
  $("exactly").value = target.dataset.values.split(" ")[target.value];
  target.setAttribute("aria-valuetext", `ε = ${Number($("exactly").value).toLocaleString(language())}`);
}, true);

on("change", ({ target }) => {
  const card = target.closest(".column");
  if (card) mark(card, /-(kind|missing)$/.test(target.id));
  if ($("walk") && target.closest("#step-2")) $("walk").dataset.unsaved = "";
  if (target.id === "language") {
    localStorage.setItem("language", target.value);
    if (!$("walk")) location.search = `?language=${target.value}`;
  } else if (target.id === "label") {
    for (const box of document.querySelectorAll("#uses input")) box.parentElement.hidden = box.id === `use-${target.value}`;
  } else if (target.id === "unit") $("records-label").hidden = !target.value;
  else if (target.id === "exactly") {
    const values = $("slider").dataset.values.split(" ").map(Number), at = values.findIndex((each) => each >= Number(target.value));
    $("slider").value = at < 0 ? values.length - 1 : at;
    $("slider").setAttribute("aria-valuetext", `ε = ${Number(target.value).toLocaleString(language())}`);
  } else if (target.closest("#fairness-groups")) $("fairness").disabled = !document.querySelector("#fairness-groups :checked") || !!$("fairness-bar");
}, true);

on("click", async ({ target }) => {
  const { dataset } = target;
  if ("leave" in dataset) leave(target);
  else if (target.id === "copy") {
    await navigator.clipboard.writeText($("serve").textContent);
    $("copied").textContent = dataset.copied;
  } else if (dataset.download) {
    const body = new URLSearchParams({ file: dataset.download });
    const answer = await fetch("page/download", { method: "POST", headers: headers(), body });
    if (!answer.ok) return refused(answer.status, await answer.text());
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await answer.blob());
    link.download = dataset.download;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
});

on("htmx:configRequest", ({ detail }) => Object.assign(detail.headers, headers()));
on("htmx:beforeRequest", ({ detail: { target } }) => {
  if (target.id === "plan") target.setAttribute("aria-busy", "true");
});
on("htmx:afterSwap", ({ detail: { target } }) => {
  document.documentElement.lang = language();
  if (target.id === "plan") {
    target.removeAttribute("aria-busy");
    trouble("");
  }
  count();
  if (!$("trouble").hidden) $("trouble").scrollIntoView({ block: "nearest" });
});
on("htmx:sendError", () => trouble($("trouble").dataset.offline));
on("htmx:responseError", ({ detail: { xhr } }) => refused(xhr.status, xhr.responseText));
on("submit", (event) => event.preventDefault());
addEventListener("beforeunload", (event) => {
  if ($("walk") && "unsaved" in $("walk").dataset) event.preventDefault();
});
on("DOMContentLoaded", () => {
  const chosen = localStorage.getItem("language");
  if (chosen && chosen !== language()) location.search = `?language=${chosen}`;
});
