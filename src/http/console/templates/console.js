// Live updates and keys of the console. Every page works without this script.
"use strict";
(() => {
  const REFRESH_PAUSE_MS = 1000;
  const RETRY_PAUSE_MS = 5000;
  const STREAM_REFRESH_MS = 3000;
  const LIVE_TEXT_CHARACTERS = 20000;
  const ENDED = ["COMPLETE", "FAILED", "CANCELLED", "REJECTED"];

  const { stream, refresh } = document.body.dataset;
  const status = document.getElementById("live");
  const html = { createHTML: (text) => text };
  const policy = window.trustedTypes ? window.trustedTypes.createPolicy("console", html) : html;
  // What the server sent last, by part: what people open or type is no difference.
  const sent = new Map();
  let source = null;
  let timer = 0;
  let isReading = false;
  let isDue = false;
  let hasEnded = false;
  let lastRead = 0;

  const parts = (root) => [...root.querySelectorAll("[data-part]")];
  parts(document).forEach((part) => sent.set(part.id, part.innerHTML));

  function tell(text, isStale) {
    if (status.textContent === text) return;
    status.textContent = text;
    status.hidden = text === "";
    status.classList.toggle("stale", isStale);
  }

  // Whether a person is at work in a part, which must not change under the hands.
  function isInUse(part) {
    const focused = document.activeElement;
    if (focused && part.contains(focused) && focused.matches("input, textarea, select")) return true;
    const fields = [...part.querySelectorAll("textarea, input:not([type=hidden])")];
    if (fields.some((field) => field.value !== field.defaultValue || field.checked !== field.defaultChecked)) return true;
    const selection = document.getSelection();
    return !selection.isCollapsed && part.contains(selection.anchorNode);
  }

  // What tells a link or a button from the others of its part.
  function nameOf(control) {
    if (control.matches("a")) return control.getAttribute("href");
    return control.matches("form button") ? `${control.form.getAttribute("action")} ${control.value}` : null;
  }

  function replacePart(part, fresh) {
    const open = [...part.querySelectorAll("details")].map((details) => details.open);
    const scrolled = [...part.querySelectorAll("pre, .wide")].map((box) => [box.scrollTop, box.scrollLeft]);
    const focused = part.contains(document.activeElement) ? nameOf(document.activeElement) : null;
    sent.set(part.id, fresh.innerHTML);
    part.replaceChildren(...fresh.childNodes);
    part.querySelectorAll("details").forEach((details, at) => { details.open = open[at] || false; });
    part.querySelectorAll("pre, .wide").forEach((box, at) => {
      [box.scrollTop, box.scrollLeft] = scrolled[at] || [0, 0];
    });
    if (focused) [...part.querySelectorAll("a, button")].find((control) => nameOf(control) === focused)?.focus();
  }

  async function read() {
    if (isReading || document.hidden) { isDue = true; return; }
    [isReading, isDue, lastRead] = [true, false, Date.now()];
    try {
      const response = await fetch(location.href, { headers: { accept: "text/html" } });
      if (response.status === 401) {
        tell("Your session has ended: sign in again to see what is new.", true);
        stop();
        return;
      }
      if (!response.ok) throw new Error(String(response.status));
      const fresh = new DOMParser().parseFromString(policy.createHTML(await response.text()), "text/html");
      for (const part of parts(fresh)) {
        const shown = document.getElementById(part.id);
        if (shown && sent.get(part.id) !== part.innerHTML && !isInUse(shown)) replacePart(shown, part);
      }
      tell(hasEnded ? "" : "● live", false);
    } catch {
      tell(`Not live: no answer since ${new Date(lastRead).toLocaleTimeString()}`, true);
    } finally {
      isReading = false;
      if (isDue) schedule(REFRESH_PAUSE_MS);
    }
  }

  function schedule(pause) {
    if (timer || hasEnded) return;
    timer = setTimeout(async () => { timer = 0; await read(); keepOn(); }, pause);
  }

  function keepOn() {
    if (document.hidden || hasEnded) return;
    const pause = status.classList.contains("stale") ? RETRY_PAUSE_MS : stream ? STREAM_REFRESH_MS : Number(refresh) * 1000;
    if (pause > 0) schedule(pause);
  }

  function stop() {
    clearTimeout(timer);
    timer = 0;
    source?.close();
    source = null;
  }

  function readSoon() {
    clearTimeout(timer);
    timer = 0;
    schedule(Math.max(0, lastRead + REFRESH_PAUSE_MS - Date.now()));
  }

  const unseen = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
  const reveal = (text) => text.replace(unseen, (c) => `⟨U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);

  function addLiveText(text) {
    const place = document.getElementById("live-text");
    if (!place) return;
    const box = place.querySelector("pre");
    box.textContent = (box.textContent + reveal(text)).slice(-LIVE_TEXT_CHARACTERS);
    box.scrollTop = box.scrollHeight;
    place.hidden = false;
  }

  // One stream in the tab that is seen: browsers open six connections to a server.
  function follow() {
    if (!stream || source || hasEnded || document.hidden) return;
    document.querySelector("#live-text pre")?.replaceChildren();
    source = new EventSource(stream);
    source.addEventListener("open", () => tell("● live", false));
    source.addEventListener("token", (event) => addLiveText(JSON.parse(event.data).text));
    source.addEventListener("job-update", async (event) => {
      if (!ENDED.includes(JSON.parse(event.data).status)) return readSoon();
      stop();
      await read();
      hasEnded = true;
      tell("", false);
      document.getElementById("live-text")?.remove();
    });
    source.addEventListener("error", () => {
      if (source?.readyState !== EventSource.CLOSED) return;
      source = null;
      setTimeout(follow, RETRY_PAUSE_MS);
    });
  }

  document.addEventListener("visibilitychange", () => {
    if (!stream && !Number(refresh)) return;
    if (document.hidden) return stop();
    readSoon();
    follow();
  });
  if (stream || Number(refresh)) {
    follow();
    keepOn();
  }

  // Keys.
  const KEYS_OFF = "trellis-keys-off";
  const choice = document.getElementById("keys-on");
  choice.checked = localStorage.getItem(KEYS_OFF) === null;
  choice.addEventListener("change", () => {
    if (choice.checked) localStorage.removeItem(KEYS_OFF); else localStorage.setItem(KEYS_OFF, "1");
  });
  let isGoing = false;
  let row = -1;

  function moveRow(by) {
    const rows = [...document.querySelectorAll("table.rows tbody tr")];
    if (rows.length === 0) return;
    row = Math.min(Math.max(row + by, 0), rows.length - 1);
    rows.forEach((line, at) => line.classList.toggle("current", at === row));
    rows[row].querySelector("a")?.focus();
  }

  document.addEventListener("keydown", (event) => {
    if (!choice.checked || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, textarea, select")) return;
    const follow = (selector) => document.querySelector(selector)?.click();
    if (isGoing) {
      isGoing = false;
      return follow(`header nav a[data-key="${CSS.escape(event.key)}"]`);
    }
    switch (event.key) {
      case "g": isGoing = true; break;
      case "j": moveRow(1); break;
      case "k": moveRow(-1); break;
      case "x": document.querySelector("tr.current input[type=checkbox]")?.click(); break;
      case "[": follow("a[rel=prev]"); break;
      case "]": follow("a[rel=next]"); break;
      case "/": event.preventDefault(); document.getElementById("search")?.focus(); break;
      case "?": document.getElementById("keys").open = true; document.querySelector("#keys summary").focus(); break;
    }
  });
})();
