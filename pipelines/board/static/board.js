// Keeps a board page fresh without moving what a person looks at, and says when it cannot.
// Everything works without it; pages are made on the server.
"use strict";
(() => {
  const every = Number(document.body.dataset.refresh) * 1000;
  const lost = document.getElementById("connection");
  const pause = document.getElementById("pause");
  const mine = document.querySelector("button.mine");
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  let etag = null;
  let good = new Date();
  let isPaused = false;
  let isBusy = false;

  if (mine && zone) {
    mine.value = zone;
    const shown = [...mine.form.querySelectorAll("button[name=zone]")].find((b) => b !== mine && b.value === zone);
    if (!shown) {
      mine.hidden = false;
      mine.title = zone;
    }
  }

  const placeOf = (region, node) => {
    if (!node || !region.contains(node)) return null;
    if (node.id) return { id: node.id };
    const same = [...region.querySelectorAll("a, button, summary, [tabindex]")];
    const href = node.getAttribute("href");
    return { href, index: same.filter((n) => n.getAttribute("href") === href).indexOf(node) };
  };

  const focusAgain = (region, place) => {
    if (!place) return;
    const found = place.id
      ? document.getElementById(place.id)
      : [...region.querySelectorAll("a, button, summary, [tabindex]")].filter(
          (n) => n.getAttribute("href") === place.href,
        )[place.index];
    if (found) found.focus({ preventScroll: true });
  };

  const isTyping = (region) => {
    const node = document.activeElement;
    return region.contains(node) && node.matches("input, select, textarea");
  };

  const replace = (page) => {
    for (const region of document.querySelectorAll("[data-live]")) {
      const next = page.getElementById(region.id);
      if (!next || region.outerHTML === next.outerHTML || isTyping(region)) continue;
      const place = placeOf(region, document.activeElement);
      const open = new Set([...region.querySelectorAll("details[open][id]")].map((d) => d.id));
      const [x, y] = [window.scrollX, window.scrollY];
      const across = [...region.querySelectorAll(".scroll")].map((n) => n.scrollLeft);
      const fresh = document.importNode(next, true);
      region.replaceWith(fresh);
      for (const id of open) document.getElementById(id)?.setAttribute("open", "");
      fresh.querySelectorAll(".scroll").forEach((n, i) => (n.scrollLeft = across[i] ?? 0));
      window.scrollTo(x, y);
      focusAgain(fresh, place);
    }
    document.title = page.title;
  };

  const say = (text) => {
    lost.hidden = !text;
    if (lost.textContent !== text) lost.textContent = text;
    document.body.classList.toggle("lost", Boolean(text));
  };

  const clock = (at) => at.toLocaleTimeString([], { timeZoneName: "short" });

  const refresh = async () => {
    if (isPaused || isBusy || document.visibilityState === "hidden") return;
    isBusy = true;
    try {
      const headers = etag ? { "If-None-Match": etag } : {};
      const answer = await fetch(location.pathname + location.search, {
        headers, cache: "no-store", credentials: "same-origin", signal: AbortSignal.timeout(15000),
      });
      if (answer.redirected) return say("Your login has ended: log in again to see anything new.");
      if (answer.status === 200) {
        etag = answer.headers.get("ETag");
        replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
      } else if (answer.status !== 304) {
        throw new Error(String(answer.status));
      }
      good = new Date();
      say("");
    } catch {
      say(`The connection to the board is lost. What you see is as of ${clock(good)}; trying again.`);
    } finally {
      isBusy = false;
    }
  };

  if (every > 0) {
    pause.hidden = false;
    pause.addEventListener("click", () => {
      isPaused = !isPaused;
      pause.setAttribute("aria-pressed", String(isPaused));
      pause.textContent = isPaused ? "Updates are paused: go on" : "Pause updates";
      refresh();
    });
    setInterval(refresh, every);
    document.addEventListener("visibilitychange", refresh);
  }

  // j and k walk the rows of a list, and only while one of its links has the focus.
  document.addEventListener("keydown", (event) => {
    const list = document.activeElement?.closest("table.keys");
    const step = { j: 1, k: -1 }[event.key];
    if (!list || !step || event.ctrlKey || event.metaKey || event.altKey) return;
    const links = [...list.querySelectorAll("tbody th a")];
    const row = document.activeElement.closest("tr");
    const at = links.findIndex((link) => row && row.contains(link));
    links[Math.min(links.length - 1, Math.max(0, at + step))]?.focus();
  });
})();
