// No list of people stays on this device where nobody is signed in, or there is no list any more;
// and where nobody is signed in, no tick but those that were not sent. This is about the programme
// that this page belongs to, or about all where it belongs to none.
"use strict";
{
  const { root } = document.documentElement.dataset;
  const old = (name) => (root ? name === `record${root}` : name.startsWith("record"));
  if ("caches" in window) caches.keys().then((names) => names.filter(old).forEach((name) => caches.delete(name)));
  const ours = (name) => name.startsWith("prefermab ticks of ") && (!root || name.endsWith(` in ${root}`));
  const signedIn = document.querySelector("form.who");
  for (const name of signedIn ? [] : Object.keys(localStorage).filter(ours)) {
    let ticks = [];
    try {
      ticks = JSON.parse(localStorage.getItem(name)) || [];
    } catch {
      // nothing that could be sent
    }
    const left = ticks.filter((tick) => !["sent", "late"].includes(tick.state));
    if (left.length) localStorage.setItem(name, JSON.stringify(left));
    else localStorage.removeItem(name);
  }
}
