// The page of one model: reads the fields, evaluates the recipe, and shows its numbers, or why there are none.

const DATA = JSON.parse(byId("data").textContent);
const text = (number) => DATA.texts[number];
const recipe = () => DATA.recipes[byId("recipe").selectedIndex];
const device = () => DATA.devices[byId("device").selectedIndex];
const sizeId = (name) => `size-${name}`;
const anchor = (name) => `q-${name}`; // as reports/page/parts.py has it
const TYPED = new Map(Object.entries(DATA.sizes).map(([name, size]) => [name, String(size)]));
const OPEN = new Set(); // quantities whose derivation is open

// -- fields ------------------------------------------------------------------------------------------------------------------

const follows = (dim) => dim.written !== undefined;

function noteOf(dim) {
  const parts = follows(dim) ? [`${dim.written} unless set`] : [];
  if (dim.plus) parts.push(`more than ${dim.plus}`);
  else if (dim.multiple !== undefined) parts.push(`multiple of ${dim.multiple}`);
  if (dim.bound !== undefined) parts.push(`at most ${dim.bound}`);
  return parts.join(", ");
}

function showFields(form) {
  const fields = form.dims.map((dim) => {
    const label = [make("i", {}, dim.name), ` ${dim.meaning}`];
    if (dim.tied) return make("div", { class: "field" }, make("span", {}, ...label), make("output", { id: sizeId(dim.name) }), make("small", {}, `always ${dim.written}`));
    return field(sizeId(dim.name), label, noteOf(dim), TYPED.get(dim.name) ?? (follows(dim) ? "" : String(dim.default)), "");
  });
  byId("sizes").replaceChildren(...fields);
}

// The sizes as typed. Throws SizeError for a field that is no whole number.
function given(form) {
  const sizes = new Map();
  for (const dim of form.dims.filter((d) => !d.tied)) {
    const typed_ = byId(sizeId(dim.name)).value.trim().replace(/[,_\s]/g, "");
    TYPED.set(dim.name, typed_);
    if (typed_ === "" && follows(dim)) continue;
    if (!/^\d{1,19}$/.test(typed_)) throw new SizeError(dim.name, `${dim.name} must be a whole number from 1 to 2⁶³ − 1`);
    sizes.set(dim.name, BigInt(typed_));
  }
  return sizes;
}

function command(form, sizes) {
  const own = new Map(form.dims.map((dim) => [dim.name, dim]));
  const changed = [...sizes].filter(([name, size]) => follows(own.get(name)) || String(own.get(name).default) !== String(size));
  return [DATA.command, ...changed.map(([name, size]) => `${name}=${size}`)].join(" ") + recipe().flags;
}

// -- numbers -----------------------------------------------------------------------------------------------------------------

const total = (evaluation, names) => names.reduce((sum, name) => {
  const value_ = evaluation.value(name);
  return sum === null || value_ === null ? null : sum + value_;
}, 0n);

// The MFU as a fraction above 0, at most 1; null where something else is typed.
function utilization() {
  const mfu = typed(`${byId("mfu").value}%`);
  return mfu && mfu.n > 0n && order(mfu, ratio(1n)) <= 0 ? mfu : null;
}

// Seconds of the model FLOPs of a training step at the MFU; null where one of them is unknown.
function seconds(evaluation) {
  const rate = device().rates[recipe().rate];
  const flops = total(evaluation, ["flops.forward.matmul", "flops.backward.matmul"]);
  const again = evaluation.value("flops.backward.recompute");
  const mfu = utilization();
  if (rate === undefined || flops === null || again === null || mfu === null) return null;
  return over(ratio(flops - again), times(mfu, ratio(BigInt(rate))));
}

// The peak at other sizes; null where they are invalid or the step does not hold.
function peakAt(form, sizes, changed) {
  try {
    return evaluate(form, new Map([...sizes, ...changed])).evaluation?.value("memory.peak") ?? null;
  } catch (error) {
    if (error instanceof SizeError || error instanceof Refused) return null;
    throw error;
  }
}

