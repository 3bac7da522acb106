// Shows the data of an explorer. ask(what, key): asks a kernel; null on a page, where all states are recorded.

const FIGURES = ["nodes", "launches", "bytes moved", "peak memory"];
const CHUNK = 100; // lines of one fold
const OPEN = 200; // lines of a graph that is open at first

function make(tag, attributes = {}, ...content) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...content);
  return element;
}

function amount(value, column) {
  if (value === null || value === undefined) return "?";
  if (column < 2) return value.toLocaleString("en");
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  while (value >= 1024 && units.length > 1) {
    value /= 1024;
    units.shift();
  }
  return `${value.toFixed(value >= 100 ? 0 : 1).replace(/\.0$/, "")} ${units[0]}`;
}

// The rows of a graph as a tree: rows of one module that follow each other are a section, and long ones are cut.
function tree(rows) {
  const root = { path: "", inside: [] };
  const way = [root];
  const names = [];
  for (const row of rows) {
    const parts = row[5] ? row[5].split(".") : [];
    let common = 0;
    while (common < Math.min(parts.length, names.length) && parts[common] === names[common]) common++;
    way.length = common + 1;
    names.length = common;
    for (const part of parts.slice(common)) {
      const section = { path: [...names, part].join("."), inside: [] };
      way[way.length - 1].inside.push(section);
      way.push(section);
      names.push(part);
    }
    way[way.length - 1].inside.push(row);
  }
  count(root);
  cut(root);
  number(root, "");
  return root;
}

function count(section) {
  section.size = section.changes = 0;
  section.lines = new Set();
  for (const part of section.inside) {
    if (!Array.isArray(part)) count(part);
    section.size += part.size ?? 1;
    section.changes += part.size ? part.changes : part[0] ? 1 : 0;
    for (const line of part.size ? part.lines : part[4]) section.lines.add(line);
  }
}

function cut(section) {
  for (const part of section.inside) if (part.inside) cut(part);
  if (section.inside.length <= CHUNK * 1.5) return;
  const all = section.inside;
  section.inside = [];
  for (let i = 0; i < all.length; i += CHUNK) {
    const end = Math.min(i + CHUNK, all.length);
    const chunk = { path: `${section.path} ${i + 1}–${end}`.trim(), inside: all.slice(i, end) };
    count(chunk);
    section.inside.push(chunk);
  }
}

function number(section, id) {
  section.id = id;
  section.inside.forEach((part, i) => part.inside && number(part, `${id}/${i}`));
}

