"use strict";
// What the pages of the service and of the studio share: words, elements, and what is refused.

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

class Refused extends Error {}

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
