// The page "Record": every tick is sent at once, or kept on this device until there is a connection.
"use strict";
(() => {
  const page = document.getElementById("record");
  if (!page) return;
  const { round, attempt, user } = page.dataset;
  const { root } = document.documentElement.dataset;
  const made = Number(page.dataset.made);
  const PLACE = `prefermab ticks of ${user}${root && ` in ${root}`}`;
  const bar = document.getElementById("bar");
  document.documentElement.classList.add("js");

  // Ticks in the order in which they were made. state: waiting, sent, late,
  // conflict or refused.
  let ticks = [];
  const known = new Set();
  let sending = false;
  let problem = "";

  function load() {
    try {
      return JSON.parse(localStorage.getItem(PLACE)) || [];
    } catch {
      return [];
    }
  }

  // Another window of this page may have added ticks meanwhile.
  function takeIn() {
    const name = (tick) => `${tick.round} ${tick.at} ${tick.id}`;
    for (const tick of ticks) known.add(name(tick));
    const added = load().filter((tick) => !known.has(name(tick)));
    for (const tick of added) known.add(name(tick));
    ticks = [...ticks, ...added].sort((one, other) => one.at - other.at);
  }

  function save() {
    takeIn();
    try {
      localStorage.setItem(PLACE, JSON.stringify(ticks));
      return true;
    } catch {
      return false;
    }
  }

  // A page from the server already has all ticks that were sent before it was made.
  takeIn();
  ticks = ticks.filter((tick) => tick.state !== "sent" || (tick.round === round && tick.at > made));
  save();

  function formOf(id) {
    return [...page.querySelectorAll("form[data-person]")].find((form) => form.dataset.person === id);
  }

  function lastOf(id) {
    return ticks.findLast((tick) => tick.id === id && tick.round === round);
  }

  function word(tick) {
    return tick.what === "other" ? `${tick.action} (${tick.why})` : tick.what;
  }

  function button(text, act) {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", act);
    return made;
  }

  // ── what is shown ────────────────────────────────────────────────────────────────────────────
  function showPerson(form) {
    const tick = lastOf(form.dataset.person);
    if (!tick) return;
    const box = form.querySelector(".state");
    for (const choice of form.querySelectorAll("input[name=what]")) {
      choice.checked = choice.value === tick.what;
    }
    if (tick.what === "other") {
      form.elements.action.value = tick.action;
      form.elements.why.value = tick.why;
    }
    form.querySelector("[value=open]").hidden = tick.what === "open";
    form.closest("li").classList.toggle("done", tick.what !== "open");
    const messages = {
      waiting: "Kept on this device, not sent yet.",
      sent: tick.what === "open" ? "Taken back." : "Saved.",
      late: `Sent: ${tick.detail}`,
      refused: `Not saved: ${tick.detail}`,
      conflict: "",
    };
    box.replaceChildren(messages[tick.state]);
    box.classList.toggle("bad", tick.state === "refused" || tick.state === "conflict");
    if (tick.state === "conflict") showConflict(box, tick);
  }

  function showConflict(box, tick) {
    const theirs = tick.theirs;
    box.append(`${theirs.who} recorded meanwhile: ${word(theirs)}. You: ${word(tick)}. `);
    const mine = button("Use mine", () => {
      Object.assign(tick, { state: "waiting", seen: String(theirs.at), now: true });
      changed();
    });
    const keep = button("Keep theirs", () => {
      Object.assign(tick, theirs, { id: tick.id, state: "sent", seen: String(theirs.at) });
      changed();
    });
    box.append(keep, " ", mine);
  }

  function showBar() {
    const of = (state) => ticks.filter((tick) => tick.state === state).length;
    const waiting = of("waiting");
    const parts = [];
    if (waiting) parts.push(`${waiting} not sent yet`);
    if (of("conflict")) parts.push(`${of("conflict")} to decide`);
    if (of("refused")) parts.push(`${of("refused")} not saved`);
    bar.replaceChildren(parts.join(", ") || "Everything is sent.");
    if (problem === "sign in") {
      const link = document.createElement("a");
      link.href = `${root}/sign-in?next=/record`;
      link.textContent = "Sign in to send them";
      bar.append(": ", link);
    } else if (waiting && problem) {
      bar.append(`: ${problem}`);
    }
    const alone = (tick) => tick.state === "refused" && !(tick.round === round && formOf(tick.id));
    const late = ticks.filter((tick) => tick.state === "late" || alone(tick));
    for (const tick of late) bar.append(` ${tick.id} ${word(tick)}, round ${tick.round}: ${tick.detail} `);
    if (late.length) {
      bar.append(button("Understood", () => {
        ticks = ticks.filter((tick) => !late.includes(tick));
        changed();
      }));
    }
    bar.classList.toggle("warn", Boolean(parts.length || late.length));
    bar.hidden = "empty" in page.dataset && !parts.length && !late.length;
    const total = page.querySelectorAll("li.person").length;
    const done = page.querySelectorAll("li.person.done").length;
    const meter = document.getElementById("progress");
    if (meter && meter.dataset.whole) {
      meter.value = done;
      document.getElementById("count").textContent = `${done} of ${total}`;
    }
  }

  function show() {
    page.querySelectorAll("form[data-person]").forEach(showPerson);
    showBar();
  }

  function changed() {
    if (!save()) problem = "this device cannot keep them, so do not close this page";
    show();
    send();
  }

  // ── ticking ──────────────────────────────────────────────────────────────────────────────────
  function tick(form, what) {
    const fields = form.elements;
    const id = form.dataset.person || fields.id.value;
    const other = what === "other";
    ticks.push({
      id, round, attempt, what, at: Date.now() / 1000, state: "waiting",
      action: other ? fields.action.value : "",
      why: other ? fields.why.value.trim() : "",
      seen: (lastOf(id) || {}).seen ?? (fields.seen ? fields.seen.value : ""),
    });
    changed();
  }

  page.addEventListener("change", (event) => {
    const form = event.target.form;
    if (event.target.name !== "what" || !form) return;
    form.elements.why.required = event.target.value === "other";
    if (event.target.value === "other") form.elements.action.focus();
    else tick(form, event.target.value);
  });

  page.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.getAttribute("action") !== `${root}/record/mark`) return;
    event.preventDefault();
    const taken = event.submitter && event.submitter.name === "what" ? event.submitter.value : "";
    const chosen = form.querySelector("input[name=what]:checked, input[type=hidden][name=what]");
    if (!taken && !chosen) return;
    tick(form, taken || chosen.value);
    if (!form.dataset.person) form.reset();
  });

  // ── sending ──────────────────────────────────────────────────────────────────────────────────
  async function send() {
    if (sending) return;
    sending = true;
    problem = "";
    let next;
    while (!problem && (next = ticks.find((one) => one.state === "waiting"))) await sendOne(next);
    sending = false;
    save();
    show();
  }

  function parsed(text) {
    try {
      return Object(JSON.parse(text));
    } catch {
      return {};
    }
  }

  async function sendOne(one) {
    const fields = { id: one.id, round: one.round, attempt: one.attempt ?? "", what: one.what, action: one.action, why: one.why };
    const body = new URLSearchParams({ ...fields, seen: one.seen, at: one.now ? "" : one.at });
    let answer;
    let reply;
    try {
      answer = await fetch(`${root}/record/mark`, { method: "POST", body, headers: { accept: "application/json" } });
      reply = parsed(await answer.text());
    } catch {
      problem = "no connection";
      return;
    }
    if (answer.status === 401) problem = "sign in";
    else if (answer.status >= 500 || answer.status === 429) problem = "the server is busy";
    // Only the service's own answer counts: the sign-in page of a network may answer with 200 too.
    else if (!((answer.ok ? "mark" : "detail") in reply)) problem = "the service did not answer";
    if (problem) return;
    if (answer.ok) {
      one.state = reply.late ? "late" : "sent";
      one.detail = reply.late;
      one.seen = reply.mark ? String(reply.mark.at) : "";
      const later = ticks.filter((tick) => tick !== one && tick.id === one.id && tick.round === one.round);
      for (const tick of later) if (tick.state === "waiting") tick.seen = one.seen;
      ticks = ticks.filter((tick) => tick === one || !later.includes(tick) || tick.state !== "sent");
    } else {
      one.state = reply.theirs ? "conflict" : "refused";
      one.theirs = reply.theirs;
      one.detail = reply.detail || "the server refused it.";
    }
    save();
  }

  // ── without a connection ─────────────────────────────────────────────────────────────────────
  async function keepPage() {
    if (!("serviceWorker" in navigator) || location.search || "empty" in page.dataset) return;
    const url = `${root}/sw.js`;
    const policy = window.trustedTypes?.createPolicy("sw", { createScriptURL: () => url });
    await navigator.serviceWorker.register(policy ? policy.createScriptURL(url) : url, { scope: `${root}/record` });
    const cache = await caches.open(`record${root}`);
    const files = [...document.querySelectorAll("script[src], link[href]")].map((one) => one.src || one.href);
    const wanted = [`${root}/record`, ...files].map((one) => new URL(one, location).href);
    for (const one of wanted) if (!(await cache.match(one))) await cache.add(one);
    for (const old of await cache.keys()) if (!wanted.includes(old.url)) await cache.delete(old);
    page.dataset.kept = "yes";
  }

  window.addEventListener("online", send);
  document.addEventListener("visibilitychange", () => document.hidden || send());
  window.addEventListener("storage", (event) => {
    if (event.key !== PLACE) return;
    takeIn();
    show();
  });
  setInterval(() => ticks.some((one) => one.state === "waiting") && send(), 15000);
  keepPage().catch(() => {});
  changed();
})();
