// Who is not signed in any more leaves no list of people behind on this device.
"use strict";
if ("caches" in window) caches.delete("record");
