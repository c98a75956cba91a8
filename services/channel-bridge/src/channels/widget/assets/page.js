// The conversation of a visitor. Texts are inserted as text only.
"use strict";

const base = location.pathname.replace(/\/$/, "");
const storageKey = "holdfast:" + base;
const element = (id) => document.getElementById(id);
const shown = new Map();
let token = null;
let after = 0;
let failures = 0;

function stored() {
  try { return localStorage.getItem(storageKey); } catch { return null; }
}

function store(value) {
  try { localStorage.setItem(storageKey, value); } catch { /* the token lasts as long as the page */ }
}

function say(text) {
  element("state").textContent = text;
}

function call(path, options = {}) {
  const headers = { "content-type": "application/json" };
  if (token) headers.authorization = "Bearer " + token;
  return fetch(base + "/" + path, { ...options, headers });
}

function show(key, text, isOwn) {
  let line = shown.get(key);
  if (!line) {
    line = document.createElement("p");
    line.className = isOwn ? "message own" : "message";
    line.textContent = text;
    element("messages").append(line);
    shown.set(key, line);
    line.scrollIntoView({ block: "end" });
  }
  return line;
}

function take(data) {
  for (const message of data.messages) {
    after = Math.max(after, message.seq);
    show(message.key, message.text, message.from_visitor).classList.remove("unsent");
    if (!message.from_visitor) say("");
  }
}

async function begin() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const [user, signature, time] = ["user", "signature", "time"].map((name) => fragment.get(name));
  const body = { token: stored(), user, signature, time };
  const response = await call("session", { method: "POST", body: JSON.stringify(body) });
  const answer = await response.json();
  if (!response.ok) throw Object.assign(new Error(answer.error), { isFinal: response.status === 403 });
  token = answer.token;
  store(token);
  document.title = answer.title;
  element("title").textContent = answer.title;
  if (answer.greeting) show("greeting", answer.greeting, false);
  element("text").disabled = element("send").disabled = false;
}

// Reads server-sent events with a header, which `EventSource` cannot send.
async function listen() {
  const response = await call("events?after=" + after);
  if (response.status === 401) { token = null; throw new Error("the session has ended"); }
  if (!response.ok) throw new Error("not connected");
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  failures = 0;
  say("");
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer += value;
    let end;
    while ((end = buffer.indexOf("\n\n")) >= 0) {
      const event = buffer.slice(0, end).split("\n");
      buffer = buffer.slice(end + 2);
      const data = event.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (event.includes("event: typing")) say("…");
      else if (data) take(JSON.parse(data));
    }
  }
}

async function run() {
  for (;;) {
    try {
      if (!token) await begin();
      await listen();
    } catch (error) {
      if (error.isFinal) return say(error.message);
      say("Connecting again …");
      failures += 1;
    }
    const wait = Math.min(30000, 500 * 2 ** Math.min(failures, 6));
    await new Promise((resume) => setTimeout(resume, wait * (0.5 + Math.random() / 2)));
  }
}

// A message keeps its key, so that sending it again changes nothing.
async function send(key, text) {
  const line = show(key, text, true);
  line.classList.add("unsent");
  for (let tries = 0; tries < 8; tries += 1) {
    try {
      const response = await call("messages", { method: "POST", body: JSON.stringify({ key, text }) });
      if (response.ok) return line.classList.remove("unsent");
      const answer = await response.json();
      say(answer.error);
      if (response.status < 500 && response.status !== 429) return;
    } catch {
      say("Not sent yet, trying again …");
    }
    await new Promise((resume) => setTimeout(resume, 1000 * 2 ** tries));
  }
}

element("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = element("text").value.trim();
  if (!text || !token) return;
  element("text").value = "";
  send(crypto.randomUUID ? crypto.randomUUID() : String(Math.random()).slice(2) + Date.now(), text);
});

element("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey) {
    event.preventDefault();
    element("form").requestSubmit();
  }
});

run();
