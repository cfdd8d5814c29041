// Swaps the parts of the page that have changed. Without it the page is whole, and reloads itself every few seconds.
(() => {
  'use strict';
  const told = document.getElementById('told');
  const waiting = new Set();
  const last = new WeakMap();
  let busy = false;

  // What a person has opened, ticked or is writing stays as it is.
  function swap(part, text) {
    const active = document.activeElement;
    if (last.get(part) === text) return;
    if (part.contains(active) && active.matches('input:not([type=checkbox]), textarea, select')) return;
    last.set(part, text);
    const open = new Set([...part.querySelectorAll('details[open] > summary')].map(summary => summary.textContent));
    const ticked = new Set([...part.querySelectorAll('input[type=checkbox]:checked')].map(box => box.value));
    const focus = part.contains(active) ? active.id : '';
    const scrolled = [...part.querySelectorAll('.scroll')].map(box => box.scrollLeft);
    part.innerHTML = text;
    for (const summary of part.querySelectorAll('details > summary')) {
      if (open.has(summary.textContent)) summary.parentElement.open = true;
    }
    for (const box of part.querySelectorAll('input[type=checkbox]')) box.checked = ticked.has(box.value);
    part.querySelectorAll('.scroll').forEach((box, at) => { box.scrollLeft = scrolled[at] || 0; });
    if (focus) document.getElementById(focus)?.focus();
  }

  async function fetchParts() {
    if (busy) return;
    busy = true;
    try {
      while (waiting.size) {
        const name = waiting.values().next().value;
        waiting.delete(name);
        const part = document.getElementById(name);
        if (!part) continue;
        const url = new URL(location.href);
        url.searchParams.set('part', name);
        const answer = await fetch(url);
        if (answer.redirected) { location.reload(); return; }
        if (answer.ok) swap(part, await answer.text());
      }
    } catch { /* The event source says that there is no connection. */ } finally { busy = false; }
  }

  function changed(...names) {
    for (const name of names) if (document.getElementById(name)) waiting.add(name);
    fetchParts();
  }

  let source = null;
  function connect() {
    if (source || document.hidden) return;
    source = new EventSource('/changes');
    source.addEventListener('status', () => changed('status', 'forms'));
    source.addEventListener('rounds', () => changed('rounds', 'status', 'forms'));
    source.onopen = () => { told.textContent = 'live'; };
    source.onerror = () => {
      told.textContent = 'not connected';
      if (source && source.readyState === EventSource.CLOSED) { source = null; setTimeout(connect, 5000); }
    };
  }
  // A browser has few connections for one place: pages that nobody looks at give theirs back.
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) { connect(); return; }
    source?.close();
    source = null;
    told.textContent = 'paused';
  });
  connect();
  // Times grow old by themselves.
  setInterval(() => { if (!document.hidden) changed('status', 'rounds'); }, 30000);
})();
