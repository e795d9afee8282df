// After signing out, no list of people stays on this device: none of the programme
// that this page belongs to, or none at all where it belongs to no programme.
"use strict";
{
  const { root } = document.documentElement.dataset;
  const old = (name) => (root ? name === `record${root}` : name.startsWith("record"));
  if ("caches" in window) caches.keys().then((names) => names.filter(old).forEach((name) => caches.delete(name)));
}
