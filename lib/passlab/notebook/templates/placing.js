// Move buffers up and down in `root`. facts: buffers as [name, first step, step after the last, bytes], bound, the
// highest offset, the pixels of a byte, and the colour of an overlap.
function place(root, facts) {
  const svg = root.querySelector("svg");
  const boxes = [...svg.querySelectorAll("[role=slider]")];
  const names = facts.buffers.map(([name]) => name);
  let offsets = [];

  function clashes() {
    const pairs = [];
    facts.buffers.forEach(([one, from, to, size], i) => {
      facts.buffers.forEach(([other, start, end, bytes], j) => {
        const together = from < end && start < to;
        if (i < j && together && offsets[i] < offsets[j] + bytes && offsets[j] < offsets[i] + size) pairs.push([i, j]);
      });
    });
    return pairs;
  }

  function show() {
    const pairs = clashes();
    const height = Math.max(...offsets.map((offset, i) => offset + facts.buffers[i][3]));
    boxes.forEach((box, i) => {
      const others = pairs.filter((pair) => pair.includes(i)).map(([a, b]) => names[a === i ? b : a]);
      box.setAttribute("transform", `translate(0 ${-offsets[i] * facts.byte})`);
      box.setAttribute("aria-valuemin", 0);
      box.setAttribute("aria-valuemax", facts.most - facts.buffers[i][3]);
      box.setAttribute("aria-valuenow", offsets[i]);
      const overlap = others.length ? `, overlaps ${others.join(" and ")}` : "";
      box.setAttribute("aria-valuetext", `offset ${offsets[i]}${overlap}`);
      box.firstElementChild.style.stroke = others.length ? facts.clash : "";
      box.firstElementChild.style.strokeWidth = others.length ? 3 : "";
    });
    const state = pairs.length
      ? `${pairs.map((pair) => pair.map((i) => names[i]).join(" and ")).join("; ")} overlap.`
      : height === facts.bound ? "No arena is smaller." : "No two overlap.";
    root.querySelector("[role=status]").textContent = `Height ${height}, bound ${facts.bound}. ${state}`;
    root.querySelector("code").textContent =
      `offsets = {${names.map((name, i) => `${JSON.stringify(name)}: ${offsets[i]}`).join(", ")}}`;
  }

  function move(i, offset) {
    offsets[i] = Math.min(Math.max(0, Math.round(offset)), facts.most - facts.buffers[i][3]);
    show();
  }

  function begin() {
    let top = 0;
    offsets = facts.buffers.map(([, , , size]) => (top += size) - size);
    show();
  }

  boxes.forEach((box, i) => {
    box.style.cursor = "ns-resize";
    box.addEventListener("keydown", (event) => {
      const to = {
        ArrowUp: offsets[i] + 1, ArrowRight: offsets[i] + 1, ArrowDown: offsets[i] - 1, ArrowLeft: offsets[i] - 1,
        Home: 0, End: facts.most,
      }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      move(i, to);
    });
    box.addEventListener("pointerdown", (event) => {
      const [from, start] = [event.clientY, offsets[i]];
      const pixels = (facts.byte * svg.getBoundingClientRect().height) / svg.viewBox.baseVal.height;
      box.setPointerCapture(event.pointerId);
      box.onpointermove = (moved) => move(i, start + (from - moved.clientY) / pixels);
      box.onpointerup = box.onpointercancel = () => (box.onpointermove = null);
      box.focus();
      event.preventDefault();
    });
  });
  root.querySelector("button").addEventListener("click", begin);
  begin();
}
