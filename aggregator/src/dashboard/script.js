// Swaps the parts of the page that have changed. Without it the page is whole, and reloads itself every few seconds.
(() => {
  'use strict';
  const told = document.getElementById('told');
  const waiting = new Set();
  const last = new WeakMap();
  let busy = false;

  const CONTROLS = 'a[href], button, input, select, textarea, summary';
  const alerts = within => [...within.querySelectorAll('[role=alert]')];
  const texts = elements => elements.map(element => element.textContent);
  const alerted = new WeakMap();

  // What a person has opened, closed, ticked, selected or is writing stays as it is.
  function swap(part, text) {
    const active = document.activeElement;
    if (last.get(part) === text) return;
    if (part.contains(active) && active.matches('input:not([type=checkbox]), textarea, select')) return;
    const selection = getSelection();
    if (!selection.isCollapsed && part.contains(selection.anchorNode)) return;
    last.set(part, text);

    const next = document.createElement('template');
    next.innerHTML = text;
    // A screen reader says an alert when it comes, and not again.
    const said = new Set(alerted.get(part) ?? texts(alerts(part)));
    alerted.set(part, texts(alerts(next.content)));
    for (const alert of alerts(next.content)) if (said.has(alert.textContent)) alert.removeAttribute('role');

    const details = new Map([...part.querySelectorAll('details')].map(of => [of.querySelector('summary').textContent, of.open]));
    const ticked = new Set([...part.querySelectorAll('input[type=checkbox]:checked')].map(box => box.value));
    const typed = [...part.querySelectorAll('input:not([type=checkbox]):not([type=hidden])')]
      .filter(input => input.value !== input.defaultValue).map(input => [label(input), input.value]);
    const focus = part.contains(active) ? label(active) : null;
    const scrolled = [...part.querySelectorAll('.scroll')].map(box => box.scrollLeft);
    part.replaceChildren(next.content);
    for (const of of part.querySelectorAll('details')) {
      const open = details.get(of.querySelector('summary').textContent);
      if (open !== undefined) of.open = open;
    }
    for (const box of part.querySelectorAll('input[type=checkbox]')) box.checked = ticked.has(box.value);
    part.querySelectorAll('.scroll').forEach((box, at) => { box.scrollLeft = scrolled[at] || 0; });
    if (!focus && !typed.length) return;
    const controls = new Map([...part.querySelectorAll(CONTROLS)].map(control => [label(control), control]));
    for (const [of, value] of typed) if (controls.has(of)) controls.get(of).value = value;
    if (focus) controls.get(focus)?.focus({ preventScroll: true });
  }

  // By which a control is found again after a swap.
  function label(control) {
    const said = control.getAttribute('aria-label') || control.closest('label')?.textContent || control.textContent;
    return [control.tagName, control.id, control.name || control.getAttribute('href') || '', control.type === 'checkbox' ? control.value : '', said].join('|');
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
