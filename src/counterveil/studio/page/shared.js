"use strict";
// What the pages of the service and of the studio share: words, elements, requests, and what is refused.

const $ = (id) => document.getElementById(id);

let language = "en";
const words = (name, values = {}) =>
  (WORDS[language][name] ?? name).replace(/\{(\w+)\}/g, (_, key) => values[key]);
const number = (value, digits = 4) =>
  new Intl.NumberFormat(language, { maximumSignificantDigits: Math.max(digits, `${Math.trunc(value)}`.length) }).format(value);

function element(tag, options = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name in made && name !== "list") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const fact = (name, text) => element("div", {}, element("dt", { textContent: name }), element("dd", { textContent: text }));

function showTexts() {
  document.documentElement.lang = language;
  for (const each of document.querySelectorAll("[data-words]")) each.textContent = words(each.dataset.words);
}

function beginLanguage(changed) {
  language = localStorage.getItem("language") || (navigator.language.startsWith("de") ? "de" : "en");
  $("language").value = language;
  $("language").addEventListener("change", () => {
    language = $("language").value;
    localStorage.setItem("language", language);
    changed();
  });
}

function save(name, content, kind) {
  const address = URL.createObjectURL(new Blob([content], { type: kind }));
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

class Refused extends Error {}

// The response and its JSON; a request without a body is a GET.
async function send(path, token, body) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const options = { headers };
  if (body !== undefined) {
    options.method = "POST";
    headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const response = await fetch(path, options).catch(() => { throw new Refused(words("offline")); });
  const content = await response.json().catch(() => ({ title: words("offline") }));
  return [response, content];
}

function trouble(error) {
  $("trouble").hidden = !error;
  $("trouble").textContent = error ? error.message : "";
  if (!error) return;
  $("trouble").scrollIntoView({ block: "nearest" });
  if (!(error instanceof Refused)) console.error(error);
}

const careful = (work) => async (event) => {
  if (event && event.type === "submit") event.preventDefault();
  trouble(null);
  try {
    await work(event);
  } catch (error) {
    trouble(error);
  }
};

const sleep = (seconds) => new Promise((go) => setTimeout(go, 1000 * seconds));