function explorer(root, data, ask) {
  const order = data.passes.map((_, i) => i);
  const on = new Set(order.slice(0, data.on));
  let selected = data.on; // how many passes of the pipeline have run in the state that is shown
  let query = "";
  let folds = new Map(); // id of a section → open, where the reader has chosen
  let lit = new Set(); // lines of source
  let shown = []; // items of the tree, in order
  let pictured = true;
  const asked = new Set();

  const pipeline = () => order.filter((i) => on.has(i));
  const keys = () => pipeline().reduce((all, i) => [...all, all.at(-1) ? `${all.at(-1)},${i}` : `${i}`], [""]);
  const stateOf = (key) => (key in data.steps ? data.states[data.steps[key]] : null);
  const want = (what, key) => {
    if (ask && !asked.has(`${what} ${key}`)) {
      asked.add(`${what} ${key}`);
      ask(what, key);
    }
  };

  // ------------------------------------------------------------------ the parts of the page
  const source = make("div", { class: "source", role: "listbox", "aria-label": "Source", "aria-multiselectable": "true" });
  const list = make("ol", { class: "passes" });
  const code = make("code", { tabindex: "0" });
  const copy = make("button", { type: "button", onclick: copied }, "Copy pipeline");
  const table = make("table", { class: "states" });
  const graph = make("div", { class: "graph", role: "tree", "aria-label": "Program" });
  const search = make("input", { type: "search", "aria-label": "Search nodes", placeholder: "Search nodes" });
  const news = make("p", { class: "news", role: "status" });
  const picture = make("div", { class: "picture" });
  const heading = make("h4", {});
  const drawn = make("button", { type: "button", "aria-pressed": "true" }, "Picture");
  search.addEventListener("input", () => { query = search.value.trim().toLowerCase(); program(); });
  drawn.addEventListener("click", () => { pictured = drawn.getAttribute("aria-pressed") !== "true"; asIs = false; program(); });
  let asIs = true; // whether a large graph waits for the button to be drawn
  const box = (name, ...content) => make("section", { class: name, "aria-label": name }, ...content);
  root.replaceChildren(make("div", { class: "passlab-explorer", "data-lm-suppress-shortcuts": "true" },
    make("h3", {}, data.title),
    make("div", { class: "columns" },
      make("div", { class: "left" },
        box("Source", make("h4", {}, "Source"), source),
        box("Passes", make("h4", {}, "Passes"), list, make("p", {}, code, " ", copy))),
      make("div", { class: "right" },
        box("States", make("h4", {}, "After each pass"), make("div", { class: "wide" }, table)),
        box("Program", make("div", { class: "head" }, heading, search, drawn), news, graph))),
    picture));

  // ------------------------------------------------------------------ passes
  // Passes of an IR that the program does not reach are left out, until a conversion leads there.
  function listed() {
    const languages = new Set([data.language, ...pipeline().map((i) => data.passes[i][4])]);
    return order.filter((i) => !data.live || on.has(i) || languages.has(data.passes[i][3]) || !data.passes[i][3]);
  }

  function passes() {
    const all = listed();
    list.replaceChildren(...all.map((i, at) => {
      const [name, , about, , gives] = data.passes[i];
      const tick = make("input", { type: "checkbox", "data-focus": `on${i}` });
      tick.checked = on.has(i);
      tick.addEventListener("change", () => {
        on[tick.checked ? "add" : "delete"](i);
        choose(pipeline().indexOf(i) + 1 || pipeline().length);
      });
      const item = make("li", { class: gives ? "conversion" : null }, make("label", { title: about || null }, tick, " ", name));
      if (data.live) item.append(arrow(i, all[at - 1], -1), arrow(i, all[at + 1], 1));
      return item;
    }));
  }

  function arrow(i, neighbour, step) {
    const end = neighbour === undefined;
    const label = `Move ${data.passes[i][0]} ${step < 0 ? "up" : "down"}`;
    return make("button", { type: "button", "aria-label": label, title: label, "data-focus": `${step}${i}`,
      "aria-disabled": end ? "true" : null, onclick: () => {
        if (end) return;
        order.splice(order.indexOf(i), 1);
        order.splice(order.indexOf(neighbour) + (step > 0), 0, i);
        choose(on.has(i) ? pipeline().indexOf(i) + 1 : Math.min(selected, pipeline().length));
      } }, step < 0 ? "↑" : "↓");
  }

  async function copied() {
    try {
      await navigator.clipboard.writeText(code.textContent);
      say("Copied: a list of passes, as Python.");
    } catch {
      const range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      say("The pipeline is selected: press Ctrl+C to copy it.");
    }
  }

  const say = (text) => { news.textContent = text; };
  let announced = null;
  const announce = (what, text) => { // once for each state and search, however often it is drawn
    if (announced !== what) say(text);
    announced = what;
  };

  // ------------------------------------------------------------------ states
  function choose(count) {
    selected = count;
    announced = null;
    folds = new Map();
    refresh();
  }

  function refresh() {
    const focus = root.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
    const all = keys();
    for (const key of all) if (!stateOf(key)) want("state", key);
    passes();
    states(all);
    code.textContent = `[${pipeline().map((i) => data.passes[i][1]).join(", ")}]`;
    program();
    if (focus) root.querySelector(`[data-focus="${CSS.escape(focus)}"]`)?.focus();
  }

  function states(all) {
    const known = all.map(stateOf);
    const most = FIGURES.map((_, c) => Math.max(1, ...known.map((state) => state?.figures?.[c] ?? 0)));
    const rows = [];
    let idle = [];
    const folded = () => {
      if (idle.length) rows.push(make("tr", { class: "idle" }, make("td", { colspan: "6" },
        `${idle.length > 1 ? `${idle.length} passes change` : "changes"} nothing: ${idle.join(", ")}`)));
      idle = [];
    };
    all.forEach((key, n) => {
      const state = known[n];
      const name = n ? data.passes[pipeline()[n - 1]][0] : "start";
      if (state?.same && !state.failed) return idle.push(name);
      folded();
      const press = make("button", { type: "button", "aria-pressed": String(n === place()), "data-focus": `at${n}`,
        onclick: () => choose(n) }, name);
      const first = make("th", { scope: "row" }, press);
      const wide = (columns, kind, text) => make("td", { colspan: columns, class: kind }, text);
      if (!state) return rows.push(make("tr", {}, first, wide("5", "say", ask ? "…" : "not recorded on this page")));
      if (state.same) return rows.push(make("tr", {}, first, wide("5", "failed", state.say)));
      if (!state.failed) first.append(make("span", { class: "say" }, state.say));
      const cells = FIGURES.map((_, c) => !state.figures ? make("td", {}, "…") : make("td", {}, amount(state.figures[c], c),
        make("i", { style: `width:${Math.round(100 * (state.figures[c] ?? 0) / most[c])}%` })));
      const doubted = n && state.verdict && state.verdict[0] !== true;
      rows.push(make("tr", { class: state.failed || doubted ? "explained" : null }, first, verdict(state, n), ...cells));
      const reasons = [state.failed ? state.say : "", doubted ? state.verdict[1] : ""].filter(Boolean);
      for (const text of reasons) rows.push(make("tr", {}, wide("6", "failed",
        make("div", { class: "reason" }, text[0].toUpperCase() + text.slice(1)))));
    });
    folded();
    const heads = ["pass", "same function", ...FIGURES].map((text) => make("th", { scope: "col" }, text));
    table.replaceChildren(make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows));
    for (const what of ["figures", "verdict"]) {
      const next = all.find((key) => { const s = stateOf(key); return s && !s.same && !s[what]; });
      if (next !== undefined && all.every(stateOf)) return want(what, next);
    }
  }

  function verdict(state, n) {
    if (!state.verdict) return make("td", {}, "…");
    const [same, why] = state.verdict;
    const word = { true: "✓ yes", false: "✗ no", null: "? unknown" }[same];
    return make("td", { class: same === false ? "failed" : null, title: why }, n ? word : "–",
      make("span", { class: "hidden" }, n && same ? ` ${why}` : ""));
  }

  // The state that is shown: a pass that changed nothing shows the program before it.
  function place() {
    const all = keys();
    let n = Math.min(selected, all.length - 1);
    while (n > 0 && stateOf(all[n])?.same) n--;
    return n;
  }

  // ------------------------------------------------------------------ the program
  function program() {
    const n = place();
    const key = keys()[n];
    const state = stateOf(key);
    heading.textContent = n ? `After ${data.passes[pipeline()[n - 1]][0]}` : "At the start";
    graph.setAttribute("aria-busy", String(!state));
    if (!state) return ask ? undefined : graph.replaceChildren();
    state.tree ??= tree(state.rows);
    shown = [];
    const found = query ? state.rows.filter((row) => row[2].toLowerCase().includes(query)) : [];
    if (query) found.slice(0, OPEN).forEach((row) => shown.push([row, 1]));
    else flatten(state, state.tree, 1);
    const focus = graph.contains(document.activeElement) ? document.activeElement.dataset.item : null;
    graph.replaceChildren(...shown.map(item));
    if (!shown.length) graph.append(make("div", { role: "treeitem", tabindex: "0", "aria-level": "1" }, "no node"));
    (graph.querySelector('[tabindex="0"]') ?? graph.firstChild).tabIndex = 0;
    if (focus !== null) graph.querySelector(`[data-item="${CSS.escape(focus)}"]`)?.focus();
    const more = found.length > OPEN ? `, the first ${OPEN} are shown` : "";
    announce(`${key} ${query}`, query ? `${found.length} node${found.length === 1 ? " matches" : "s match"}${more}.` : state.say);
    draw(state, key);
    light(lit);
  }

  function draw(state, key) {
    const large = state.rows.length > data.drawn;
    const show = pictured && !(large && asIs) && (ask || state.picture);
    drawn.hidden = !ask && !state.picture;
    drawn.setAttribute("aria-pressed", String(Boolean(show)));
    picture.hidden = !show;
    if (!show) return;
    if (!state.picture) want("picture", key);
    if (picture.shown === state.picture) return;
    picture.shown = state.picture;
    picture.innerHTML = state.picture ?? "…";
  }

  const isOpen = (state, section) =>
    folds.get(section.id) ??
    (state.tree.size <= OPEN || (section.changes > 0 && state.tree.changes <= 20 && section.size <= OPEN));

  function flatten(state, section, level) {
    for (const part of section.inside) {
      shown.push([part, level]);
      if (part.inside && isOpen(state, part)) flatten(state, part, level + 1);
    }
  }

  function item([part, level], i) {
    const here = { role: "treeitem", tabindex: i ? "-1" : "0", "aria-level": level, style: `--level:${level}` };
    if (!part.inside) {
      const [sign, id, text, changes, lines] = part;
      const numbers = lines.map((line) => data.source[line][0]).join(", ");
      const kind = { "+": "added", "−": "removed", "~": "rewired", "≠": "altered" }[sign] ?? "kept";
      return make("div", { ...here, class: kind, "data-item": `${sign} ${id}` },
        make("span", { class: "sign", "aria-label": sign ? kind : null, role: sign ? "img" : null }, sign || " "),
        text, changes ? make("em", {}, `  ${changes}`) : "", numbers ? make("small", {}, `  line ${numbers}`) : "");
    }
    const open = isOpen(stateOf(keys()[place()]), part);
    const changes = part.changes ? `, ${part.changes} changed` : "";
    return make("div", { ...here, class: "section", "data-item": part.id, "aria-expanded": String(open) },
      make("span", { class: "sign", "aria-hidden": "true" }, open ? "▾" : "▸"), `${part.path}: ${part.size} nodes${changes}`);
  }

  function fold(i, open) {
    const [part] = shown[i];
    if (!part.inside) return false;
    folds.set(part.id, open ?? !isOpen(stateOf(keys()[place()]), part));
    program();
    return true;
  }

  // ------------------------------------------------------------------ a node and its lines light up together
  function light(lines) {
    lit = lines;
    for (const line of source.querySelectorAll("[role=option]")) {
      const now = lit.has(Number(line.dataset.line));
      line.setAttribute("aria-selected", String(now));
    }
    [...graph.children].forEach((line, i) => {
      const [part] = shown[i] ?? [];
      const of = part ? (part.inside ? part.lines : part[4]) : [];
      line.classList.toggle("lit", [...of].some((number) => lit.has(number)) && chosen);
    });
  }
  let chosen = false; // whether a line of source was chosen, rather than a node

  function fromSource(line) {
    chosen = true;
    light(new Set([line]));
    const state = stateOf(keys()[place()]);
    const ids = state ? state.rows.filter((row) => row[4].includes(line)).map((row) => row[1]) : [];
    const names = ids.slice(0, 8).join(", ") + (ids.length > 8 ? " …" : "");
    say(`Line ${data.source[line][0]}: ${ids.length} node${ids.length === 1 ? "" : "s"}${names ? `: ${names}` : ""}.`);
  }

  function fromNode(i, where) {
    const [part] = shown[i] ?? [];
    chosen = false;
    light(new Set(part && !part.inside ? part[4] : []));
    [...graph.children].forEach((line) => line.classList.toggle("lit", line === where));
    const last = part && !part.inside ? part[4].at(-1) : undefined;
    if (last !== undefined) within(source, source.querySelector(`[data-line="${last}"]`));
  }

  function within(pane, line) { // scroll a pane, and not the notebook
    const [a, b] = [pane.getBoundingClientRect(), line.getBoundingClientRect()];
    if (b.top < a.top || b.bottom > a.bottom) pane.scrollTop += b.top - a.top - pane.clientHeight / 2;
  }

  // Arrow keys move in a list of lines; one of them can be reached by Tab.
  function roving(pane, lines, react) {
    pane.addEventListener("keydown", (event) => {
      const all = [...lines()];
      const i = all.indexOf(document.activeElement);
      const to = { ArrowDown: i + 1, ArrowUp: i - 1, Home: 0, End: all.length - 1 }[event.key];
      if (i < 0 || (to === undefined && !react(event, i))) return;
      event.preventDefault();
      event.stopPropagation();
      if (to !== undefined) move(all, Math.max(0, Math.min(to, all.length - 1)));
    });
  }

  function move(all, to) {
    all.forEach((line, i) => { line.tabIndex = i === to ? 0 : -1; });
    all[to]?.focus();
  }

  const lineAt = (event, pane, role) => {
    const line = event.target.closest(`[role=${role}]`);
    return line && pane.contains(line) ? line : null;
  };
  const options = () => source.querySelectorAll("[role=option]");
  roving(source, options, () => false);
  source.addEventListener("focusin", (event) => fromSource(Number(event.target.dataset.line)));
  source.addEventListener("click", (event) => {
    const line = lineAt(event, source, "option");
    if (line) move([...options()], [...options()].indexOf(line));
  });
  roving(graph, () => graph.children, (event, i) => {
    const [part, level] = shown[i] ?? [];
    if (event.key === "Enter" || event.key === " ") return fold(i);
    if (event.key === "ArrowRight") return part.inside ? fold(i, true) : false;
    if (event.key !== "ArrowLeft") return false;
    if (part.inside && graph.children[i].getAttribute("aria-expanded") === "true") return fold(i, false);
    for (let up = i - 1; up >= 0; up--) if (shown[up][1] < level) return move([...graph.children], up) ?? true;
    return false;
  });
  graph.addEventListener("focusin", (event) => fromNode([...graph.children].indexOf(event.target), event.target));
  graph.addEventListener("click", (event) => {
    const line = lineAt(event, graph, "treeitem");
    if (!line) return;
    const i = [...graph.children].indexOf(line);
    move([...graph.children], i);
    fold(i);
  });

  // ------------------------------------------------------------------ what the kernel answers
  function told({ what, key, value }) {
    if (what === "error") return say(value);
    if (what === "state") {
      data.steps[key] = data.states.push(value) - 1;
    } else {
      stateOf(key)[what] = value;
    }
    if (what === "picture") return program();
    refresh();
  }

  let group = source;
  data.source.forEach(([number, text, title], i) => {
    if (title) {
      group = make("div", { role: "group", "aria-label": title }, make("div", { class: "title", "aria-hidden": "true" }, title));
      source.append(group);
    }
    group.append(make("div", { role: "option", tabindex: i ? "-1" : "0", "aria-selected": "false", "data-line": i },
      make("span", { class: "number" }, String(number)), text || " "));
  });
  refresh();
  return told;
}

function live(model, root) {
  const gone = "This explorer's kernel was restarted: run the cell again.";
  const told = explorer(root, structuredClone(model.get("data")), (what, key) => {
    try {
      model.send({ what, key });
    } catch (error) { // the answer of a kernel comes later, too
      queueMicrotask(() => told({ what: "error", key, value: gone }));
    }
  });
  model.on("msg:custom", told);
}