// The last batch that fits before one that does not; null where there is none.
function largestBatch(form, sizes, memory) {
  const fits = (batch) => { const peak = peakAt(form, sizes, [["B", batch]]); return peak !== null && peak <= memory; };
  let [low, high] = [0n, 2n];
  while (high <= 2n ** 30n && fits(high)) [low, high] = [high, 2n * high];
  if (!low || high > 2n ** 30n) return null;
  while (high - low > 1n) {
    const middle = (low + high) / 2n;
    [low, high] = fits(middle) ? [middle, high] : [low, middle];
  }
  return low;
}

// -- what is shown -----------------------------------------------------------------------------------------------------------

function tile(title, target, big, small) {
  const head = make("h2", {}, target ? make("a", { href: `#${anchor(target)}` }, title) : title);
  return make("div", { class: "tile" }, head, make("p", { class: "big n" }, big), make("p", { class: "exact" }, ...[small].flat()));
}

function quantityTile(evaluation, title, name) {
  const count = evaluation.value(name);
  if (count === null) return tile(title, name, "unknown", "");
  const unit = evaluation.form.quantities[name].unit;
  const beside = [exact(count, unit), ...readings(count, unit).slice(1)].map((words, i) => make("span", { class: "n" }, i ? `, ${words}` : words));
  return tile(title, name, headline(count, unit), beside);
}

function verdict(peak) {
  const room = BigInt(device().memory) - peak;
  return room >= 0n ? ["fits", `${headline(room, "byte")} left`] : ["does not fit", `${headline(-room, "byte")} too much`];
}

function tiles(evaluation) {
  const peak = evaluation.value("memory.peak");
  const time = seconds(evaluation);
  const mfu = byId("mfu").value;
  return [
    quantityTile(evaluation, "Memory at the peak", "memory.peak"),
    tile(device().name, "", ...(peak === null ? ["unknown", "the peak is unknown"] : verdict(peak))),
    quantityTile(evaluation, "FLOPs of the step", "flops.step.total"),
    tile("Time of the step", "", time === null ? "unknown" : duration(time), time === null ? "it needs a training step, a rate of the device and an MFU" : `model FLOPs at an MFU of ${mfu}${NBSP}%`),
    quantityTile(evaluation, "Parameters", "parameters"),
  ];
}

// Bytes at the peak by role, in the order of the report.
function byRole(candidate) {
  const place = (role) => { const at = DATA.roles.indexOf(role); return at < 0 ? DATA.roles.length : at; };
  return candidate.parts.map(([role, number, x]) => [text(role), number, x]).sort((a, b) => place(a[0]) - place(b[0]));
}

function bar(parts, peak) {
  const memory = BigInt(device().memory);
  const drawn = memory <= 4n * peak;
  const scale = drawn && memory > peak ? memory : peak;
  const percent = (n) => Number((100000n * n) / scale) / 1000;
  let start = 0n;
  const segments = parts.map(([role, , x]) => {
    const rect = draw("rect", { class: `segment role-${role.replaceAll(" ", "-")}`, x: `${percent(start)}%`, y: "20", width: `${percent(x.n)}%`, height: "34" }, draw("title", {}, role));
    start += x.n;
    return rect;
  });
  const limit = drawn ? [draw("line", { class: "capacity", x1: `${percent(memory)}%`, x2: `${percent(memory)}%`, y1: "14", y2: "60" })] : [];
  const label = `Bytes at the peak by kind${drawn ? `; the dashed line is the memory of ${device().name}` : ""}. The table has the numbers.`;
  return draw("svg", { role: "img", "aria-label": label, width: "100%", height: "66" }, ...segments, ...limit);
}

function key(role) {
  const swatch = draw("svg", { class: "key", width: "12", height: "12", "aria-hidden": "true" }, draw("rect", { class: `role-${role.replaceAll(" ", "-")}`, width: "12", height: "12" }));
  return make("span", {}, swatch, ` ${role}`);
}

