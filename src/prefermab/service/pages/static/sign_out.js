// Before signing out: ticks that were not sent stay on this device, so the user is asked first.
"use strict";
document.querySelector("form.who")?.addEventListener("submit", (event) => {
  const { root } = document.documentElement.dataset;
  const place = `prefermab ticks of ${event.target.dataset.user}${root && ` in ${root}`}`;
  let ticks = [];
  try {
    ticks = JSON.parse(localStorage.getItem(place)) || [];
  } catch {
    return;
  }
  const left = ticks.filter((tick) => !["sent", "late"].includes(tick.state)).length;
  const one = left === 1;
  const question = `${left} of your ticks ${one ? "is" : "are"} not sent. ${one ? "It stays" : "They stay"} on this ` +
    "device, where others may read the reasons, until you sign in here again and send them. Sign out anyway?";
  if (left && !confirm(question)) event.preventDefault();
});
