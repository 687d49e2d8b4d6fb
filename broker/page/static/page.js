// Keeps a page up to date: fetches it again, and replaces the parts that are marked as live.
// A part in which somebody has the focus, or has selected text, stays as it is.
"use strict";

const main = document.querySelector("main[data-refresh]");

function isInUse(part) {
  const selection = document.getSelection();
  const selected = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  return selected || part.contains(document.activeElement);
}

async function refresh() {
  let next = Number(main.dataset.refresh);
  if (!document.hidden) {
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const freshMain = fresh.querySelector("main[data-refresh]");
      if (answer.ok && freshMain) {
        next = Number(freshMain.dataset.refresh);
        for (const part of document.querySelectorAll("[data-live]")) {
          const replacement = fresh.querySelector(`[data-live="${part.dataset.live}"]`);
          if (replacement && !isInUse(part) && part.innerHTML !== replacement.innerHTML) {
            part.replaceChildren(...replacement.childNodes);
          }
        }
      }
      document.body.classList.toggle("stale", !answer.ok);
    } catch {
      // The broker does not answer: what is shown is old, and says so.
      document.body.classList.add("stale");
    }
  }
  setTimeout(refresh, next);
}

if (main) setTimeout(refresh, Number(main.dataset.refresh));