function peakSection(evaluation) {
  const peak = evaluation.value("memory.peak");
  if (peak === null) return [make("p", {}, "The peak is unknown for this recipe.")];
  const own = evaluation.of("memory.peak");
  const [first, ...others] = own.candidates("memory.peak");
  const parts = byRole(first).filter(([, , x]) => x.n);
  const rows = parts.map(([role, number, x]) => [key(role), grouped(x.n), readings(x.n, "byte")[0] ?? "", share(x.n, peak), written(own.form, number)]);
  const next = others.length ? ` Of ${others.length + 1} peak candidates the next, ${text(others[0].at)}, has ${headline(peak - others[0].value, "byte")} less.` : "";
  return [
    make("p", {}, "The peak is here: ", make("b", { id: "winner" }, text(first.at)), `.${next}`),
    make("figure", { class: "drawn" }, bar(parts, peak), make("figcaption", {}, `${headline(peak, "byte")} live at the peak, beside ${headline(BigInt(device().memory), "byte")} of ${device().name}.`)),
    table("Bytes at the peak by kind", ["Kind", "Bytes", "In larger units", "Of the peak", " Closed form"], rows),
  ];
}

const around = (size, quarters) => quarters.filter((f) => (size * f) % 4n === 0n).map((f) => (size * f) / 4n);

function fitSection(form, sizes, evaluation) {
  const memory = BigInt(device().memory);
  const [batch, length] = [evaluation.sizes.get("B"), evaluation.sizes.get("T")];
  if (batch === undefined) return [make("p", {}, "This model has no dimension B.")];
  const lengths = length === undefined || form.dims.find((d) => d.name === "T").tied ? [null] : around(length, [1n, 2n, 4n, 8n, 16n]);
  const rows = around(batch, [1n, 2n, 4n, 8n, 16n, 32n]).map((b) => [`B${NBSP}=${NBSP}${grouped(b)}`, ...lengths.map((t) => {
    const peak = peakAt(form, sizes, t === null ? [["B", b]] : [["B", b], ["T", t]]);
    return peak === null ? "–" : `${headline(peak, "byte")} ${peak <= memory ? "✓" : "×"}`;
  })]);
  const most_ = largestBatch(form, sizes, memory);
  const words = most_ === null ? "" : ` B = ${grouped(most_)} fits and B = ${grouped(most_ + 1n)} does not, with all else unchanged.`;
  return [
    make("p", {}, `✓ fits ${device().name}, × does not, – is invalid or needs a new trace.${words}`),
    table("Peak by batch and sequence length", ["", ...lengths.map((t) => (t === null ? "Peak" : `T${NBSP}=${NBSP}${grouped(t)}`))], rows),
  ];
}

// The derivation of a quantity: its closed form, and the addends or candidates that give it.
function derivation(evaluation, name) {
  const own = evaluation.of(name);
  const quantity = own.form.quantities[name];
  const link = DATA.links[name] ? [make("p", {}, make("a", { href: DATA.links[name] }, "Every step of its derivation"))] : [];
  if ("unknown" in quantity) return [make("p", {}, `unknown: ${quantity.unknown}`)];
  if ("candidates" in quantity) {
    const all = own.candidates(name);
    const rows = all.map(({ at, value: count, parts }) => [text(at), grouped(count), grouped(count - all[0].value), parts.map(([, number]) => written(own.form, number)).join(" + ")]);
    return [make("p", {}, `The maximum of ${rows.length} peak candidates, each the bytes live after one operator.`), table(name, ["Live bytes after", "Bytes", "Difference to the peak", " Closed form"], rows), ...link];
  }
  const rows = own.terms(name).map(([path, number, x, what]) => [text(path), read(x), written(own.form, number), text(what)]);
  const sum = ["sum", grouped(evaluation.value(name)), "", ""];
  const because = rows.length ? `, because ${text(quantity.because)}.` : "";
  const formula = make("p", {}, make("code", {}, `${name} = ${written(own.form, quantity.is)}`), because);
  return [formula, table(`Addends of ${name}`, ["Part", "Value", " Closed form", " What"], [...rows, sum]), ...link];
}

