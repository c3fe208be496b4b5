"use strict";
// What a browser alone can do: the key, the language, tabs, pictures and files. All else comes from the service, by htmx.

const PART = 100; // rows of one request of the batch
const $ = (id) => document.getElementById(id);
const on = (name, work) => document.addEventListener(name, work);
const key = () => sessionStorage.getItem("key");
const language = () => $("language").value;
const headers = () => ({ "Accept-Language": language(), ...(key() && { Authorization: `Bearer ${key()}` }) });
let table = [], stopped = false;

function trouble(text) {
  $("trouble").hidden = !text;
  $("trouble").textContent = text;
  if (text) $("trouble").scrollIntoView({ block: "nearest" });
}

function refused(status, text) {
  if (status === 401) {
    $("key-form").hidden = false;
    return trouble($("trouble").dataset[key() ? "wrong" : "key"]);
  }
  const { title, detail } = JSON.parse(text);
  trouble([title, detail].filter(Boolean).join(": "));
}

function choose(name) {
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const mine = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", mine);
    tab.tabIndex = mine ? 0 : -1;
    $(tab.getAttribute("aria-controls")).hidden = !mine;
  }
}

// The service makes a form of a picture that has the size of those of the veil.
async function readPicture(input) {
  const width = Number(input.dataset.width), height = Number(input.dataset.height);
  const context = new OffscreenCanvas(width, height).getContext("2d");
  context.drawImage(await createImageBitmap(input.files[0]), 0, 0, width, height);
  const colours = context.getImageData(0, 0, width, height).data.join(",");
  htmx.ajax("POST", "page/fill", { target: "#fill", swap: "outerHTML", values: { colours } });
}

const send = (path, choices, rows) =>
  fetch(`page/${path}?${new URLSearchParams(choices)}`, { method: "POST", headers: headers(), body: rows.join("\n") });

async function openFile(file) {
  $("go").disabled = $("download").hidden = $("preview").parentNode.hidden = true;
  $("done").textContent = "";
  trouble("");
  table = (await file.text()).replace(/^\uFEFF/, "").match(/(?:"[^"]*"?|[^"\r\n])+/g) || [];
  const response = await send("columns", { rows: Math.max(0, table.length - 1) }, table.slice(0, 1));
  if (!response.ok) return refused(response.status, await response.text());
  $("done").textContent = (await response.json()).done;
  $("go").disabled = false;
}

async function askMany() {
  const answers = [], rows = table.length - 1, choices = { k: $("ways-many").value, target: $("target-many").value, rows };
  let start = 0, found = 0;
  stopped = false;
  trouble("");
  $("go").disabled = $("download").hidden = true;
  $("stop").hidden = $("progress").hidden = false;
  $("preview").replaceChildren();
  while (start < rows && !stopped) {
    const part = table.slice(1 + start, 1 + start + PART);
    const response = await send("rows", { ...choices, start, found }, [table[0], ...part]);
    const text = await response.text(), wait = Number(response.headers.get("Retry-After"));
    if (response.ok) {
      const content = JSON.parse(text);
      answers.push(content.answers);
      if (!start) $("preview").innerHTML = content.preview;
      [start, found] = [start + part.length, content.found];
      $("progress").value = start / rows;
      $("done").textContent = content.done;
    } else if (response.status === 429 && wait && wait < 120) {
      $("done").textContent = JSON.parse(text).title;
      await new Promise((go) => setTimeout(go, 1000 * wait));
    } else {
      refused(response.status, text);
      break;
    }
  }
  $("stop").hidden = $("progress").hidden = true;
  $("go").disabled = false;
  $("download").hidden = $("preview").parentNode.hidden = !answers.length;
  $("download").href = URL.createObjectURL(new Blob(answers, { type: "text/csv" }));
}

const careful = (work) => work.catch((error) => {
  trouble(error instanceof TypeError ? $("trouble").dataset.offline : error.message);
  console.error(error);
});

on("htmx:configRequest", ({ detail }) => {
  Object.assign(detail.headers, headers());
  if (document.querySelector(".promise [open]")) detail.parameters.promise = "open";
});
on("htmx:beforeRequest", ({ detail: { target } }) => {
  trouble("");
  if (target.id === "result") target.replaceChildren();
});
on("htmx:afterSwap", () => { document.documentElement.lang = language(); });
on("htmx:sendError", () => trouble($("trouble").dataset.offline));
on("htmx:responseError", ({ detail: { xhr } }) => refused(xhr.status, xhr.responseText));
on("submit", (event) => {
  event.preventDefault();
  if (event.target.id !== "key-form") return;
  sessionStorage.setItem("key", $("key").value.trim());
  htmx.ajax("POST", "page/body", { target: "body", swap: "innerHTML" });
});
on("change", ({ target }) => {
  if (target.id === "language") {
    localStorage.setItem("language", target.value);
    if (!$("person")) location.search = `?language=${target.value}`;
  } else if (target.dataset.empties) $(target.dataset.empties).disabled = target.checked;
  else if (target.id === "file" && target.files[0]) careful(openFile(target.files[0]));
  else if (target.dataset.width && target.files[0]) careful(readPicture(target));
});
on("input", ({ target }) => {
  for (const field of target.id === "filter" ? document.querySelectorAll(".field") : [])
    field.hidden = !field.querySelector("label").textContent.toLowerCase().includes(target.value.toLowerCase());
});
on("click", ({ target }) => {
  if (target.role === "tab") choose(target.id.slice(4));
  else if (target.id === "go") careful(askMany());
  else if (target.id === "stop") stopped = true;
  else if ("print" in target.dataset) print();
});
on("keydown", (event) => {
  if (event.target.role !== "tab" || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
  const other = document.querySelector("[role=tab][aria-selected=false]");
  choose(other.id.slice(4));
  other.focus();
});
on("DOMContentLoaded", () => {
  const chosen = localStorage.getItem("language");
  if (chosen && chosen !== language()) location.search = `?language=${chosen}`;
});
