// Opens the page "Record" without a connection: its last copy, and the files that it needs.
"use strict";
const ROOT = self.location.pathname.slice(0, -"/sw.js".length);
const CACHE = `record${ROOT}`;

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  if (event.request.method !== "GET" || url.origin !== self.location.origin) return;
  if (event.request.mode === "navigate" && url.pathname === `${ROOT}/record` && !url.search) {
    event.respondWith(newest(event.request));
  } else if (url.pathname.startsWith("/static/")) {
    event.respondWith(kept(event.request));
  }
});

// The server's answer, of which a copy is kept; without an answer, the last copy.
async function newest(request) {
  const cache = await caches.open(CACHE);
  try {
    const answer = await fetch(request);
    if (answer.ok && answer.type === "basic") await cache.put(`${ROOT}/record`, answer.clone());
    return answer;
  } catch (error) {
    const copy = await cache.match(`${ROOT}/record`);
    if (copy) return copy;
    throw error;
  }
}

// The address of a static file changes with the file: a copy never goes out of date.
async function kept(request) {
  const copy = await (await caches.open(CACHE)).match(request.url);
  return copy || fetch(request);
}
