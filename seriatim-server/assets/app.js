// Pages stay current, and are used by keyboard. All of it works without this, by reloading.
'use strict';
(() => {
  const body = document.body;
  const main = document.getElementById('main');
  const one = (selector, within = document) => within.querySelector(selector);
  const each = (selector, within = document) => [...within.querySelectorAll(selector)];

  // On a narrow screen rows are cards, whose cells say what the heads of their columns do ---
  const label = (within) => each('table:not(.numbers table)', within).forEach((table) => {
    const heads = each('thead th', table).map((head) => head.textContent);
    each('tbody tr', table).forEach((row) => [...row.cells].forEach((cell, i) => { cell.dataset.label = heads[i]; }));
    table.classList.add('cards');
  });
  label(main);

  // There the rows come first, and what asks for others or acts on many is folded in ---
  const narrow = matchMedia('(max-width: 600px)');
  const fold = () => each('[data-fold]').forEach((part) => { part.open = !narrow.matches || !!one('[aria-invalid]', part); });
  narrow.addEventListener('change', fold);
  fold();

  // Stay current ---
  const EVERY = 5000;
  const EVERY_MAX = 60000;
  let etag = '';
  let wait = EVERY;
  let timer = 0;
  let paused = false;
  let announced = 0;
  const stale = one('[data-stale]');
  const pause = one('[data-pause]');

  // Called when parts of the page were replaced.
  let replaced = () => {};
  const offer = () => each('[data-copy]').forEach((button) => { button.hidden = false; });

  const announce = (text) => {
    const now = Date.now();
    if (now - announced < 10000) return;
    announced = now;
    one('[data-announce]').textContent = text;
  };

  // Whether the focus or a selection is in an element, or even the pointer: then its rows must not move.
  const holds = (element) => element.contains(document.activeElement) ||
    (!getSelection().isCollapsed && getSelection().containsNode(element, true));
  const busy = (element) => !shows && (element.matches(':hover') || holds(element));

  // What waits: new rows, other changes; the button shows them.
  const more = one('[data-more]');
  let [rows, changes, shows] = [0, 0, false];

  // Where the pointer rests: what is above it keeps its height until it leaves.
  let hand = -1;
  main.addEventListener('pointermove', (event) => { hand = event.clientY; });
  main.addEventListener('pointerleave', () => { hand = -1; });

  const replace = (old, fresh) => {
    if (old.innerHTML === fresh.innerHTML) return;
    const name = (details) => one('summary', details).textContent;
    const open = each('details[open]', old).map(name);
    const [before, height, { top }] = [[...old.childNodes], old.offsetHeight, old.getBoundingClientRect()];
    old.replaceChildren(...fresh.childNodes);
    if (top < hand && old.offsetHeight !== height) {
      old.replaceChildren(...before);
      etag = '';
      changes += 1;
    }
    each('details', old).filter((details) => open.includes(name(details))).forEach((details) => { details.open = true; });
  };

  // What a row is about: by its id, or by where its head leads.
  const about = (row) => row.id || one('th a', row)?.href || row.cells[0].textContent;

  // Cell by cell: rows keep their place under the pointer.
  const patchRows = (old, fresh) => {
    const all = new Map(each('tbody > tr', fresh).map((row) => [about(row), row]));
    for (const row of each('tbody > tr', old)) {
      const now = all.get(about(row));
      row.classList.toggle('gone', !now);
      if (now) [...row.cells].forEach((cell, i) => now.cells[i] && !holds(cell) && replace(cell, now.cells[i]));
    }
    each('tbody > tr', old).forEach((row) => all.delete(about(row)));
    rows += all.size;
  };

  // What is said beside rows; numbers change all the time.
  const said = (part) => {
    const copy = part.cloneNode(true);
    each('table[data-rows]', copy).forEach((table) => table.remove());
    return copy.textContent.replace(/[\d\s.,]+/g, '');
  };

  const patch = (old, fresh) => {
    if (!busy(old)) return replace(old, fresh);
    // What waits now is asked for once more.
    etag = '';
    if (said(old) !== said(fresh)) changes += 1;
    const [tables, others] = [old, fresh].map((part) => each('table[data-rows]', part));
    if (tables.length === others.length) tables.forEach((table, i) => patchRows(table, others[i]));
  };

  const update = async () => {
    timer = 0;
    if ((paused && !shows) || document.hidden) return;
    try {
      const response = await fetch(location.href, { headers: { 'X-Parts': '1', 'If-None-Match': etag }, redirect: 'manual' });
      if (response.type === 'opaqueredirect' || response.status === 401) return location.reload();
      each('[data-as]').forEach((it) => { it.textContent = response.headers.get(it.dataset.as) ?? it.textContent; });
      if (response.status === 200) {
        etag = response.headers.get('etag') || '';
        const page = new DOMParser().parseFromString(`<main>${await response.text()}</main>`, 'text/html');
        label(page.body);
        const fresh = each('[data-live]', page.body);
        const old = each('[data-live]', main);
        rows = changes = 0;
        if (fresh.length === old.length) old.forEach((part, i) => patch(part, fresh[i]));
        else patch(main, one('main', page.body));
        shows = false;
        more.hidden = !rows && !changes;
        more.textContent = `${rows ? `${rows} new` : 'Changed'} – show`;
        offer();
        replaced();
      }
      if (response.status >= 400) throw new Error(response.status);
      wait = EVERY;
      stale.hidden = true;
    } catch {
      wait = Math.min(wait * 2, EVERY_MAX);
      stale.hidden = false;
      announce('The server does not answer');
    }
    plan(wait);
  };
  const plan = (after) => { if (!timer && one('[data-live]', main)) timer = setTimeout(update, after); };

  if (one('[data-live]', main)) {
    pause.hidden = false;
    pause.onclick = () => {
      paused = !paused;
      pause.textContent = paused ? 'Refresh' : 'Stop refresh';
      if (!paused) plan(0);
    };
    plan(EVERY);

    more.onclick = () => {
      [shows, hand, etag] = [true, -1, ''];
      clearTimeout(timer);
      update();
    };

    // One tab that is seen listens for changes; where it cannot, the page asks every 5 s all the same.
    const soon = () => {
      if (wait !== EVERY || !timer) return;
      clearTimeout(timer);
      timer = 0;
      plan(100);
    };
    let leave = () => {};
    const listen = () => {
      if (document.hidden || !navigator.locks || !window.EventSource) return;
      const away = new AbortController();
      leave = () => away.abort();
      navigator.locks.request(`seriatim ${body.dataset.base}`, { signal: away.signal }, () => new Promise((done) => {
        const source = new EventSource(`${body.dataset.base}/live`);
        source.onmessage = soon;
        leave = () => { source.close(); done(); };
      })).catch(() => {});
    };
    document.addEventListener('visibilitychange', () => {
      if (!document.hidden) plan(0);
      leave();
      leave = () => {};
      listen();
    });
    listen();
  }

  // Rows that are selected stay so from page to page, in this tab ---
  const ticks = one('[data-ticks]');
  const TICKS_MAX = 1000;
  if (ticks) {
    const name = ticks.dataset.ticks;
    const place = `ticks ${location.pathname} ${name} ${ticks.queue.value}`;
    const chosen = new Set(JSON.parse(sessionStorage.getItem(place) || '[]'));
    const boxes = () => each(`input[name=${name}]`, main);
    replaced = () => {
      boxes().forEach((box) => { box.checked = chosen.has(box.value); });
      each('[data-ticked]').forEach((told) => { told.textContent = chosen.size ? `${chosen.size} selected${chosen.size < TICKS_MAX ? '' : ', no more fit'}` : ''; });
      each('button', ticks).forEach((button) => { button.disabled = chosen.size === 0; });
    };
    main.addEventListener('change', (event) => {
      const box = event.target;
      if (box.name !== name) return;
      if (!box.checked) chosen.delete(box.value);
      else if (chosen.size < TICKS_MAX) chosen.add(box.value);
      sessionStorage.setItem(place, JSON.stringify([...chosen]));
      replaced();
    });
    // Those of other pages too.
    ticks.addEventListener('formdata', ({ formData }) => {
      formData.delete(name);
      formData.append(name, [...chosen].join(','));
    });
    replaced();
  }
  each('form[data-begins]').forEach((form) => form.addEventListener('submit', () => {
    Object.keys(sessionStorage).filter((key) => key.startsWith('ticks ')).forEach((key) => sessionStorage.removeItem(key));
  }));

  // Copy, also where the page has no right to the clipboard ---
  offer();
  document.addEventListener('click', async (event) => {
    const button = event.target.closest('[data-copy]');
    if (!button) return;
    // What it stands above, if it does not say.
    const text = button.dataset.copy || button.parentElement.nextElementSibling.textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const field = document.createElement('textarea');
      field.value = text;
      button.after(field);
      field.select();
      document.execCommand('copy');
      field.remove();
    }
    announce('Copied');
    button.textContent = 'Copied';
    setTimeout(() => { button.textContent = 'Copy'; }, 2000);
  });

  // Who speaks to the browser would trigger single keys.
  const silent = document.cookie.includes('seriatim_shortcuts=off');

  // Theme and zone are cookies, so that the server draws them ---
  const prefs = one('[data-prefs]');
  if (prefs) {
    prefs.hidden = false;
    prefs.shortcuts.checked = !silent;
    const keep = (name, value) => {
      document.cookie = `seriatim_${name}=${encodeURIComponent(value)}; path=${body.dataset.base || '/'}; max-age=31536000; samesite=lax`;
    };
    prefs.addEventListener('change', () => {
      const zone = prefs.zone.value === 'local' ? Intl.DateTimeFormat().resolvedOptions().timeZone : '';
      keep('theme', prefs.theme.value);
      keep('zone', zone);
      keep('shortcuts', prefs.shortcuts.checked ? '' : 'off');
      location.reload();
    });
  }

  // Keys ---
  const places = { o: '/', q: '/queues', m: '/morgue', s: '/scheduled', c: '/cron', b: '/operations', n: '/nodes', a: '/audit' };
  let goes = false;
  const step = (by) => {
    const rows = each('table[data-rows] tbody tr', main);
    if (!rows.length) return;
    const at = rows.findIndex((row) => row.classList.contains('at'));
    const next = rows[Math.max(0, Math.min(rows.length - 1, at + by))];
    rows.forEach((row) => row.classList.toggle('at', row === next));
    (one('th a', next) || one('a', next))?.focus();
  };
  // To rows that are selected, or the row, or what the page is about. A page that asks is answered by hand.
  const act = (verb) => {
    const row = one('tr.at', main);
    const own = each('.buttons > :enabled, .buttons > a, .acts > a', row || main).filter((button) => row || !button.closest('table'));
    [...each('#ticked :enabled', main), ...own].find((button) => verb.test(button.textContent) && !button.matches('.go'))?.click();
  };
  const acts = { r: /^Run /, p: /^(Pause|Resume)/, m: /^Requeue/ };
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input:not([type=checkbox]), select, textarea')) {
      if (event.key === 'Escape') event.target.blur();
      return;
    }
    if (silent) return;
    const key = event.key;
    if (goes && key === 'l') one('a[href*="/lanes"]', main)?.click();
    else if (goes && places[key]) location.href = body.dataset.base + places[key];
    else if (acts[key]) act(acts[key]);
    goes = key === 'g';
    if (key === '/') { event.preventDefault(); one('[data-search]').focus(); }
    else if (key === '?') location.href = `${body.dataset.base}/about`;
    else if (key === 'j') step(1);
    else if (key === 'k') step(-1);
    else if (key === ']') one('a[rel=next]', main)?.click();
    else if (key === '[') one('a[rel=prev]', main)?.click();
    else if (key === 'x') one('tr.at input[type=checkbox]', main)?.click();
  });
})();
