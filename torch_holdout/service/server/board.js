"use strict";
(() => {
  const seconds = 15, age = document.getElementById("age");
  let tag = null, seen = new Date();
  const refresh = async () => {
    if (document.hidden) return;
    try {
      const headers = tag ? {"If-None-Match": tag} : {};
      const answer = await fetch(location.pathname, {headers, cache: "no-store"});
      if (answer.status !== 200 && answer.status !== 304) throw new Error("no page");
      seen = new Date();
      age.textContent = "";
      if (answer.status === 304) return;
      tag = answer.headers.get("ETag");
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const old = document.querySelector("main"), now = page.querySelector("main");
      if (!now || now.innerHTML === old.innerHTML) return;
      const focused = document.activeElement?.id;
      document.title = page.title;
      old.replaceWith(document.adoptNode(now));
      if (focused) document.getElementById(focused)?.focus({preventScroll: true});
    } catch {
      age.textContent = `The server cannot be reached. Shown as of ${seen.toLocaleTimeString()}.`;
    }
  };
  setInterval(refresh, seconds * 1000);
  document.addEventListener("visibilitychange", refresh);
})();