function quantityRow(evaluation, name) {
  const { unit, meaning } = evaluation.form.quantities[name];
  const count = evaluation.value(name);
  const shown = count === null ? ["unknown"] : [make("span", { class: "n" }, exact(count, unit)), ...readings(count, unit).flatMap((words) => [" ", make("small", {}, words)])];
  const summary = make("summary", {}, make("code", {}, name), " ", ...shown);
  const row = make("details", { class: "fold quantity", id: anchor(name), open: OPEN.has(name) && "" }, summary, make("p", { class: "note" }, meaning));
  const fill = () => { if (row.open && row.children.length === 2) row.append(...derivation(evaluation, name)); };
  row.addEventListener("toggle", () => { OPEN[row.open ? "add" : "delete"](name); fill(); });
  fill();
  return row;
}

function caseOf(evaluation) {
  const special = specialCase(evaluation.form, evaluation.sizes);
  return special ? ` The special case ${Object.entries(special.equal).map(([name, [, to]]) => `${name} = ${to}`).join(", ")} holds.` : "";
}

function show(form, sizes, evaluation) {
  for (const dim of form.dims) {
    const element = byId(sizeId(dim.name));
    if (dim.tied) element.textContent = grouped(evaluation.sizes.get(dim.name));
    else element.placeholder = evaluation.sizes.get(dim.name);
  }
  byId("tiles").replaceChildren(...tiles(evaluation));
  byId("peak").replaceChildren(...peakSection(evaluation));
  byId("fit").replaceChildren(...fitSection(form, sizes, evaluation));
  byId("quantities").replaceChildren(...Object.keys(evaluation.form.quantities).map((name) => quantityRow(evaluation, name)));
  const peak = evaluation.value("memory.peak");
  const words = peak === null ? "The peak is unknown." : `The step peaks at ${headline(peak, "byte")}. ${device().name}: ${verdict(peak).join(", ")}.`;
  byId("status").textContent = words + caseOf(evaluation);
}

const RESULTS = ["tiles", "peak", "fit", "quantities"];

// No number is shown: the sizes are invalid, or the traced step does not hold at them.
function refusal(form, words, line) {
  form.dims.forEach((dim) => { byId(sizeId(dim.name))[dim.tied ? "textContent" : "placeholder"] = ""; });
  RESULTS.forEach((id) => byId(id).replaceChildren());
  byId("status").replaceChildren(words, ...(line ? [" ", make("code", {}, line)] : []));
}

function update() {
  const { form } = recipe();
  form.dims.filter((dim) => !dim.tied).forEach((dim) => mark(sizeId(dim.name), ""));
  mark("mfu", utilization() ? "" : "a percentage above 0, at most 100");
  byId("results").hidden = true;
  byId("status").classList.toggle("bad", true);
  try {
    const sizes = given(form);
    const result = evaluate(form, sizes);
    if (result.failed) return refusal(form, `These sizes need a new trace: the step was traced where ${result.failed[0]}.`, command(form, sizes));
    show(form, sizes, result.evaluation);
    byId("status").classList.toggle("bad", false);
    byId("results").hidden = false;
  } catch (error) {
    if (!(error instanceof SizeError || error instanceof Refused)) throw error;
    if (error.size && byId(sizeId(error.size)).tagName === "INPUT") mark(sizeId(error.size), error.message);
    refusal(form, `${error.message}.`);
  }
}

// Opens the derivation that the address names.
function openNamed() {
  const row = byId(decodeURIComponent(location.hash.slice(1)) || "-");
  if (row?.tagName === "DETAILS") { row.open = true; row.scrollIntoView(); }
}

function begin() {
  byId("recipe").append(...DATA.recipes.map(({ label }) => make("option", {}, label)));
  byId("device").append(...DATA.devices.map(({ id, name }) => make("option", { selected: id === DATA.device && "" }, name)));
  byId("mfu").value = DATA.mfu;
  byId("refused").replaceChildren(...DATA.refused.map(([label, why]) => make("p", { class: "note" }, `No recipe ${label}: ${why}.`)));
  showFields(recipe().form);
  byId("recipe").addEventListener("change", () => { showFields(recipe().form); update(); });
  byId("controls").addEventListener("input", update);
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("controls").addEventListener("reset", () => setTimeout(() => { TYPED.clear(); showFields(recipe().form); byId("mfu").value = DATA.mfu; update(); }));
  addEventListener("hashchange", openNamed);
  update();
  openNamed();
}

begin();
